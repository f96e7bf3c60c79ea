"""Elastic instances are deleted with their nodeset: exactly those that the reconcile loop created."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interface import ReconcileCloud
from reconcile.compute_engine import ComputeEngine

from cluster.platforms.gcp.permissions import FLEX, RECONCILE
from components.gcp.bake_design import GoogleCloudError
from components.gcp.nodes import ElasticInstancesProvider
from components.local.compute_engine.http import Call, RefusalError
from engine import events
from tests.gcp.baking import LONG_LIMITS, SHORT_LIMITS, delete_and_kill, run_engine, write_program
from tests.lab.google.compute import FakeElastic, Fault, Machine

TEMPLATE = "projects/p/global/instanceTemplates/gpu-spot"
FOLDER = "projects/p/zones/us-central1-a/instances"

LABELS = {"hpc-cluster": "a3", "hpc-nodeset": "gpu", "hpc-made-by": "reconcile"}
OTHER_LABELS = [
    {},
    *({**LABELS, key: wrong} for key, value in LABELS.items() for wrong in (f"{value}3", "other")),
    *({key: LABELS[key] for key in LABELS if key != missing} for missing in LABELS),
]
INSTANCES = st.dictionaries(
    st.sampled_from([f"a3-gpu-{index}" for index in range(8)]),
    st.tuples(
        st.one_of(st.just(LABELS), st.sampled_from(OTHER_LABELS)),
        st.sampled_from("PROVISIONING STAGING RUNNING STOPPING TERMINATED SUSPENDED REPAIRING".split()),
    ),
)
"""Instances by name: labels, and status."""


@pytest.fixture
def fake() -> Iterator[FakeElastic]:
    queued = {"scheduling": {"provisioningModel": "FLEX_START"}, "labels": LABELS}
    with FakeElastic({"gpu-spot": {"machineType": "n1-standard-1"}, "gpu-flex": queued}) as server:
        yield server


@pytest.fixture
def loop(fake: FakeElastic, tmp_path: Path) -> ComputeEngine:
    """The client with which the controller creates instances."""
    (tmp_path / "token").write_text("secret\n")
    return ComputeEngine(
        ReconcileCloud(
            project="p",
            zone="us-central1-a",
            region="us-central1",
            cluster="a3",
            endpoint=fake.endpoint,
            token_file=str(tmp_path / "token"),
        )
    )


def props(fake: FakeElastic, **changes: Any) -> dict[str, Any]:
    """Return the resource's inputs, as the engine passes them."""
    place = {"project": "p", "zone": "us-central1-a", "cluster": "a3", "nodeset": "gpu"}
    return {**place, "endpoint": fake.endpoint, "pace": LONG_LIMITS, **changes}


def delete(fake: FakeElastic, **changes: Any) -> None:
    ElasticInstancesProvider().delete("", props(fake, **changes))


def create(loop: ComputeEngine, *names: str, nodeset: str = "gpu") -> None:
    """Create instances one by one and several at once, as the loop does."""
    loop.insert([names[0]], template=TEMPLATE, nodeset=nodeset, request=f"r-{names[0]}")
    if names[1:]:
        loop.insert(list(names[1:]), template=TEMPLATE, nodeset=nodeset, request=f"r-{names[1]}")


def flex(fake: FakeElastic, loop: ComputeEngine, *names: str, nodeset: str = "gpu") -> None:
    """Request instances by flex start, as the loop does."""
    template = "projects/p/global/instanceTemplates/gpu-flex"
    request = names[0].removeprefix("a3-").replace("-", "")
    operation = loop.insert_group(
        list(names), template=template, nodeset=nodeset, way="flex", policy="", request=request
    )
    while not loop.operation(operation.name).done:
        pass
    (group,) = (group for group in loop.groups()[0] if group.nodes == names)
    loop.insert_resize(group, 86400, request=f"r-{names[0]}")
    loop.resize(group.name)


def instance_names(fake: FakeElastic) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in fake.world.machines)


