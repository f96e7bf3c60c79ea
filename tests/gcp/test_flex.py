"""Nodes of flex start: instances are queued, waited for, and never orphaned, whenever a run ends."""

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from components.gcp.bake_design import GoogleCloudError
from components.gcp.instances import FlexCompute, start
from components.gcp.nodes import FlexNodeProvider, FlexQueueProvider, FlexRequestProvider
from components.local.compute_engine.errors import QUOTA
from components.local.compute_engine.http import Call
from engine import events
from tests.gcp.baking import create_and_kill, run_engine, write_program
from tests.lab.google.compute import FakeFlex, Fault, Machine

NODE = "projects/p/zones/us-central1-a/instances/a3-gpu-0"
TEMPLATE = "https://www.googleapis.com/compute/v1/projects/p/global/instanceTemplates/t-1"
LIMITS = {"poll": 0.001, "operation": 60, "retry_seconds": 30}


def props(fake: FakeFlex, **changes: Any) -> dict[str, Any]:
    """Return a node's inputs, as the engine passes them."""
    return {
        "project": "p",
        "zone": "us-central1-a",
        "name": "a3-gpu-0",
        "cluster": "a3",
        "template": TEMPLATE,
        "labels": {"hpc-cluster": "a3", "hpc-part": "node"},
        "metadata": {"hpc-boot": "{}", "startup-script": "#!/bin/sh\n"},
        "endpoint": fake.endpoint,
        "pace": LIMITS,
        **changes,
    }


def start_node(fake: FakeFlex, **changes: Any) -> list[str]:
    """Start the node, and return the reports."""
    reports: list[str] = []
    start(FlexCompute(props(fake, **changes)), reports.append)
    return reports


def start_and_kill(fake: FakeFlex, number: int) -> bool:
    """Start the node in another process, and kill it at the request of that number. Return whether it was killed."""
    return create_and_kill(fake, FlexNodeProvider, props(fake), number)


def delete_request(fake: FakeFlex) -> None:
    """Delete the request, as `destroy` does if the node is not in the state."""
    FlexRequestProvider().delete("", props(fake))


def statuses(fake: FakeFlex) -> dict[str, str]:
    """Return the status of each instance, by its path."""
    return {path: machine.resource["status"] for path, machine in fake.world.machines.items()}


def insert_calls(fake: FakeFlex) -> list[Call]:
    """Return the calls that ask for an instance."""
    return [call for call in fake.calls if call.method == "POST" and call.path.endswith("/instances")]


REQUESTS = 8
"""Number of requests until a node runs: a run can end at each of them. A test checks it."""
OTHER = TEMPLATE.replace("t-1", "t-2")


