"""All errors of a file come at once, at their places in the file as it is written, and none that only follow."""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.config import ClusterConfig
from cluster.findings import ConfigError, Finding
from cluster.impact.table import effects
from cluster.load import parse, parse_output
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.capacity import node_scheduling
from cluster.platforms.gcp.disks import boot_disk, state_disk
from cluster.platforms.gcp.filesystems.lustre import LustreKind
from cluster.platforms.gcp.filesystems.registry import file_systems, mounts
from cluster.roster import machines
from tests.cluster.samples import LAB
from tests.cluster.samples_google import CLOUD, MANAGED
from tests.cluster.stacks import EVERY, config, findings, load, local, places

ALICE = {"name": "alice", "uid": 2001}
BOB = {"name": "bob", "uid": 2001}


def test_wrong_values_and_broken_rules_are_reported_together():
    found = findings(
        name="Dev",
        nodesets={"cpu": {"count": 0}, "gpu": {"count": 9999}},
        partitions={
            "cpu": {"nodesets": ["cpu", "nope"], "default": True},
            "gpu": {"nodesets": ["gpu"], "default": True},
        },
        users=[ALICE, BOB],
    )
    assert sorted(found) == [
        "name",
        "nodesets.cpu.count",
        "nodesets.gpu.count",
        "partitions.cpu.nodesets[1]",
        "partitions.gpu.default",
        "users[1].uid",
    ]


def test_places_in_lists_are_those_of_the_file():
    """The first user is taken out before the others are compared, yet keeps its number."""
    found = findings(users=[{"name": "nobody-yet"}, ALICE, {"name": "x", "uid": 1}, BOB])
    assert sorted(found) == ["users[0].uid", "users[2].uid", "users[3].uid"]
    assert found["users[3].uid"].allowed.endswith("alice's")


def test_what_was_only_taken_out_is_not_missed():
    """A nodeset with an error still exists; so do the default partition and an account with one."""
    found = findings(
        nodesets={"cpu": {"on": "controller", "count": 2}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": "yes"}},
        accounting={"accounts": [{"name": "research", "fairshare": 0}, {"name": "x", "parent": "research"}]},
        users=[{**ALICE, "account": "research"}],
    )
    assert sorted(found) == ["accounting.accounts[0].fairshare", "nodesets.cpu", "partitions.cpu.default"]


JUNK = st.sampled_from([None, 0, -1, "", "?", [], {}, [None], {"x": {"y": 1}}, True, 1.5, 10**30, "\n", "é", ["cpu"]])


FULL = load("example-full")["hpc:cluster"]
PLACES = [*places(FULL)]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=4))
def test_nothing_that_stands_in_a_file_ends_in_a_traceback(changes):
    given_file = copy.deepcopy(FULL)
    for path, junk in changes:
        where = given_file
        try:
            for step in path[:-1]:
                where = where[step]
            where[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken this place away
    try:
        assert isinstance(parse({"hpc:cluster": given_file}), ClusterConfig)
    except ConfigError as error:
        for one in error.findings:
            assert one.where.startswith("hpc:cluster")
            assert all(part.strip() for part in (one.given, one.allowed, one.todo))
            assert "pydantic" not in str(one).lower()


@pytest.mark.parametrize("reader", [yaml.safe_load, lambda text: json.loads(json.dumps(yaml.safe_load(text)))])
def test_on_needs_no_quotes(reader):
    """YAML 1.1 reads the key `on` as true."""
    cluster = reader("{platform: local, name: a, login: {on: controller}, nodesets: {n: {on: controller}}}")
    cluster["partitions"] = {"p": {"nodesets": ["n"], "default": True}}
    config = parse({"hpc:cluster": cluster})
    assert (config.login.on, config.nodesets["n"].on) == ("controller", "controller")


def test_nothing_that_was_read_can_be_changed():
    config = parse(load("example-full"))
    with pytest.raises(ValueError, match="frozen"):
        config.name = "other"  # pyrefly: ignore[read-only]


@pytest.mark.parametrize(
    "stack",
    [{}, {"hpc:cluster": None}, {"hpc:cluster": "dev"}, {"hpc:cluster": "{"}, {"hpc:cluster": ["dev"]}],
)
def test_a_stack_without_a_cluster_is_refused_with_an_example(stack):
    with pytest.raises(ConfigError, match=r"Pulumi\.dev\.yaml is an example"):
        parse(stack)


def test_a_setting_of_ours_that_is_never_read_is_refused_and_those_of_providers_are_not():
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:clutser": local(), "gcp:project": "p"})
    assert [one.where for one in caught.value.findings] == ["hpc:clutser", "hpc:cluster"]
    assert caught.value.findings[0].todo == "write hpc:cluster"
    assert parse({"hpc:cluster": local(), "gcp:project": "p"}).name == "dev"


def test_the_text_has_every_finding_in_four_lines(reviewed: Callable[[str, Mapping[str, str]], None]):
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(nodesets={"cpu": {"count": 0}}, name="Dev")})
    reviewed("refused/two", {"two errors": str(caught.value)})


def test_what_errors_keep_from_being_checked_is_said():
    """A user without a number, and a login machine of which only a part can be read."""
    users = [{"name": "alice"}]
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(users=users, login={"on": "controller", "count": 1, "disk": 3})})
    assert [one.where for one in caught.value.findings] == ["hpc:cluster.login.disk", "hpc:cluster.users[0].uid"]
    assert str(caught.value).endswith(
        "Not compared with the rest of the file until they are right: hpc:cluster.login, hpc:cluster.users[0]"
    )


ODD = (None, True, 1, 10**12, "", "a/b", "10.0.0.0/30", "hyperdisk-throughput", [None], {"x": 1}, "INFINITE")


def found(settings: dict[str, Any], cluster: dict[str, Any]) -> tuple[Finding, ...]:
    """Return what is wrong with a stack; of one with nothing wrong, all is worked out that is before anything is
    made."""
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
    assert all(node_scheduling(way, migrates=True) for section in config.nodesets.values() for way in section.ways)
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
