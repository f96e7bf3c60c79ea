"""A file system or a machine that takes long is waited for: what the provider gives up is billed in no state."""

import pytest

from components.gcp.timeouts import TIMEOUTS
from tests.cluster import stacks
from tests.contract.provider_limits import BEFORE, ENDLESS, PROVIDER, TOOLKIT, Limits
from tests.contract.recorded import StackRun, modes, record

GCP = [name for name in stacks.STACKS if stacks.config(name).platform == "gcp"]
PER = {"m": 1, "h": 60}


def minutes(text: str) -> int:
    return int(text[:-1]) * PER[text[-1]]


@pytest.fixture(params=[(stack, mode) for stack in GCP for mode in modes(stack)], ids="-".join)
def run(request: pytest.FixtureRequest) -> StackRun:
    return record(*request.param)


def test_every_resource_of_a_type_in_the_table_has_its_timeouts(run):
    found = [resource for resource in run.recording.resources if resource.type in TIMEOUTS]
    assert found
    for resource in found:
        given, row = resource.request.customTimeouts, TIMEOUTS[resource.type]
        assert (given.create, given.update, given.delete) == (row.create, row.update, row.delete), resource.name


def test_other_types_keep_the_providers_own(run):
    others = [r for r in run.recording.resources if r.type.startswith("gcp:") and r.type not in TIMEOUTS]
    assert [r.name for r in others if r.request.customTimeouts.create] == []


def test_the_limits_of_every_type_are_known(run):
    """A new type of resource: look up how long the provider waits for it, and how long it takes."""
    types = {resource.type for resource in run.recording.resources if resource.type.startswith("gcp:")}
    assert {type_ for type_ in types - set(PROVIDER) if not type_.lower().endswith("member")} == set()


@pytest.mark.parametrize("type_", TIMEOUTS)
def test_no_limit_is_shorter_than_the_providers_or_the_toolkits(type_):
    row = TIMEOUTS[type_]
    ours = [minutes(str(limit)) for limit in (row.create, row.update, row.delete)]
    theirs: list[Limits] = [PROVIDER[type_][1], BEFORE.get(type_, (None, None, None))]
    for limits in theirs:
        assert all(limit is None or limit >= ENDLESS or limit <= own for limit, own in zip(limits, ours, strict=True))
    assert min(ours) >= TOOLKIT.get(type_, 0)
    assert max(ours) < ENDLESS


def test_what_holds_data_and_can_take_an_hour_is_in_the_table():
    assert set(TOOLKIT) <= set(TIMEOUTS)
