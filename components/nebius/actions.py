"""Resources of a cluster that act and create nothing: waits, drains, checks, programs in pods."""

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi.dynamic import CreateResult, UpdateResult

from components.dynamic import ActionProvider, DynamicResource, given, report

REPEAT_SECONDS = 60
"""Seconds after which an unchanged state is reported again."""
_SLOWEST = 5.0
"""Seconds between two attempts at most, where `pace` is less."""


class Poll:
    """Deadline, pace and progress of one wait."""

    def __init__(self, seconds: float, pace: float) -> None:
        self.seconds, self.pace = seconds, pace
        self._start = time.monotonic()
        self._shown, self._again = "", 0.0

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self.seconds - self.passed

    def pause(self, state: str = "", line: str = "") -> None:
        """Sleep until the next attempt. Reports `line` first, if `state` has changed or was reported a minute ago."""
        now = time.monotonic()
        if line and (state != self._shown or now > self._again):
            self._shown, self._again = state, now + REPEAT_SECONDS
            report(line)
        # Each attempt is a process of kubectl: where the first ones follow each other closely, later ones do not.
        time.sleep(min(max(self.pace, min(self.passed / 10, _SLOWEST)), max(self.left, 0.01)))


class ActingProvider(ActionProvider):
    """Acts at its creation and at each update in one way. A deletion does nothing."""

    ID: ClassVar[str]
    """The resource's id, a format of its inputs."""

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> Mapping[str, Any] | None:
        """Do it; outputs besides the inputs. `olds` is None at the creation."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        inputs = given(props)
        return CreateResult(self.ID.format(**inputs), {**inputs, **(self.act(inputs, None) or {})})

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        inputs = given(_news)
        return UpdateResult({**inputs, **(self.act(inputs, given(_olds)) or {})})


class Action(DynamicResource):
    """A resource whose inputs are given by name. The docstring of each class says what they are."""

    PROVIDER: ClassVar[type[ActingProvider]]
    OUTPUTS: ClassVar[tuple[str, ...]] = ()
    """Keys that `act` returns."""

    def __init__(self, name: str, *, opts: pulumi.ResourceOptions | None = None, **inputs: pulumi.Input[Any]) -> None:
        super().__init__(self.PROVIDER(), name, {**inputs, **dict.fromkeys(self.OUTPUTS)}, opts)
