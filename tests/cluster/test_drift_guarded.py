"""Secrets that others can read, and ways in that the stack does not give, are drift."""

import pytest

from cluster.observe.drift import differences, unseen
from cluster.observe.observation import ClusterObservation
from tests.cluster.observations import facts, healthy
from tests.cluster.test_drift import only, stack


@pytest.fixture
def seen() -> ClusterObservation:
    seen = healthy()
    for one in seen.machines:
        key = "cluster" if "controller" in one.roles else ""
        facts(seen, one.name[3:])["guarded"] = {
            "modes": {}, "root": {"admin": "a", "cluster": "c"}, "cluster_key": key,
        }  # fmt: skip
        facts(seen, one.name[3:])["munge"]["delivered"] = facts(seen, one.name[3:])["munge"]["key"]
    return seen


def test_as_the_stack_has_it(seen: ClusterObservation):
    assert differences(stack(seen, root_keys=["admin"]), seen) == []


def test_a_key_that_the_stack_does_not_give(seen: ClusterObservation):
    facts(seen, "cpu-1")["guarded"]["root"]["other"] = "eve@laptop"
    found = only(stack(seen, root_keys=["admin"]), seen)
    assert (found.id, found.where, found.there, found.mends) == ("root-key", ("hc-cpu-1",), "eve@laptop", "hand")


def test_no_verdict_on_keys_without_the_controllers(seen: ClusterObservation):
    facts(seen, "controller")["guarded"] = {"error": "no answer within 12 s"}
    assert differences(stack(seen, root_keys=["admin"]), seen) == []
    assert unseen(seen) == ["hc-controller: guarded: no answer within 12 s"]


def test_a_secret_that_others_can_read(seen: ClusterObservation):
    row = {"wanted": "0400 munge", "there": "0644 munge"}
    facts(seen, "cpu-1")["guarded"]["modes"]["/etc/munge/munge.key"] = row
    found = only(stack(seen, root_keys=["admin"]), seen)
    assert (found.id, found.stack, found.there, found.mends) == ("mode-changed", *row.values(), "mend")


def test_another_munge_key(seen: ClusterObservation):
    facts(seen, "cpu-1")["munge"]["key"] = "foreign"
    assert only(stack(seen, root_keys=["admin"]), seen).id == "munge-key-changed"
