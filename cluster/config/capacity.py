"""Capacities: the ways in which a machine is bought from a cloud, each with the settings that only it can have."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_serializer, model_validator
from typing_extensions import Self

from cluster.config.section import Section
from cluster.config.types import Positive, SlurmTime, text_schema
from cluster.config.validators import CLOUD_NAME, cloud_resource, is_utc_time, matching
from cluster.findings import RefusedError, suggest

WAYS = ("on_demand", "spot", "reservation", "flex", "calendar")

_calendar = matching(
    CLOUD_NAME,
    "the name of a future reservation, e.g. my-week",
    "copy it from `gcloud compute future-reservations list`",
)
_policy = cloud_resource("resource-policies", "regions/REGION/resourcePolicies", "my-placement")
_reservation = cloud_resource(
    "reservations", "reservations", "my-reservation", parts=("reservationBlocks", "reservationSubBlocks")
)


def _end(value: str) -> str:
    if not is_utc_time(value):
        raise RefusedError(
            "a time in UTC, YYYYMMDDTHHMMSSZ, e.g. 20261201T080000Z",
            "write the end that `gcloud compute future-reservations describe` shows, in UTC",
        )
    return value


EndTime = Annotated[str, AfterValidator(_end), text_schema(pattern="^20[0-9]{6}T[0-9]{6}Z$")]


class Placement(Section):
    """Machines close to each other."""

    max_distance: Positive = Field(default=2, le=3)
    """Network hops between two machines at most: 1 the same host rack, 2 neighbouring racks, 3 the same cluster."""


class OnDemand(Section):
    """Machines at the list price, for as long as they are wanted, if there are any."""

    placement: Placement | None = None
    """Machines close to each other; fewer of them may then be found."""


class Spot(Section):
    """Machines at a low price, which the cloud may take back at any time, with 30 seconds' notice."""

    placement: Placement | None = None
    """Machines close to each other; fewer of them may then be found."""


class Reservation(Section):
    """Machines of a reservation."""

    model_config = ConfigDict(json_schema_extra={"type": ["string", "object"], "examples": ["my-reservation"]})

    name: Annotated[str, AfterValidator(_reservation)]
    """Its name, or projects/PROJECT/reservations/NAME for one that another project shares; for machines of one block
    or sub-block with /reservationBlocks/BLOCK or /reservationBlocks/BLOCK/reservationSubBlocks/SUB_BLOCK after it. On
    nebius the id of a capacity block group."""
    placement_policy: Annotated[str, AfterValidator(_policy), text_schema(examples=["my-placement"])] | None = None
    """The compact placement policy that it was made with, if it was: machines that do not name it are refused. Its
    name, or projects/PROJECT/regions/REGION/resourcePolicies/NAME with the stack's own project and region."""

    @model_serializer
    def _as_written(self) -> Any:  # noqa: ANN401 - a name, or a mapping
        """Write a name alone as a text, also in a stack's outputs."""
        if self.placement_policy is None:
            return self.name
        return {"name": self.name, "placement_policy": self.placement_policy}


class Calendar(Section):
    """Machines of a future reservation in calendar mode."""

    model_config = ConfigDict(json_schema_extra={"type": ["string", "object"], "examples": ["my-week"]})

    name: Annotated[str, AfterValidator(_calendar)]
    """Name of the reservation that it becomes."""
    ends: EndTime | None = Field(default=None, examples=["20261201T080000Z"])
    """Its end, YYYYMMDDTHHMMSSZ: Slurm starts no job that would run longer."""

    @model_serializer
    def _as_written(self) -> Any:  # noqa: ANN401 - a name, or a mapping
        """Write a name alone as a text, also in a stack's outputs."""
        return self.name if self.ends is None else {"name": self.name, "ends": self.ends}


def _by_name(check: Callable[[str], str]) -> BeforeValidator:
    """Return a validator that reads a text as the name of a section, after `check`."""
    return BeforeValidator(lambda value: {"name": check(value)} if isinstance(value, str) else value)


