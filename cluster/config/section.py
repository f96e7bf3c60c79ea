"""The base of all sections of the configuration, and annotations by which a field says more about itself.

`max_time: Annotated[SlurmTime, Slurm("MaxTime"), Reconfigure("...")]` is rendered as MaxTime, refused under the
partition's `conf`, checked against the stack's release of Slurm, and has an impact (`cluster.config.impact`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from cluster.catalog.slurm_releases import Table

PLAIN, OTHER = "(plain)", "(other)"
"""Tags of the two forms of a field, by which its validator is selected; cluster.load removes them from the places of
errors."""


class Section(BaseModel):
    """A part of the configuration: can't be changed once read, and refuses keys that it doesn't know.

    Where it may be left out, its `model_construct` is the default: calling the class would build a validator of its
    own for it at every start.
    """

    one_value: ClassVar[bool] = False
    """True if an edit of the section is shown as one, because its keys mean nothing apart."""

    stand_in: ClassVar[Mapping[str, Any]] = {}
    """Valid values of a platform's own section, with which the rest of a file is checked where these are missing or
    wrong. No check may find anything about them."""

    @property
    def slurm_release(self) -> str | None:
        """Slurm's release, such as 25.11, of a platform's own section where it follows from the section and not from
        the image."""
        return None

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


Value = str | int | bool | None


@dataclass(frozen=True, eq=False)
class Slurm:
    """The parameter of Slurm's that a field sets: of PartitionName and NodeName lines below partitions and nodesets,
    of QOS below accounting.qos, of slurm.conf elsewhere."""

    parameter: str
    written: Mapping[Any, Value] = field(default_factory=dict)
    """The texts that values are written as, where these differ from the values; None leaves the parameter out."""
    form: str = "{}"
    """Text around the value."""
    replaceable: bool = False
    """True if `slurm.extra` may set the parameter too, and replaces the field's value."""
    values: Table | None = None
    """The releases of Slurm that have each of the field's values, where they differ."""

    def value(self, given: Any) -> Value:  # noqa: ANN401 - a field may be of any type
        """A field's value as Slurm reads it; None leaves the parameter out."""
        if given in (None, ()) or given == {}:
            return None
        if isinstance(given, tuple):
            return ",".join(given)
        if isinstance(given, Mapping):
            return ",".join(f"{name}={count}" for name, count in given.items())
        given = self.written.get(given, given)
        return given if given is None or self.form == "{}" else self.form.format(given)


Kind = TypeVar("Kind")


def metadata(info: FieldInfo, kind: type[Kind]) -> Kind | None:
    """A field's annotation of one kind."""
    return next((note for note in info.metadata if isinstance(note, kind)), None)


@cache
def slurm_fields(kind: type[Section]) -> tuple[tuple[str, Slurm], ...]:
    """Key and parameter of the section's fields that set one of Slurm's."""
    return tuple((key, found) for key, info in kind.model_fields.items() if (found := metadata(info, Slurm)))


def slurm_settings(section: Section) -> dict[str, Value]:
    """Parameter and value of each field of a section that sets one of Slurm's, in the order of the fields."""
    return {slurm.parameter: slurm.value(getattr(section, key)) for key, slurm in slurm_fields(type(section))}