class TestSweep:
    def test_all_of_the_nodeset_are_deleted_whatever_their_status(self, fake: FakeElastic, loop: ComputeEngine):
        create(loop, *(f"a3-gpu-{index}" for index in range(12)))
        fake.end("a3-gpu-0")
        delete(fake)
        assert instance_names(fake) == []
        asked = [number for number, call in enumerate(fake.calls) if call.method == "DELETE"]
        polled = [number for number, call in enumerate(fake.calls) if "/operations/" in call.path]
        assert len(asked) == 12
        assert all(number > asked[-1] for number in polled), "all are asked for before the first is waited for"

    def test_queued_requests_are_deleted_and_groups_of_others_stay(self, fake: FakeElastic, loop: ComputeEngine):
        flex(fake, loop, "a3-gpu-0", "a3-gpu-1")
        fake.queue_seconds = 1e9
        flex(fake, loop, "a3-gpu-2", "a3-gpu-3")
        flex(fake, loop, "a3-cpu-0", nodeset="cpu")
        create(loop, "a3-gpu-4")
        delete(fake)
        assert instance_names(fake) == []
        assert [path.rpartition("/")[2] for path in fake.groups] == ["a3-cpu-flex-cpu0"]

    def test_an_instance_that_changed_its_labels_stays(self, fake: FakeElastic, loop: ComputeEngine):
        create(loop, "a3-gpu-0")

        def taken(_number: int, call: Call) -> None:
            if call.method == "GET" and call.path.endswith("/instances"):
                fake.world.machines[f"{FOLDER}/a3-gpu-0"].resource["labels"] = {"hpc-cluster": "a3"}

        fake.after = taken
        delete(fake)
        assert instance_names(fake) == ["a3-gpu-0"]

    def test_instances_created_meanwhile_are_deleted(self, fake: FakeElastic, loop: ComputeEngine):
        create(loop, "a3-gpu-0")
        late = dict(fake.world.machines[f"{FOLDER}/a3-gpu-0"].resource, name="a3-gpu-1")

        def comes(number: int, call: Call) -> None:
            if call.method == "DELETE" and "late" not in fake.guest:
                fake.guest["late"] = str(number)
                fake.world.machines[f"{FOLDER}/a3-gpu-1"] = Machine(late, [None])

        fake.after = comes
        delete(fake)
        assert instance_names(fake) == []

    def test_deletions_by_the_loop_are_waited_for(self, fake: FakeElastic, loop: ComputeEngine):
        create(loop, "a3-gpu-0", "a3-gpu-1")
        fake.requests_each = 4
        loop.delete("a3-gpu-0", request="d")
        delete(fake)
        assert instance_names(fake) == []

    @settings(max_examples=30, deadline=None)
    @given(instances=INSTANCES, broken=st.sets(st.integers(1, 12)))
    def test_exactly_the_instances_with_all_labels_are_deleted(
        self, instances: dict[str, tuple[dict[str, str], str]], broken: set[int]
    ):
        def unwell(number: int, _call: Call) -> None:
            if number in broken:
                raise RefusalError(503, "backendError", "Backend Error")

        with FakeElastic({}) as fake:
            for name, (labels, status) in instances.items():
                found = {"name": name, "labels": labels, "status": status}
                fake.world.machines[f"{FOLDER}/{name}"] = Machine(found, [None])
            fake.before = unwell
            delete(fake)
            assert instance_names(fake) == sorted(name for name, (labels, _) in instances.items() if labels != LABELS)

    def test_without_instances_nothing_is_changed(self, fake: FakeElastic):
        delete(fake)
        assert {call.method for call in fake.calls} == {"GET"}

    def test_a_protected_instance_is_an_error_with_the_command(self, fake: FakeElastic, loop: ComputeEngine):
        create(loop, "a3-gpu-0")

        def refuse(_number: int, call: Call) -> None:
            if call.method == "DELETE":
                raise RefusalError(412, "conditionNotMet", "The instance resource has deletion protection enabled.")

        fake.before = refuse
        with pytest.raises(
            GoogleCloudError, match=r"(?s)could not delete a3-gpu-0.*--no-deletion-protection.*us-central1-a"
        ):
            delete(fake)

    def test_instances_that_are_created_again_are_an_error(self, fake: FakeElastic, loop: ComputeEngine, pauses: None):
        create(loop, "a3-gpu-0")
        fake.faults = {"instances.delete": Fault(errors=[])}
        machine = fake.world.machines[f"{FOLDER}/a3-gpu-0"]

        def again(_number: int, _call: Call) -> None:
            machine.resource["status"] = "RUNNING"
            fake.world.machines[f"{FOLDER}/a3-gpu-0"] = machine

        fake.after = again
        with pytest.raises(
            GoogleCloudError, match=r"(?s)still has instances.*a3-gpu-0.*stop the service hpc-reconcile"
        ):
            delete(fake, pace=SHORT_LIMITS)

    @pytest.mark.parametrize("number", [1, 3, 5, 8])
    def test_a_killed_run_is_continued(self, fake: FakeElastic, loop: ComputeEngine, number: int):
        create(loop, "a3-gpu-0", "a3-gpu-1")
        assert delete_and_kill(fake, ElasticInstancesProvider, props(fake), number)
        delete(fake)
        assert instance_names(fake) == []


