"""Every stack, in every mode."""

import pytest

from tests.cluster import stacks
from tests.contract.seen import MODES, Seen, record


@pytest.fixture(params=[(stack, mode) for stack in stacks.STACKS for mode in MODES], ids="-".join)
def seen(request: pytest.FixtureRequest) -> Seen:
    return record(*request.param)