@pytest.fixture(params=[False, True], ids=["operation ends with the start", "operation ends at once"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeFlex]:
    """Google does not document when the operation of a queued machine ends, so both ends are tested."""
    with FakeFlex(early=request.param) as server:
        yield server


class TestWaiting:
    def test_the_request_is_queued_and_the_wait_is_reported(self, fake: FakeFlex):
        reports = start_node(fake)
        assert statuses(fake) == {NODE: "RUNNING"}
        (call,) = insert_calls(fake)
        assert call.body["params"] == {"requestValidForDuration": {"seconds": "7200"}}
        assert call.query["sourceInstanceTemplate"] == TEMPLATE
        assert call.query["requestId"]
        assert reports == [
            "a3-gpu-0: waiting for capacity (flex start), for up to 120 minutes",
            "a3-gpu-0: there is capacity, and it starts",
        ]

    def test_no_capacity_is_an_error_with_what_to_do(self, fake: FakeFlex):
        fake.capacity_after = 50
        with pytest.raises(GoogleCloudError, match=r"(?s)found no(ne| capacity).*run again.*another zone"):
            start_node(fake)
        assert statuses(fake) == {}
        fake.capacity_after = 4
        start_node(fake)
        assert statuses(fake) == {NODE: "RUNNING"}

    def test_a_template_without_flex_start_is_refused(self, fake: FakeFlex):
        with pytest.raises(GoogleCloudError, match="requestValidForDuration"):
            start_node(fake, template=TEMPLATE.replace("t-1", "plain"))

    def test_a_quota_error_names_the_quota(self, fake: FakeFlex):
        fake.faults = {"instances.insert": Fault(errors=[QUOTA])}
        with pytest.raises(GoogleCloudError, match=r"(?s)could not make a3-gpu-0.*C2_CPUS.*quota of preemptible GPUs"):
            start_node(fake)
        assert statuses(fake) == {}

    def test_a_node_that_stops_before_it_runs_is_an_error(self, fake: FakeFlex):
        def stop(_number: int, _call: Any) -> None:
            for machine in fake.world.machines.values():
                machine.resource["status"] = "TERMINATED"

        fake.after = stop
        with pytest.raises(GoogleCloudError, match=r"has stopped before it ran \(TERMINATED\)"):
            start_node(fake)

    def test_an_instance_of_others_with_the_name_is_left_alone(self, fake: FakeFlex):
        row = {"name": "a3-gpu-0", "labels": {"hpc-cluster": "a3"}, "status": "RUNNING", "metadata": {"items": []}}
        fake.world.machines[NODE] = Machine(row, [])
        with pytest.raises(GoogleCloudError, match=r"a machine called a3-gpu-0, which this stack did not ask for"):
            start_node(fake)
        # A node that is asked for in another way has come in the place of one of flex start.
        delete_request(fake)
        assert statuses(fake) == {NODE: "RUNNING"}


class TestInterrupted:
    def test_the_number_of_requests_is_known(self, fake: FakeFlex):
        start_node(fake)
        assert len(fake.calls) >= REQUESTS

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_after_a_kill_the_next_run_continues_with_the_same_instance(self, fake: FakeFlex, number: int):
        assert start_and_kill(fake, number)
        left = {path: machine.resource["id"] for path, machine in fake.world.machines.items()}
        start_node(fake)
        assert statuses(fake) == {NODE: "RUNNING"}
        assert len(insert_calls(fake)) == 1
        assert {**left, NODE: fake.world.machines[NODE].resource["id"]} == {
            path: machine.resource["id"] for path, machine in fake.world.machines.items()
        }, "the machine that was queued is the one that runs"

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_destroy_after_a_kill_leaves_nothing(self, fake: FakeFlex, number: int):
        assert start_and_kill(fake, number)
        delete_request(fake)
        assert statuses(fake) == {}

    def test_an_instance_of_another_template_is_replaced(self, fake: FakeFlex):
        assert start_and_kill(fake, 3)
        start_node(fake, template=OTHER)
        assert [call.query["sourceInstanceTemplate"] for call in insert_calls(fake)] == [TEMPLATE, OTHER]
        assert statuses(fake) == {NODE: "RUNNING"}

    def test_a_queued_instance_gets_new_metadata(self, fake: FakeFlex):
        assert start_and_kill(fake, 3)
        start_node(fake, metadata={"hpc-boot": "new"})
        metadata = {row["key"]: row["value"] for row in fake.world.machines[NODE].resource["metadata"]["items"]}
        assert metadata["hpc-boot"] == "new"
        assert "startup-script" not in metadata
        assert len(insert_calls(fake)) == 1


class TestResource:
    """What an engine does with it."""

    PROGRAM = """
import json, pathlib, pulumi
from components.gcp.nodes import flex_nodes
names, where, own = json.loads(pathlib.Path("inputs.json").read_text())
nodes = flex_nodes("gpu", names, where, own)
pulumi.export("address", nodes[0].address)
"""

    @pytest.fixture
    def run(self, fake: FakeFlex, tmp_path: Path) -> Callable[..., list[events.Event]]:
        write_program(tmp_path, self.PROGRAM)

        def once(kind: str, *, ok: bool = True, **changes: Any) -> list[events.Event]:
            where = {key: value for key, value in props(fake, **changes).items() if key not in ("name", "names")}
            own = {key: where.pop(key) for key in ("template", "labels", "metadata")}
            return run_engine(tmp_path, kind, [changes.get("names", ["a3-gpu-0"]), where, own], ok=ok)

        return once

    def test_create_update_replace_refresh_and_destroy(self, fake: FakeFlex, run: Callable[..., list[events.Event]]):
        run("preview")
        assert fake.calls == []
        run("up")
        first = fake.world.machines[NODE].resource["id"]
        fake.calls.clear()
        run("up")
        assert fake.calls == []
        # Its metadata changes while it runs.
        run("up", metadata={"hpc-boot": "new"}, labels={"hpc-cluster": "a3", "hpc-part": "other"})
        machine = fake.world.machines[NODE].resource
        assert machine["id"] == first
        assert machine["labels"]["hpc-part"] == "other"
        # What it is makes it anew, after the old one has gone.
        fake.calls.clear()
        run("up", template=OTHER)
        changing = [call.method for call in fake.calls if call.path.endswith(("/instances", "/a3-gpu-0"))]
        assert changing.index("DELETE") < changing.index("POST")
        # Google deletes it at the end of its time; a refresh sees that, and the next `up` asks again.
        fake.world.machines.clear()
        run("refresh")
        run("up", template=OTHER)
        assert statuses(fake) == {NODE: "RUNNING"}
        run("destroy")
        assert statuses(fake) == {}

    def test_the_end_of_a_running_node_is_an_output(self, fake: FakeFlex):
        found = FlexNodeProvider().create(props(fake))
        assert found.outs is not None
        assert found.outs["ends"] == datetime(2026, 11, 22, 17, tzinfo=timezone.utc).timestamp()

    def test_all_nodes_are_requested_before_the_first_wait(
        self, fake: FakeFlex, run: Callable[..., list[events.Event]]
    ):
        names = [f"a3-gpu-{index}" for index in range(6)]
        run("up", names=names)
        posts = [call.path.rpartition("/")[2] for call in fake.calls if call.method == "POST"]
        # The first that runs gets its metadata and labels.
        assert posts[:6] == ["instances"] * 6
        assert len(statuses(fake)) == 6

        fake.calls.clear()
        run("up", names=[*names, "a3-gpu-6"])
        assert [call.body["name"] for call in insert_calls(fake)] == ["a3-gpu-6"]

        # Those that ended are asked for at once as well, and the others stay.
        for name in names[:4]:
            del fake.world.machines[NODE.replace("a3-gpu-0", name)]
        run("refresh")
        fake.calls.clear()
        run("up", names=[*names, "a3-gpu-6"])
        posts = [call.path.rpartition("/")[2] for call in fake.calls if call.method == "POST"]
        assert posts[:4] == ["instances"] * 4
        assert set(statuses(fake).values()) == {"RUNNING"}
        run("destroy")
        assert statuses(fake) == {}

    def test_a_kill_during_the_requests_leaves_no_orphans(self, fake: FakeFlex):
        names = ["a3-gpu-0", "a3-gpu-1", "a3-gpu-2"]
        given = props(fake, names=names)
        assert create_and_kill(fake, FlexQueueProvider, given, 5)
        assert 1 <= len(statuses(fake)) <= 2
        FlexQueueProvider().create(given)
        assert (len(statuses(fake)), len(insert_calls(fake))) == (3, 3)
        for name in names:
            FlexRequestProvider().delete("", {**given, "name": name})
        assert statuses(fake) == {}

    def test_destroying_an_ended_node_succeeds(self, fake: FakeFlex, run: Callable[..., list[events.Event]]):
        run("up")
        fake.world.machines.clear()
        run("destroy")

    def test_only_the_node_without_capacity_is_requested_again(
        self, fake: FakeFlex, run: Callable[..., list[events.Event]]
    ):
        names = ["a3-gpu-0", "a3-gpu-1", "a3-gpu-2"]
        fake.without, fake.wait_requests = {"a3-gpu-1"}, 60
        (failed,) = [event for event in run("up", ok=False, names=names) if isinstance(event, events.StepFailed)]
        assert failed.urn.endswith("::a3-gpu-1")
        assert "a3-gpu-1" in failed.message
        assert "Traceback" not in failed.message
        assert "run again" in failed.message
        left = {NODE.replace("a3-gpu-0", name): "RUNNING" for name in names if name not in fake.without}
        assert statuses(fake) == left

        fake.without = set()
        fake.calls.clear()
        run("up", names=names)
        assert [call.body["name"] for call in insert_calls(fake)] == ["a3-gpu-1"]
        assert len(statuses(fake)) == 3

    def test_a_node_with_other_capacity_is_replaced(self, fake: FakeFlex):
        olds = {"name": "a3-gpu-0", "zone": "us-central1-a", "project": "p", "sourceInstanceTemplate": TEMPLATE}
        found = FlexNodeProvider().diff("", olds, props(fake))
        assert found.changes
        assert "template" in (found.replaces or [])
        assert found.delete_before_replace

    def test_only_another_place_replaces_the_request(self, fake: FakeFlex):
        old = props(fake)
        assert not FlexRequestProvider().diff("", old, {**old, "template": OTHER, "endpoint": "other"}).changes
        assert FlexRequestProvider().diff("", old, {**old, "zone": "us-central1-b"}).replaces == ["zone"]
