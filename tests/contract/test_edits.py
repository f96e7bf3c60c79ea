"""An edit of the stack changes what it is about and nothing else; above all, it leaves running machines alone."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.local.resources import REPLACES
from tests.harness import Recording, deploy

Cluster = dict[str, Any]
MACHINE = "pulumi-python:dynamic/local:Machine"
LAB: Cluster = {
    "platform": "local",
    "name": "lab",
    "nodesets": {"cpu": {"count": 2}, "gpu": {"machine_type": "local-2c-2gpu", "count": 1}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}},
    "users": [{"name": "alice", "uid": 2001}],
}
REACHES_ALL = {"lab-controller-configure", "lab-login-0-configure", "lab-nodes", "lab-ready"}
"""New Slurm files: controller and login machine take them, nodes follow, and every partition is tried again."""


@dataclass(frozen=True)
class Difference:
    """Names of the resources that an edit makes, removes, and gives other inputs."""

    added: set[str]
    removed: set[str]
    changed: set[str]


def between(before: Recording, after: Recording) -> Difference:
    old, new = ({one.urn: one for one in each.resources} for each in (before, after))
    return Difference(
        added={new[urn].name for urn in new.keys() - old.keys()},
        removed={old[urn].name for urn in old.keys() - new.keys()},
        changed={new[urn].name for urn in old.keys() & new.keys() if old[urn].inputs != new[urn].inputs},
    )


def program(cluster: Cluster, was: Recording | None = None) -> Recording:
    return deploy({"hpc:cluster": cluster}, was=was.outputs if was else None)


def edited(edit: Callable[[Cluster], Any], cluster: Cluster = LAB) -> Cluster:
    after = copy.deepcopy(cluster)
    edit(after)
    return after


def effect(edit: Callable[[Cluster], Any]) -> Difference:
    before = program(LAB)
    return between(before, program(edited(edit), before))


def test_no_edit_is_no_change():
    assert effect(lambda _: None) == Difference(set(), set(), set())


class TestNodes:
    def test_one_more_is_one_machine(self):
        assert effect(lambda c: c["nodesets"]["cpu"].update(count=3)) == Difference(
            added={"lab-cpu-2", "lab-cpu-2-leave"}, removed=set(), changed={"lab-network", *REACHES_ALL}
        )

    def test_one_less_takes_the_last(self):
        assert effect(lambda c: c["nodesets"]["cpu"].update(count=1)) == Difference(
            added=set(), removed={"lab-cpu-1", "lab-cpu-1-leave"}, changed={"lab-network", *REACHES_ALL}
        )

    def test_another_machine_type_concerns_that_nodeset_only(self):
        """Where it makes a difference to the machine: stand-in GPUs are device files that it starts with."""
        found = effect(lambda c: c["nodesets"]["gpu"].update(machine_type="local-2c"))
        assert found == Difference(added=set(), removed=set(), changed={"lab-gpu-0", *REACHES_ALL})

    @settings(max_examples=5)
    @given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
    def test_growing_shrinking_and_appending_leave_everybody_else_alone(self, counts, data):
        names = [f"set{position}" for position in range(len(counts))]
        cluster = LAB | {
            "nodesets": {name: {"count": count} for name, count in zip(names, counts, strict=True)},
            "partitions": {"batch": {"nodesets": names, "default": True}},
        }
        chosen, count = data.draw(st.sampled_from([*names, "appended"])), data.draw(st.integers(1, 4))

        def edit(cluster: Cluster) -> None:
            cluster["nodesets"][chosen] = {"count": count}
            cluster["partitions"]["batch"]["nodesets"] = list(cluster["nodesets"])

        before = program(cluster)
        after = program(edited(edit, cluster), before)
        had = dict(zip(names, counts, strict=True)).get(chosen, 0)
        found = between(before, after)
        assert found.added == {f"lab-{chosen}-{index}{of}" for index in range(had, count) for of in ("", "-leave")}
        assert found.removed == {f"lab-{chosen}-{index}{of}" for index in range(count, had) for of in ("", "-leave")}
        assert found.changed == ({"lab-network", *REACHES_ALL} if count != had else set())
        # And back: the same edit undone is the same set of machines.
        back = between(after, before)
        assert (back.added, back.removed, back.changed) == (found.removed, found.added, found.changed)


class TestSettings:
    def test_a_limit_of_a_partition_concerns_slurm_only(self):
        found = effect(lambda c: c["partitions"]["cpu"].update(max_time="01:00:00"))
        assert found == Difference(set(), set(), changed=REACHES_ALL)

    def test_a_user_is_made_everywhere_by_those_who_follow(self):
        found = effect(lambda c: c["users"].append({"name": "bob", "uid": 2002}))
        assert (found.added, found.removed) == (set(), set())
        told = {"lab-controller-configure", "lab-login-0-configure", "lab-accounting", "lab-nodes"}
        assert told <= found.changed <= told | {"lab-ready"}

    def test_waiting_longer_for_jobs_changes_no_node(self):
        found = effect(lambda c: c.update(slurm={"drain_seconds": 60}))
        assert found == Difference(set(), set(), changed={"lab-controller-configure"})

    def test_accounts_are_the_databases_affair(self):
        found = effect(lambda c: c.update(accounting={"qos": [{"name": "urgent", "priority": 9}]}))
        assert found == Difference(set(), set(), changed={"lab-accounting"})

    def test_a_login_machine_more_is_set_up_like_the_others(self):
        found = effect(lambda c: c.update(login={"count": 2}))
        new = {"lab-login-1", *(f"lab-login-1-{phase}" for phase in ("setup", "secrets", "configure"))}
        assert (found.added, found.removed) == (new, set())
        assert found.changed <= {"lab-network", *REACHES_ALL}

    def test_protection_is_no_change_of_inputs(self):
        assert effect(lambda c: c.update(deletion_protection=True)) == Difference(set(), set(), set())


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["users"].clear(),
        lambda c: c.update(storage={"shared": ["/home", "/opt/apps", "/var/mail", "/data"]}),
        lambda c: c["partitions"].pop("gpu"),
        lambda c: c["nodesets"]["cpu"].update(features=["fast"]),
        lambda c: c.update(slurm={"timers": {"slurmd": 600}}),
        lambda c: c.update(login={"on": "controller"}),
    ],
    ids=["no-users", "another-folder", "a-partition-less", "features", "timers", "login-on-controller"],
)
def test_machines_that_stay_are_never_made_anew(edit):
    before, after = program(LAB), program(edited(edit))
    staying = {one.name for one in before.all(MACHINE)} & {one.name for one in after.all(MACHINE)}
    assert "lab-cpu-0" in staying
    for name in staying:
        old, new = before.one(name).inputs, after.one(name).inputs
        assert {key: old.get(key) for key in REPLACES} == {key: new.get(key) for key in REPLACES}
