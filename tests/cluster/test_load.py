"""All errors of a file are reported at once, with their places in the file, and without errors that only follow."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.config import ClusterConfig
from cluster.findings import ConfigError, Finding, dotted
from cluster.impact.table import effects
from cluster.load import parse, parse_output
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.capacity import node_scheduling
from cluster.platforms.gcp.disks import boot_disk, state_disk
from cluster.platforms.gcp.filesystems.lustre import LustreKind
from cluster.platforms.gcp.filesystems.registry import file_systems, mounts
from cluster.roster import machines
from tests.cluster.samples import CLOUD, LAB, MANAGED
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
    """The first user is removed before the others are compared, which keep their positions."""
    found = findings(users=[{"name": "nobody-yet"}, ALICE, {"name": "x", "uid": 1}, BOB])
    assert sorted(found) == ["users[0].uid", "users[2].uid", "users[3].uid"]
    assert found["users[3].uid"].allowed.endswith("alice's")


def test_parts_with_errors_are_not_reported_as_missing():
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
def test_random_changes_of_a_file_end_in_findings_and_no_traceback(changes):
    given_file = copy.deepcopy(FULL)
    for path, junk in changes:
        where = given_file
        try:
            for step in path[:-1]:
                where = where[step]
            where[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has removed this place
    try:
        assert isinstance(parse({"hpc:cluster": given_file}), ClusterConfig)
    except ConfigError as error:
        for finding in error.findings:
            assert finding.where.startswith("hpc:cluster")
            assert all(part.strip() for part in (finding.given, finding.allowed, finding.todo))
            assert "pydantic" not in str(finding).lower()


def test_a_configuration_is_immutable():
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


def test_unknown_keys_of_hpc_are_refused_and_keys_of_providers_are_not():
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:clutser": local(), "gcp:project": "p"})
    assert [finding.where for finding in caught.value.findings] == ["hpc:clutser", "hpc:cluster"]
    assert caught.value.findings[0].todo == "write hpc:cluster"
    assert parse({"hpc:cluster": local(), "gcp:project": "p"}).name == "dev"


SECTIONS = sorted(ClusterConfig.model_fields)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("form", ["{}", "hpc:{}"])
def test_a_section_beside_the_cluster_is_refused_and_sent_below_it(section: str, form: str):
    """Pulumi puts a key without a namespace into that of the project."""
    (finding,) = stack_findings({"hpc:cluster": local(), form.format(section): [{"name": "alice"}]})
    assert finding.where == form.format(section)
    assert finding.todo == "indent it, so that it is below `hpc:cluster:`, as `platform:` is"


@pytest.mark.parametrize(
    ("key", "todo"),
    [
        ("monitoring", "indent it, so that it is below `hpc:cluster:`, as `platform:` is"),
        ("nebius", "indent it, so that it is below `hpc:cluster:`, as `platform:` is"),
        ("gcp:zone", "indent it, so that it is below `config:`"),
        ("hpc:cluster", "indent it, so that it is below `config:`"),
        ("conifg", "remove it"),
    ],
)
def test_a_key_in_the_first_column_of_a_file_is_refused(key: str, todo: str):
    (finding,) = stack_findings({"hpc:cluster": local()}, {key: {}})
    assert (finding.where, finding.id, finding.todo) == (key, "key-beside-config", todo)


def stack_findings(*stack: dict[str, Any]) -> list[Finding]:
    with pytest.raises(ConfigError) as caught:
        parse(*stack)
    return [*caught.value.findings]


@pytest.mark.parametrize("stack", ["a3mega", "classic", "dev", "example-full", "nebius"])
def test_a_wrong_value_of_nodes_or_accounts_neither_hides_nor_makes_other_errors(stack: str):
    """Each value of nodesets, partitions and accounting in turn is the wrong one, beside two users with one uid."""
    settings = load(stack)
    cluster = settings["hpc:cluster"]
    accounts = cluster.get("accounting", {}).get("accounts", [])
    account = {"account": accounts[-1]["name"]} if accounts else {}
    users = [*cluster.get("users", []), *({"name": name, "uid": 59_999, **account} for name in ("yed", "zed"))]
    mistake = f"hpc:cluster.users[{len(users) - 1}].uid"
    for path in places({key: cluster[key] for key in ("nodesets", "partitions", "accounting") if key in cluster}):
        changed = copy.deepcopy(cluster) | {"users": users}
        where = changed
        for step in path[:-1]:
            where = where[step]
        where[path[-1]] = "%%" if isinstance(where[path[-1]], (dict, list, int)) else {"x": 1}
        found = stack_findings({**settings, "hpc:cluster": changed})
        # Nor is an error about the mapping that has the value.
        within = [dotted(path[:length]) for length in range(2, len(path))]
        others = [at for at in (f.where for f in found) if not at.startswith(dotted(path)) and at not in within]
        assert others == [mistake], path


def test_without_nodesets_no_name_of_a_nodeset_is_called_unknown():
    """Such as `nodesetx:`, beside partitions that have the names below it."""
    cluster = local(partitions={"cpu": {"nodesets": ["cpu"], "default": True}})
    cluster["nodesetx"] = cluster.pop("nodesets")
    found = [finding.where for finding in stack_findings({"hpc:cluster": cluster})]
    assert found == ["hpc:cluster.nodesets", "hpc:cluster.nodesetx"]


def test_a_wrong_section_does_not_hide_that_no_partition_is_the_default():
    found = stack_findings({"hpc:cluster": local(network=-1, partitions={"cpu": {"nodesets": ["cpu"]}})})
    assert [finding.id for finding in found] == ["value-invalid", "partition-default-missing"]


def test_the_text_has_every_finding_in_four_lines(reviewed):
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(nodesets={"cpu": {"count": 0}}, name="Dev")})
    reviewed("refused/two", {"two errors": str(caught.value)})


def test_a_partition_that_cannot_be_read_hides_no_mistakes_of_others():
    partitions = {"cpu": {"nodesets": ["cpu"], "default": True}, "b": {"nodesets": "cpu"}, "c": {"nodesets": ["gone"]}}
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(partitions=partitions, users=[ALICE, {"name": "x", "uid": 1}, BOB])})
    assert [finding.where.removeprefix("hpc:cluster.") for finding in caught.value.findings] == [
        "partitions.b.nodesets",
        "users[1].uid",
        "partitions.c.nodesets[0]",
        "users[2].uid",
    ]
    assert caught.value.unchecked == ("hpc:cluster.partitions.b", "hpc:cluster.users[1]")


def test_places_that_were_not_checked_are_listed():
    """Such as a user without uid, and a login machine with one wrong key."""
    users = [{"name": "alice"}]
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(users=users, login={"on": "controller", "count": 1, "disk": 3})})
    assert [finding.where for finding in caught.value.findings] == [
        "hpc:cluster.login.disk",
        "hpc:cluster.users[0].uid",
    ]
    assert str(caught.value).endswith(
        "Not compared with the rest of the file until they are right: hpc:cluster.login, hpc:cluster.users[0]"
    )


ODD = (None, True, 1, 10**12, "", "a/b", "10.0.0.0/30", "hyperdisk-throughput", [None], {"x": 1}, "INFINITE")


def errors(settings: dict[str, Any], cluster: dict[str, Any]) -> tuple[Finding, ...]:
    """Return the findings about a stack. Without any, compute what `up` computes before its first step."""
    try:
        config = parse({"hpc:cluster": cluster, **settings})
    except ConfigError as error:
        return error.findings
    if config.platform == "gcp":
        compute_plans(config)
    return ()


def compute_plans(config: ClusterConfig) -> None:
    """Compute addresses, disks, mounts, capacities and rates, which must not fail for an accepted file."""
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
def test_the_output_config_is_read_to_the_same_configuration(stack: str):
    """Previews compare with it, so a default in it must not become an explicit value."""
    original = config(stack)
    parsed = parse_output(original.model_dump_json(exclude_unset=True))
    assert parsed == original
    assert effects(parsed, original, stack) == []


@pytest.mark.parametrize("base", [LAB, CLOUD, MANAGED], ids=["local", "exascaler", "managed"])
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_value_at_any_place_is_reported_in_four_parts_or_accepted(base: dict[str, Any], odd: Any):
    for place in places(base):
        stack = copy.deepcopy(base)
        section: Any = stack
        for step in place[:-1]:
            section = section[step]
        section[place[-1]] = odd
        google = stack.pop("gcp", None)
        settings = {f"gcp:{key}": value for key, value in google.items()} if isinstance(google, dict) else {}
        assert all(f.where and f.given and f.allowed and f.todo for f in errors(settings, stack)), place