class Flex(Section):
    """Machines of Dynamic Workload Scheduler's flex start: waited for, then held for a time."""

    max_run: SlurmTime = "7-00:00:00"
    """Time that they are held, at most seven days; then they are deleted."""


WORDS = ("on_demand", "spot", "flex")
"""Ways that need no settings. The word alone stands for the way with its defaults."""


class Capacity(Section):
    """The way in which the cloud is asked for these machines: exactly one of the keys, or one of on_demand, spot and
    flex as a word. Default: on_demand."""

    one_value: ClassVar[bool] = True
    model_config = ConfigDict(json_schema_extra={"type": ["string", "object"], "examples": ["spot"]})

    on_demand: OnDemand | None = None
    """At the list price, for as long as wanted: `{on_demand: {}}`."""
    spot: Spot | None = None
    """At a low price, and taken back at any time: `{spot: {}}`."""
    reservation: Annotated[Reservation | None, _by_name(_reservation)] = None
    """From a reservation: its name, or `{name: NAME, placement_policy: POLICY}` for one with compact placement."""
    flex: Flex | None = None
    """By Dynamic Workload Scheduler's flex start: `{flex: {max_run: "7-00:00:00"}}`."""
    calendar: Annotated[Calendar | None, _by_name(_calendar)] = None
    """From a future reservation (calendar mode): its name, or `{name: NAME, ends: 20261201T080000Z}`."""

    @model_validator(mode="before")
    @classmethod
    def _by_word(cls, value: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
        if not isinstance(value, str):
            return value
        if value not in WORDS:
            raise RefusedError(
                "on_demand, spot or flex as a word, or a mapping, e.g. {reservation: my-reservation}",
                suggest(value, WORDS, f"write {{reservation: {value}}} if it is one, or one of these"),
            )
        return {value: {}}

    @model_validator(mode="before")
    @classmethod
    def _placement_within(cls, value: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
        if isinstance(value, Mapping) and "placement" in value:
            raise RefusedError(
                "placement within on_demand or spot, e.g. {on_demand: {placement: {max_distance: 2}}}",
                "remove placement: a reservation brings its own (`placement_policy` names it)"
                if {"reservation", "calendar"} & value.keys()
                else "write it one level further down",
            )
        if isinstance(value, Mapping) and "placement_policy" in value:
            raise RefusedError(
                "placement_policy within reservation, e.g. {reservation: {name: mine, placement_policy: close}}",
                "write it there: it is the reservation's own"
                if "reservation" in value
                else "remove it: only a reservation has one; `placement` keeps machines close without",
            )
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [way for way in WAYS if getattr(self, way) is not None]
        if len(ways) != 1:
            raise RefusedError(
                "exactly one of on_demand, spot, reservation, flex and calendar, e.g. {reservation: my-reservation}",
                f"keep one of {' and '.join(ways)}: a machine is bought in one way"
                if ways
                else "name one, or remove `capacity` for on_demand",
            )
        return self

    @property
    def way(self) -> str:
        """The key that is given."""
        return next(way for way in WAYS if getattr(self, way) is not None)

    @property
    def placement(self) -> Placement | None:
        """The placement policy, which only machines on demand and spot machines can have."""
        section = self.on_demand or self.spot
        return section.placement if section else None


class BasicCapacity(Section):
    """The way in which the cloud is asked for a machine that stays: exactly one of the keys. Default: on_demand."""

    one_value: ClassVar[bool] = True

    on_demand: OnDemand | None = None
    """At the list price: `{on_demand: {}}`."""
    spot: Spot | None = None
    """At a low price, and taken back at any time: `{spot: {}}`. The cluster stands still until it is started again."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.on_demand is None) == (self.spot is None):
            raise RefusedError(
                "exactly one of on_demand and spot, e.g. {spot: {}}",
                "keep one of them, or remove `capacity` for on_demand",
            )
        return self

    @property
    def way(self) -> str:
        """The key that is given."""
        return "spot" if self.spot is not None else "on_demand"
