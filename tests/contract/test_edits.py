"""An edit of a stack file changes only the resources that it is about, and never running machines of others."""

import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pulumi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.local.resources import REPLACES
from components.slurm import payload
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
    old, new = ({resource.urn: resource for resource in each.resources} for each in (before, after))
    return Difference(
        added={new[urn].name for urn in new.keys() - old.keys()},
        removed={old[urn].name for urn in old.keys() - new.keys()},
        changed={new[urn].name for urn in old.keys() & new.keys() if old[urn].inputs != new[urn].inputs},
    )


def program(cluster: Cluster, was: Recording | None = None) -> Recording:
    return _program(json.dumps(cluster), json.dumps(was.outputs) if was else "null")


@cache
def _program(cluster: str, was: str) -> Recording:
    """Once for all tests: none of them changes what it looks at."""
    return deploy({"hpc:cluster": json.loads(cluster)}, was=json.loads(was))


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
    def test_one_more_node_is_one_machine(self):
        assert effect(lambda c: c["nodesets"]["cpu"].update(count=3)) == Difference(
            added={"lab-cpu-2", "lab-cpu-2-leave"}, removed=set(), changed={"lab-network", *REACHES_ALL}
        )

    def test_one_node_less_removes_the_last(self):
        assert effect(lambda c: c["nodesets"]["cpu"].update(count=1)) == Difference(
            added=set(), removed={"lab-cpu-1", "lab-cpu-1-leave"}, changed={"lab-network", *REACHES_ALL}
        )

    def test_another_machine_type_changes_that_nodeset_only(self):
        """Where it makes a difference to the machine: stand-in GPUs are device files that it starts with."""
        found = effect(lambda c: c["nodesets"]["gpu"].update(machine_type="local-2c"))
        assert found == Difference(added=set(), removed=set(), changed={"lab-gpu-0", *REACHES_ALL})

    @settings(max_examples=5)
    @given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
    def test_changed_counts_and_new_nodesets_change_no_other_machine(self, counts, data):
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
    def test_a_limit_of_a_partition_changes_slurm_only(self):
        found = effect(lambda c: c["partitions"]["cpu"].update(max_time="01:00:00"))
        assert found == Difference(set(), set(), changed=REACHES_ALL)

    def test_a_new_user_changes_no_machine(self):
        found = effect(lambda c: c["users"].append({"name": "bob", "uid": 2002}))
        assert (found.added, found.removed) == (set(), set())
        told = {"lab-controller-configure", "lab-login-0-configure", "lab-accounting", "lab-nodes"}
        assert told <= found.changed <= told | {"lab-ready"}

    def test_waiting_longer_for_jobs_changes_no_node(self):
        found = effect(lambda c: c.update(slurm={"drain_seconds": 60}))
        assert found == Difference(set(), set(), changed={"lab-controller-configure"})

    def test_accounts_change_the_database_only(self):
        found = effect(lambda c: c.update(accounting={"qos": [{"name": "urgent", "priority": 9}]}))
        assert found == Difference(set(), set(), changed={"lab-accounting"})

    def test_one_more_login_machine_is_set_up_like_the_others(self):
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
def test_remaining_machines_are_never_recreated(edit):
    before, after = program(LAB), program(edited(edit))
    staying = {resource.name for resource in before.all(MACHINE)} & {resource.name for resource in after.all(MACHINE)}
    assert "lab-cpu-0" in staying
    for name in staying:
        old, new = before.one(name).inputs, after.one(name).inputs
        assert {key: old.get(key) for key in REPLACES} == {key: new.get(key) for key in REPLACES}


TEXT = "#!/bin/sh\ntrue\n"
SCRIPTS = {"scripts": [{"name": "check", "text": TEXT}]}
RXDM = {"rxdm": {"partitions": ["gpu"], "file": "scripts/local/rxdm.sh"}}


def lab(**slurm: Any) -> dict[str, Any]:
    return edited(lambda c: c.update(slurm=slurm)) if slurm else LAB


@pytest.fixture(scope="module")
def recording():
    return program(lab(**SCRIPTS, **RXDM))


class TestStagingOrder:
    def test_setup_then_scripts_then_the_patch_then_slurm_conf(self, recording):
        names = ["lab-controller-setup", "lab-prologs", "lab-rxdm", "lab-controller-configure", "lab-ready"]
        steps = [recording.one(name) for name in names]
        for earlier, later in itertools.pairwise(steps):
            assert recording.waits_for(later, earlier)
        assert "Prolog=" in steps[3].inputs["stdin"]

    def test_without_scripts_there_is_no_step(self):
        names = {resource.name for resource in program(LAB).resources}
        assert not {"lab-prologs", "lab-rxdm"} & names

    def test_without_rxdm_there_is_no_patch(self):
        names = {resource.name for resource in program(lab(**SCRIPTS)).resources}
        assert {"lab-prologs", "lab-rxdm"} & names == {"lab-prologs"}


