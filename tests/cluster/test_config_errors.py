"""Bad input is refused in words: where it stands, what was given, what is allowed with an example, what to do."""

import pytest

from cluster.findings import ConfigError
from cluster.load.parse import parse
from tests.cluster.bad import (
    accounting,
    google_capacity,
    google_customize,
    google_local,
    google_machines,
    google_places,
    google_rxdm,
    google_storage,
    machines,
    partitions,
    people,
    places,
    scripts,
    settings,
    shape,
)
from tests.cluster.stacks import cloud_findings, findings, local

BAD = {
    name: case
    for area in (shape, machines, places, partitions, people, accounting, settings, scripts)
    for name, case in area.CASES.items()
}

CLOUD = {
    name: case
    for area in (
        google_customize,
        google_places,
        google_storage,
        google_capacity,
        google_machines,
        google_local,
        google_rxdm,
    )
    for name, case in area.CASES.items()
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words(case):
    changes, where, given, allowed, todo = BAD[case]
    found = findings(**changes)
    assert where in found, f"told only of {sorted(found)}"
    finding = found[where]
    assert given in finding.given
    assert allowed in finding.allowed
    assert todo in finding.todo


@pytest.mark.parametrize("case", BAD)
def test_one_mistake_is_told_once(case):
    """A second finding would send its reader to look for a second mistake; a circle has two ends to break it at."""
    circles = ("accounts in a circle", "QOS that preempt each other")
    assert len(findings(**BAD[case][0])) == (2 if case in circles else 1)


@pytest.mark.parametrize("case", CLOUD)
def test_bad_input_on_google_cloud_is_refused_in_words_and_told_once(case):
    changes, where, given, allowed, todo = CLOUD[case]
    found = cloud_findings(changes)
    assert [*found] == [where]
    finding = found[where]
    assert (given in finding.given, allowed in finding.allowed, todo in finding.todo) == (True, True, True), str(
        finding
    )


@pytest.mark.parametrize(
    "stack",
    [{}, {"hpc:cluster": None}, {"hpc:cluster": "dev"}, {"hpc:cluster": "{"}, {"hpc:cluster": ["dev"]}],
)
def test_a_stack_without_a_cluster_is_told_where_to_describe_it(stack):
    with pytest.raises(ConfigError, match=r"Pulumi\.dev\.yaml is an example"):
        parse(stack)


def test_a_setting_of_ours_that_is_never_read_is_refused_and_those_of_providers_are_not():
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:clutser": local(), "gcp:project": "p"})
    assert [one.where for one in caught.value.findings] == ["hpc:clutser", "hpc:cluster"]
    assert caught.value.findings[0].todo == "write hpc:cluster"
    assert parse({"hpc:cluster": local(), "gcp:project": "p"}).name == "dev"


def test_the_text_has_every_finding_in_four_lines():
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(nodesets={"cpu": {"count": 0}}, name="Dev")})
    assert str(caught.value) == (
        "2 errors in the stack configuration:\n"
        "\n"
        "hpc:cluster.name\n"
        "  given:   Dev\n"
        "  allowed: 1 to 20 of a-z, 0-9 and -, a letter first and no - last, e.g. dev\n"
        "  to do:   choose a name that can stand in a host name\n"
        "\n"
        "hpc:cluster.nodesets.cpu.count\n"
        "  given:   0\n"
        "  allowed: a whole number of at least 1, e.g. 2\n"
        "  to do:   raise it, or remove the nodeset and what names it"
    )


def test_each_of_many_errors_is_explained():
    users = [{"name": f"u{n}", "uid": n} for n in range(28)]
    with pytest.raises(ConfigError, match="28 errors") as caught:
        parse({"hpc:cluster": local(users=users)})
    assert str(caught.value).count("  to do:   ") == 28


def test_what_errors_keep_from_being_checked_is_said():
    """A user without a number, and a login machine of which only a part can be read."""
    users = [{"name": "alice"}]
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(users=users, login={"on": "controller", "count": 1, "disk": 3})})
    assert [one.where for one in caught.value.findings] == ["hpc:cluster.login.disk", "hpc:cluster.users[0].uid"]
    assert str(caught.value).endswith(
        "Not compared with the rest of the file until they are right: hpc:cluster.login, hpc:cluster.users[0]"
    )
