"""Every stack, in every mode; in a fast run, as it is made."""

import pytest

from tests.cluster import stacks
from tests.contract.seen import MODES, Seen, record

EVERY = [
    pytest.param((stack, mode), id=f"{stack}-{mode}", marks=() if mode == "made" else pytest.mark.slow)
    for stack in stacks.STACKS
    for mode in MODES
]


@pytest.fixture(params=EVERY)
def seen(request: pytest.FixtureRequest) -> Seen:
    return record(*request.param)