class TestStagingEdits:
    def test_the_first_script(self):
        found = between(program(LAB), program(lab(**SCRIPTS)))
        assert found == Difference(added={"lab-prologs"}, removed=set(), changed=REACHES_ALL)

    def test_another_script_is_staged_and_tested(self):
        other = {"scripts": [{"name": "check", "text": TEXT + "true\n"}]}
        found = between(program(lab(**SCRIPTS)), program(lab(**other)))
        assert found == Difference(added=set(), removed=set(), changed={"lab-prologs", "lab-ready"})

    def test_one_more_node_stages_nothing(self):
        before = lab(**SCRIPTS, **RXDM)
        after = edited(lambda c: c["nodesets"]["cpu"].update(count=3), before)
        found = between(program(before), program(after))
        assert "lab-cpu-2" in found.added
        assert not {"lab-prologs", "lab-rxdm"} & found.changed


class TestUndoing:
    @pytest.mark.parametrize(("name", "undo"), [("lab-prologs", "no-prologs"), ("lab-rxdm", "no-rxdm")])
    def test_staging_is_undone_only_on_machines_that_stay(self, recording, name, undo):
        one = recording.one(name)
        assert one.inputs["delete"] == f"test ! -e {payload.SETUP} || python3 {payload.SETUP} {undo}"
        assert one.request.deletedWith == recording.one("lab-controller").urn


class TestStagingInput:
    def test_input_of_the_controllers_step(self, recording):
        told = json.loads(recording.one("lab-prologs").inputs["stdin"])
        assert told["scripts"] == {"check": {"lines": ["#!/bin/sh", "true", ""]}}
        assert told["rxdm"]["lines"][0] == "#!/bin/bash"
        assert [mount["target"] for mount in told["mounts"]] == ["/home", "/opt/apps", "/var/mail"]
        assert told["controller_nodeset"] == ""

    def test_a_nodeset_on_the_controller_is_named(self):
        found = program(edited(lambda c: c["nodesets"].update(shared={"on": "controller"}), lab(**SCRIPTS)))
        assert json.loads(found.one("lab-prologs").inputs["stdin"])["controller_nodeset"] == "shared"

    def test_input_of_the_patch(self, recording):
        told = json.loads(recording.one("lab-rxdm").inputs["stdin"])
        assert set(told["known"].values()) == {"ok", "patch", "refuse"}
        assert set(told["links"].values()) == {"../scripts/rxdm"}

    def test_a_missing_file_stops_before_any_resource(self):
        with pytest.raises(pulumi.RunError, match=r"slurm\.scripts\[0\]\.file\n  given: .*No such file"):
            deploy({"hpc:cluster": lab(scripts=[{"name": "check", "file": "scripts/gone.sh"}])})


def test_packages_are_an_input_of_the_image_only_if_there_are_some():
    """With an input more, every stack that is up would show a change."""
    plain = program(LAB).one("lab-image").inputs
    more = program(edited(lambda c: c.update(image={"packages": ["podman", "crun"]}))).one("lab-image").inputs
    assert "packages" not in plain
    assert more["packages"] == ["podman", "crun"]
    assert more["digest"] != plain["digest"]


IMAGE = "nvcr.io/nvidia/pytorch:24.04-py3"


@pytest.fixture(scope="module")
def warm():
    return program(lab(warm_up={"containers": [IMAGE]}))


def test_a_warm_up_changes_nothing_else(warm):
    assert between(program(LAB), warm) == Difference(added={"lab-warm-up"}, removed=set(), changed=set())


def test_the_warm_up_is_the_last_step(warm):
    step = warm.one("lab-warm-up")
    assert warm.waits_for(step, warm.one("lab-ready"))
    later = {resource.name for resource in warm.resources if resource is not step and warm.waits_for(resource, step)}
    assert later == {"lab-deletion-protection"}
    asked = json.loads(step.inputs["stdin"])
    assert asked["images"] == [IMAGE]
    assert {part["name"] for part in asked["partitions"]} == {"cpu", "gpu"}
    assert not any(part["rxdm"] for part in asked["partitions"])


def test_other_images_change_nothing_else(warm):
    found = between(warm, program(lab(warm_up={"containers": ["alpine:3.20"]})))
    assert found == Difference(added=set(), removed=set(), changed={"lab-warm-up"})


def test_a_new_node_is_warmed_up(warm):
    after = edited(lambda c: c["nodesets"]["cpu"].update(count=3), lab(warm_up={"containers": [IMAGE]}))
    found = between(warm, program(after))
    assert "lab-warm-up" in found.changed
    assert "lab-cpu-2" in json.loads(program(after).one("lab-warm-up").inputs["stdin"])["after"]["boots"]


def test_nodes_of_other_partitions_do_not_matter():
    before = lab(warm_up={"containers": [IMAGE], "partitions": ["gpu"]})
    after = edited(lambda c: c["nodesets"]["cpu"].update(count=3), before)
    assert "lab-warm-up" not in between(program(before), program(after)).changed


def test_another_prolog_is_warmed_up_where_it_runs():
    def rxdm(text: str) -> dict[str, Any]:
        scripts = [{"name": "check", "text": text}]
        section = {"partitions": ["gpu"], "file": "scripts/local/rxdm.sh"}
        return lab(warm_up={}, rxdm=section, scripts=scripts)

    found = between(program(rxdm("#!/bin/sh\n")), program(rxdm("#!/bin/sh\ntrue\n")))
    assert "lab-warm-up" in found.changed
