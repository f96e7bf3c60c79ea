"""The base class of all sections of the configuration, and annotations of their fields.

`max_time: Annotated[SlurmTime, Slurm("MaxTime"), Reconfigure("...")]` is rendered as MaxTime, refused under the
partition's `conf`, checked against the stack's release of Slurm, and has an impact
(`cluster.config.impact_annotations`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from cluster.catalog.slurm_releases import ParameterTable
from cluster.findings import Finding

PLAIN, OTHER = "(plain)", "(other)"
"""Tags of the two forms of a field, by which its validator is selected; cluster.load removes them from the places of
errors."""


class Section(BaseModel):
    """A part of the configuration. It is immutable, and refuses unknown keys.

    The default of a section that may be left out is its `model_construct`: calling the class would build a validator
    for it at every start.
    """

    one_value: ClassVar[bool] = False
    """True if an edit of several keys is shown as one edit of the section, because its keys have no meaning apart."""

    stand_in: ClassVar[Mapping[str, Any]] = {}
    """Valid values of a platform's own section. If the section is missing or wrong, the rest of a file is checked with
    these. No check may report them."""

    @property
    def slurm_release(self) -> str | None:
        """Slurm's release, such as 25.11, if a platform's own section determines it; else the image does."""
        return None

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class ProviderSection(Section):
    """A platform's own section that the stack file has as settings of Pulumi's provider (`gcp:project`), beside
    `hpc:cluster`. The provider's namespace is the platform's name."""

    more: ClassVar[Mapping[str, str]] = {}
    """Settings besides those of the section that the stack file may have, with their description."""

    @classmethod
    def find_errors(cls, settings: Mapping[str, Any]) -> Iterable[Finding]:  # noqa: ARG003 - of subclasses
        """Return errors in these settings that the section can't find by itself."""
        return ()


Value = str | int | bool | None


@dataclass(frozen=True, eq=False)
class Slurm:
    """The parameter of Slurm that a field sets: of PartitionName and NodeName lines below partitions and nodesets, of
    QOS below accounting.qos, of slurm.conf elsewhere."""

    parameter: str
    written: Mapping[Any, Value] = field(default_factory=dict)
    """The texts that values are written as, where these differ from the values; None leaves the parameter out."""
    form: str = "{}"
    """Text around the value."""
    scale: int = 1
    """Slurm's units in one of a mapping's: 60 where the field counts hours, and Slurm minutes."""
    replaceable: bool = False
    """True if `slurm.extra` may set the parameter too, and replaces the field's value."""
    values: ParameterTable | None = None
    """The releases of Slurm that have each of the field's values, where they differ."""

    def value(self, field_value: Any) -> Value:  # noqa: ANN401 - a field may be of any type
        """Return a field's value as Slurm reads it; None leaves the parameter out."""
        if field_value in (None, ()) or field_value == {}:
            return None
        if isinstance(field_value, tuple):
            return ",".join(field_value)
        if isinstance(field_value, Mapping):
            return ",".join(f"{name}={count * self.scale}" for name, count in field_value.items())
        value = self.written.get(field_value, field_value)
        return value if value is None or self.form == "{}" else self.form.format(value)


Kind = TypeVar("Kind")


def metadata(info: FieldInfo, kind: type[Kind]) -> Kind | None:
    """Return a field's annotation of one class; None if it has none."""
    return next((note for note in info.metadata if isinstance(note, kind)), None)


@cache
def slurm_fields(kind: type[Section]) -> tuple[tuple[str, Slurm], ...]:
    """Return key and parameter of the section's fields that set a parameter of Slurm."""
    return tuple((key, slurm) for key, info in kind.model_fields.items() if (slurm := metadata(info, Slurm)))


def slurm_settings(section: Section) -> dict[str, Value]:
    """Return parameter and value of each field of a section that sets a parameter of Slurm, in order of the fields."""
    return {slurm.parameter: slurm.value(getattr(section, key)) for key, slurm in slurm_fields(type(section))}