class TestResource:
    """What an engine does with it."""

    PROGRAM = """
import json, pathlib, pulumi
from pulumi_command import local
from components.gcp.nodes import ElasticInstances
given = json.loads(pathlib.Path("inputs.json").read_text())
made = []
for nodeset in given["nodesets"]:
    below = local.Command(f"{nodeset}-template", delete=f"echo {nodeset}-template >> order")
    inputs = {**given["props"], "nodeset": nodeset}
    made.append(ElasticInstances(f"{nodeset}-elastic", **inputs, opts=pulumi.ResourceOptions(depends_on=[below])))
local.Command("controller", delete="echo controller >> order", opts=pulumi.ResourceOptions(depends_on=made))
"""

    @pytest.fixture
    def run(self, fake: FakeElastic, tmp_path: Path) -> Callable[..., list[events.Event]]:
        write_program(tmp_path, self.PROGRAM.replace(">> order", f">> {tmp_path}/order"))

        def once(kind: str, *nodesets: str, ok: bool = True) -> list[events.Event]:
            return run_engine(tmp_path, kind, {"props": props(fake), "nodesets": list(nodesets)}, ok=ok)

        return once

    def test_only_the_deletion_makes_requests(self, fake: FakeElastic, run: Callable[..., list[events.Event]]):
        run("preview", "gpu")
        run("up", "gpu")
        run("refresh", "gpu")
        run("up", "gpu")
        assert fake.calls == []

    def test_destroy_deletes_instances_after_the_controller_and_before_templates(
        self, fake: FakeElastic, loop: ComputeEngine, run: Callable[..., list[events.Event]], tmp_path: Path
    ):
        run("up", "gpu", "cpu")
        create(loop, "a3-gpu-0", "a3-gpu-1")
        create(loop, "a3-cpu-0", nodeset="cpu")
        fake.calls.clear()
        seen = {}

        def order(_number: int, call: Call) -> None:
            if call.method == "DELETE":
                seen.setdefault(call.path.rpartition("/")[2], (tmp_path / "order").read_text())

        fake.after = order
        run("destroy")
        assert instance_names(fake) == []
        assert all("controller" in before for before in seen.values())
        assert all(f"{name.split('-')[1]}-template" not in before for name, before in seen.items())
        assert len(seen) == 3

    def test_a_removed_nodeset_deletes_its_instances_only(
        self, fake: FakeElastic, loop: ComputeEngine, run: Callable[..., list[events.Event]]
    ):
        run("up", "gpu", "cpu")
        create(loop, "a3-gpu-0")
        create(loop, "a3-cpu-0", nodeset="cpu")
        run("up", "gpu")
        assert instance_names(fake) == ["a3-gpu-0"]

    def test_a_failure_keeps_the_templates(
        self, fake: FakeElastic, loop: ComputeEngine, run: Callable[..., list[events.Event]], tmp_path: Path
    ):
        run("up", "gpu")
        create(loop, "a3-gpu-0")
        fake.faults = {"instances.delete": Fault(errors=[{"code": "INTERNAL_ERROR", "message": "Code: 1"}])}
        (failed,) = [event for event in run("destroy", ok=False) if isinstance(event, events.StepFailed)]
        assert re.match(r"(?s)could not delete a3-gpu-0.*INTERNAL_ERROR: Code: 1", failed.message)
        assert "Traceback" not in failed.message
        assert "gpu-template" not in (tmp_path / "order").read_text()
        fake.faults = {}
        run("destroy")
        assert instance_names(fake) == []


