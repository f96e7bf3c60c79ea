"""All errors of a file come at once, at their places in the file as it is written, and none that only follow."""

import copy
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.load.parse import parse
from tests.cluster.stacks import findings, load

ALICE = {"name": "alice", "uid": 2001}
BOB = {"name": "bob", "uid": 2001}


def test_wrong_values_and_broken_rules_are_told_together():
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


def test_a_name_that_is_wrong_does_not_hide_the_rest():
    assert sorted(findings(name=7, platform="mars", nodesets={"cpu": {"count": 5000}})) == [
        "name",
        "nodesets.cpu.count",
        "platform",
    ]


JUNK = st.sampled_from([None, 0, -1, "", "?", [], {}, [None], {"x": {"y": 1}}, True, 1.5, 10**30, "\n", "é", ["cpu"]])


def places(tree, path=()):
    yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*path, key))
    elif isinstance(tree, list):
        for position, value in enumerate(tree):
            yield from places(value, (*path, position))


FULL = load("example-full")["hpc:cluster"]
PLACES = [path for path in places(FULL) if path]


@settings(max_examples=100)
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


@pytest.mark.parametrize("stack", ["example-full", "example-smallest", "dev"])
def test_what_was_read_can_be_written_and_read_again(stack):
    config = parse(load(stack))
    again = parse({"hpc:cluster": config.model_dump(mode="json", exclude_unset=True)})
    assert again == config


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
        config.name = "other"
