"""Whatever stands where in a stack file, its reader is told in words, or it is taken: nothing else comes of it."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.config import ClusterConfig
from cluster.findings import ConfigError, Finding
from cluster.impact.table import effects
from cluster.load.parse import parse, parse_output
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.capacity import of_nodes
from cluster.platforms.gcp.disks import boot_disk, state_disk
from cluster.platforms.gcp.filesystems.lustre import LustreKind
from cluster.platforms.gcp.filesystems.registry import file_systems, mounts
from cluster.roster import machines
from tests.cluster.samples import LAB
from tests.cluster.samples_google import CLOUD, MANAGED
from tests.cluster.stacks import EVERY, config

ODD = (None, True, 1, 10**12, "", "a/b", "10.0.0.0/30", "hyperdisk-throughput", [None], {"x": 1}, "INFINITE")


def places(tree: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a tree below its root."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from places(value, (*at, key))


def found(settings: dict[str, Any], cluster: dict[str, Any]) -> tuple[Finding, ...]:
    """What is wrong with a stack; of one with nothing wrong, all is worked out that is before anything is made."""
    try:
        config = parse({"hpc:cluster": cluster, **settings})
    except ConfigError as error:
        return error.findings
    if config.platform == "gcp":
        worked_out(config)
    return ()


def worked_out(config: ClusterConfig) -> None:
    """Addresses, disks, mounts, ways of asking, figures: none of them may fail for what was accepted."""
    assert plan(config).system
    for spec in machines(config):
        assert boot_disk(config, spec)[1] >= 10
        assert all(mount.target for mount in mounts(config, spec))
    assert state_disk(config)[1] >= 10
    assert all(of_nodes(section.capacity) for section in config.nodesets.values())
    for kind in file_systems(config):
        if isinstance(kind, LustreKind):
            assert kind.expected(kind.section).read_mbps > 0


@pytest.mark.parametrize("stack", EVERY)
def test_what_a_stack_gives_out_is_read_again_as_the_same(stack: str):
    """Previews compare with it: a default that is written out must not be taken for something that the file says."""
    said = config(stack)
    again = parse_output(said.model_dump_json(exclude_unset=True))
    assert again == said
    assert effects(again, said, stack) == []


@pytest.mark.parametrize("base", [LAB, CLOUD, MANAGED], ids=["local", "exascaler", "managed"])
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_value_anywhere_is_reported_in_four_parts_or_taken(base: dict[str, Any], odd: Any):
    for place in places(base):
        stack = copy.deepcopy(base)
        section: Any = stack
        for step in place[:-1]:
            section = section[step]
        section[place[-1]] = odd
        google = stack.pop("gcp", None)
        settings = {f"gcp:{key}": value for key, value in google.items()} if isinstance(google, dict) else {}
        assert all(one.where and one.given and one.allowed and one.todo for one in found(settings, stack)), place