METHODS = {
    "GET aggregated/instances": "instances.aggregatedList",
    "GET instances/NAME": "instances.get",
    "GET instances/NAME/getGuestAttributes": "instances.getGuestAttributes",
    "GET instances/NAME/serialPort": "instances.getSerialPortOutput",
    "POST instances": "instances.insert",
    "POST instances/bulkInsert": "instances.bulkInsert",
    "POST instances/NAME/reset": "instances.reset",
    "POST instances/NAME/performMaintenance": "instances.performMaintenance",
    "POST instances/NAME/reportHostAsFaulty": "instances.reportHostAsFaulty",
    "DELETE instances/NAME": "instances.delete",
    "GET instanceGroupManagers": "instanceGroupManagers.list",
    "POST instanceGroupManagers": "instanceGroupManagers.insert",
    "PATCH instanceGroupManagers/NAME": "instanceGroupManagers.patch",
    "DELETE instanceGroupManagers/NAME": "instanceGroupManagers.delete",
    "POST instanceGroupManagers/NAME/deleteInstances": "instanceGroupManagers.deleteInstances",
    "GET instanceGroupManagers/NAME/resizeRequests": "instanceGroupManagerResizeRequests.list",
    "POST instanceGroupManagers/NAME/resizeRequests": "instanceGroupManagerResizeRequests.insert",
    "GET operations": "zoneOperations.list",
    "GET operations/NAME": "zoneOperations.get",
}
"""Methods by how they are called (compute.v1 discovery document, revision 20261106)."""


def test_the_controllers_role_has_exactly_the_permissions_of_its_calls(fake: FakeElastic, loop: ComputeEngine):
    """Every method of the loop's client is called; a call that is in no row of the table would be refused by Google."""
    fake.capacity["gpu-spot"] = 1
    create(loop, "a3-gpu-0")
    failed = loop.insert(["a3-gpu-1", "a3-gpu-2"], template=TEMPLATE, nodeset="gpu", request="many")
    loop.instances()
    loop.get("a3-gpu-0")
    loop.operation(failed.name)
    loop.guest_attribute("a3-gpu-0")
    loop.serial_log("a3-gpu-0")
    loop.reset("a3-gpu-0", request="reset")
    fake.maintain("a3-gpu-0")
    loop.perform_maintenance("a3-gpu-0", request="maintain")
    loop.report_faulty("a3-gpu-0", "bad", request="report")
    loop.delete("a3-gpu-0", request="delete")
    own = {name for name, value in vars(ComputeEngine).items() if callable(value) and not name.startswith("_")}
    flex(fake, loop, "a3-gpu-3")
    (group,), _ = loop.groups()
    loop.set_template(group, "projects/p/global/instanceTemplates/gpu-flex", request="template")
    loop.delete("a3-gpu-3", group=group.name, request="leave")
    loop.delete_group(group.name, request="end")
    assert own == {
        *("groups", "resize", "insert_group", "insert_resize", "set_template", "delete_group"),
        *("instances", "get", "operation", "guest_attribute", "serial_log"),
        *("insert", "delete", "reset", "report_faulty", "perform_maintenance"),
        "delete_command",  # for a person: it calls nothing
    }, "a new method is called above"
    one = r"(instances|instanceGroupManagers|operations)/(?!bulkInsert)[^/]+"
    called = {METHODS[re.sub(one, r"\1/NAME", f"{call.method} {short(call.path)}")] for call in fake.calls}
    assert called == {*RECONCILE, *FLEX}


def short(path: str) -> str:
    return re.sub(r"^/compute/v1/projects/[^/]+/(zones/[^/]+/)?", "", path)
