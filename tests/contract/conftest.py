"""Runs of all stacks in every mode; a fast run has only the mode `made`."""

import pytest

from tests.cluster import stacks
from tests.contract.recorded import StackRun, modes, record


def _modes(*names: str) -> list[object]:
    return [
        pytest.param((stack, mode), id=f"{stack}-{mode}", marks=() if mode == "made" else pytest.mark.slow)
        for stack in names
        for mode in modes(stack)
    ]


@pytest.fixture(params=_modes(*stacks.STACKS))
def run(request: pytest.FixtureRequest) -> StackRun:
    """A stack whose cluster is machines."""
    return record(*request.param)


@pytest.fixture(params=_modes(*stacks.STACKS, "nebius"))
def every(request: pytest.FixtureRequest) -> StackRun:
    """A stack of any platform."""
    return record(*request.param)
