"""A busy host is no dead cluster."""

import pytest

from cluster.observe.health.findings import findings
from cluster.observe.observation import ClusterObservation, MachineObservation
from tests.cluster.observations import facts, healthy, only, silence


def late(seen: ClusterObservation, *names: str) -> ClusterObservation:
    why = "no answer within 24 s, although SSH let us in"
    machines = [
        MachineObservation(name=one.name, roles=one.roles, reached=False, late=True, why=why)
        if one.name[3:] in names
        else one
        for one in seen.machines
    ]
    return ClusterObservation(stack=seen.stack, machines=tuple(machines))


@pytest.mark.parametrize("name", ["controller", "login-0", "cpu-1"])
def test_a_machine_that_is_there_and_late(name: str):
    found = only(late(healthy(), name))
    assert (found.id, found.where, found.todo) == ("machine-late", (f"hc-{name}",), "./hpc status hc --timeout 60")


def test_all_are_late():
    found = only(late(healthy(), "controller", "login-0", "cpu-0", "cpu-1"))
    assert found.id == "host-busy"
    assert "this host is busy" in found.what


def test_no_silence_of_a_daemon_counts_on_a_machine_that_is_busy_itself():
    seen = healthy()
    silence(seen)
    facts(seen, "cpu-0")["munge"].update(works=False, why="`unmunge` did not end within 6 s")
    assert {one.id for one in findings(seen)} == {"slurmctld-down", "munge-down"}
    for name in ("controller", "cpu-0"):
        facts(seen, name)["boot"] = {"error": "no answer within 12 s"}
    found = only(seen)
    assert (found.id, found.where) == ("machine-late", ("hc-controller", "hc-cpu-0"))


def test_no_verdict_on_keys_without_the_controllers():
    seen = healthy(5)
    facts(seen, "cpu-1")["munge"]["key"] = "0123456789ab"
    assert only(seen).id == "munge-key"
    assert only(late(seen, "controller")).id == "machine-late"
