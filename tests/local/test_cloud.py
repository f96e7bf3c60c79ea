"""The cloud of elastic nodes on this host: what it answers, what goes wrong on demand, and that the next process goes
on where one was killed. Machines are only names here; tests/e2e/test_elastic.py has real ones."""

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interface import ReconcileCloud
from reconcile.compute_engine import CloudError, ComputeEngine, ErrorKind

from components.local.compute_engine import host_compute
from components.local.compute_engine.host_compute import HostCompute
from components.local.host.cloud import INSTANCE, CloudPaths
from components.local.host.machine import Design
from components.local.host.paths import HostError
from tests.waiting import PATIENCE, wait_for

PLACE = "projects/rehearsal/zones/local-a"
SPOT, DEMAND = (f"projects/rehearsal/global/instanceTemplates/c-cpu-{way}" for way in ("spot", "on-demand"))
NODES = [f"c-cpu-{index}" for index in range(1, 9)]


class Host:
    """Machines that are only names: `broken` ones do not start."""

    def __init__(self) -> None:
        self.running: dict[str, Design] = {}
        self.broken: set[str] = set()
        self.begun = threading.Event()

    def create(self, design: Design) -> None:
        """Start a machine."""
        self.begun.set()
        if design.name in self.broken:
            raise HostError(f"machine {design.name}: did not start")
        self.running[design.name] = design

    def delete(self, design: Design) -> None:
        """Remove a machine."""
        self.running.pop(design.name, None)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """This host."""
    made = Host()
    for name, value in {
        "create": made.create,
        "update": made.create,
        "delete": made.delete,
        "stop": made.delete,
        "running": lambda paths: made.running.get(paths.folder.name),
        "is_between_boots": lambda _: False,
        "files_of": lambda _: None,
    }.items():
        monkeypatch.setattr(host_compute.machine, name, value)
    return made


@contextmanager
def served(folder: Path) -> Iterator[tuple[HostCompute, ComputeEngine]]:
    """A process that serves the folder, and a client of it."""
    paths = CloudPaths(folder)
    folder.mkdir(exist_ok=True)
    paths.lock.touch()
    machine = {
        "root": str(folder), "images": "/images", "stack": "c", "image": "abc", "prefix": 20.0, "os_release": "",
        "authorized_keys": "", "files": {"/etc/hpc/node.json": "{}"}, "devices": [], "orderly": False,
    }  # fmt: skip
    labels = {"hpc-cluster": "c", "hpc-nodeset": "cpu"}
    design: dict[str, Any] = {
        "root": str(folder), "stack": "c", "gateway": "127.0.0.1", "port": 0.0, "token": "secret", "place": PLACE,
        "labels": {"hpc-cluster": "c"}, "static": {"c-cpu-0": "cpu"}, "machines": {"cpu": machine},
        "addresses": {name: f"10.77.2.{n}" for n, name in enumerate(["c-cpu-0", *NODES], start=1)},
        "templates": {
            "c-cpu-spot": {
                "nodeset": "cpu", "way": "spot",
                "properties": {"labels": labels, "scheduling": {"instanceTerminationAction": "DELETE"}},
            },
            "c-cpu-on-demand": {"nodeset": "cpu", "way": "on_demand", "properties": {"labels": labels}},
        },
    }  # fmt: skip
    paths.design.write_text(json.dumps(design))
    token = folder / "token"
    token.write_text("secret\n")
    with HostCompute(paths) as server:
        api: ReconcileCloud = {
            "project": "rehearsal", "zone": "local-a", "region": "local", "cluster": "c",
            "endpoint": server.endpoint, "token_file": str(token),
        }  # fmt: skip
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server, ComputeEngine(api)
        server.end()
        thread.join()


@pytest.fixture
def cloud(tmp_path: Path, host: Host) -> Iterator[tuple[HostCompute, ComputeEngine]]:
    with served(tmp_path / "cloud") as (server, client):
        server.faults.insert_seconds = server.faults.delete_seconds = 0.0
        yield server, client


def settled(client: ComputeEngine, condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    wait_for(condition, pace=0.1)


def done(client: ComputeEngine, name: str) -> CloudError | None:
    """The error of an operation, once it has ended."""
    settled(client, lambda: client.operation(name).done)
    return client.operation(name).error


def statuses(client: ComputeEngine) -> dict[str, str]:
    return {instance.name: instance.status for instance in client.instances().instances}


def fault(server: HostCompute, path: str = "faults", **body: object) -> None:
    """Ask for a fault, as `./hpc rehearse --faults` does. All that is not named is as if there were none, at once."""
    body = {"insert_seconds": 0.0, "delete_seconds": 0.0, **body}
    request = urllib.request.Request(  # noqa: S310 - this host
        f"{server.endpoint}/rehearsal/{path}",
        json.dumps(body).encode(),
        {"Authorization": "Bearer secret"},
        method="POST",
    )
    urllib.request.urlopen(request, timeout=PATIENCE).close()  # noqa: S310


Cloud = tuple[HostCompute, ComputeEngine]


class TestInstances:
    def test_an_instance_exists_as_long_as_its_machine(self, cloud: Cloud, host: Host) -> None:
        _, client = cloud
        begun = client.insert(["c-cpu-1"], template=DEMAND, nodeset="cpu", request="r1")
        assert done(client, begun.name) is None
        design = host.running["c-cpu-1"]
        assert (design.address, INSTANCE in design.files) == ("10.77.2.2", True)
        found = {instance.name: instance for instance in client.instances().instances}
        assert found["c-cpu-1"].status == "RUNNING"
        assert found["c-cpu-1"].labels["hpc-made-by"] == "reconcile"
        gone = client.delete("c-cpu-1", request="r2")
        assert gone
        assert done(client, gone.name) is None
        assert "c-cpu-1" not in host.running
        assert client.get("c-cpu-1") is None

    def test_static_nodes_are_listed_and_not_deleted(self, cloud: Cloud) -> None:
        _, client = cloud
        assert statuses(client) == {"c-cpu-0": "TERMINATED"}
        with pytest.raises(CloudError) as caught:
            client.delete("c-cpu-0", request="r")
        assert caught.value.kind is ErrorKind.PERMISSION

    def test_a_machine_that_ended_is_terminated(self, cloud: Cloud, host: Host) -> None:
        _, client = cloud
        done(client, client.insert(["c-cpu-1"], template=DEMAND, nodeset="cpu", request="r").name)
        del host.running["c-cpu-1"]
        assert statuses(client)["c-cpu-1"] == "TERMINATED"

    def test_a_repeated_request_has_no_second_effect(self, cloud: Cloud) -> None:
        _, client = cloud
        first, second = (client.insert(NODES[:2], template=DEMAND, nodeset="cpu", request="r") for _ in range(2))
        assert first.name == second.name

    def test_requests_without_the_token_are_refused(self, cloud: Cloud, tmp_path: Path) -> None:
        (tmp_path / "cloud" / "token").write_text("other\n")
        with pytest.raises(CloudError) as caught:
            cloud[1].instances()
        assert caught.value.kind is ErrorKind.PERMISSION

    def test_a_machine_that_does_not_start_leaves_no_instance(self, cloud: Cloud, host: Host) -> None:
        _, client = cloud
        host.broken = {"c-cpu-2"}
        error = done(client, client.insert(NODES[:2], template=DEMAND, nodeset="cpu", request="r").name)
        assert error
        assert "c-cpu-2" in error.message
        assert set(statuses(client)) == {"c-cpu-0", "c-cpu-1"}


class TestFaults:
    @pytest.mark.parametrize(
        ("faults", "kind"),
        [
            ({"capacity": {"*": 2}}, ErrorKind.STOCK_OUT),
            ({"capacity": {"on_demand": 2}}, ErrorKind.STOCK_OUT),
            ({"stock_out_until": {"on_demand": 4e9}}, ErrorKind.STOCK_OUT),
            ({"quota": 2}, ErrorKind.QUOTA),
        ],
    )
    def test_instances_are_created_all_or_none(self, cloud: Cloud, faults: dict[str, Any], kind: ErrorKind) -> None:
        server, client = cloud
        fault(server, **faults)
        error = done(client, client.insert(NODES[:3], template=DEMAND, nodeset="cpu", request="r1").name)
        assert error
        assert error.kind is kind
        assert set(statuses(client)) == {"c-cpu-0"}
        fault(server)
        assert done(client, client.insert(NODES[:3], template=DEMAND, nodeset="cpu", request="r2").name) is None

    def test_each_kind_of_capacity_has_its_own_limit(self, cloud: Cloud) -> None:
        server, client = cloud
        fault(server, stock_out_until={"spot": 4e9})
        error = done(client, client.insert(["c-cpu-1"], template=SPOT, nodeset="cpu", request="r1").name)
        assert error
        assert error.kind is ErrorKind.STOCK_OUT
        assert done(client, client.insert(["c-cpu-1"], template=DEMAND, nodeset="cpu", request="r2").name) is None

    def test_a_preempted_instance_is_deleted_or_stopped_by_its_template(self, cloud: Cloud, host: Host) -> None:
        server, client = cloud
        done(client, client.insert(["c-cpu-1"], template=SPOT, nodeset="cpu", request="r1").name)
        done(client, client.insert(["c-cpu-2"], template=DEMAND, nodeset="cpu", request="r2").name)
        fault(server, "preempt/c-cpu-1?seconds=0")
        fault(server, "preempt/c-cpu-2?seconds=0")
        settled(client, lambda: statuses(client) == {"c-cpu-0": "TERMINATED", "c-cpu-2": "TERMINATED"})
        assert host.running == {}

    def test_an_operation_hangs_and_its_instance_can_be_deleted(self, cloud: Cloud) -> None:
        server, client = cloud
        fault(server, hang={"insert": 1})
        hung = client.insert(["c-cpu-1"], template=DEMAND, nodeset="cpu", request="r1")
        gone = client.delete("c-cpu-1", request="r2")
        assert gone
        assert done(client, gone.name) is None
        assert not client.operation(hung.name).done
        assert done(client, client.insert(["c-cpu-1"], template=DEMAND, nodeset="cpu", request="r3").name) is None

    def test_a_host_is_bad_until_it_is_reported(self, cloud: Cloud, host: Host) -> None:
        server, client = cloud
        fault(server, bad_hosts=["host-1"])
        done(client, client.insert(["c-cpu-1"], template=DEMAND, nodeset="cpu", request="r1").name)
        assert host_compute._JOIN_UNIT in host.running["c-cpu-1"].files
        done(client, client.report_faulty("c-cpu-1", "XID 79", request="r2").name)
        assert host_compute._JOIN_UNIT not in host.running["c-cpu-1"].files

    def test_a_share_of_requests_gets_no_response(self, cloud: Cloud) -> None:
        server, client = cloud
        fault(server, unavailable=1.0)
        with pytest.raises(CloudError) as caught:
            client.instances()
        assert caught.value.kind is ErrorKind.TRANSIENT


def test_the_next_process_goes_on_with_every_operation(tmp_path: Path, host: Host) -> None:
    folder = tmp_path / "cloud"
    with served(folder) as (server, client):
        server.faults.insert_seconds = 3600.0
        begun = client.insert(NODES[:3], template=DEMAND, nodeset="cpu", request="r")
        fault(server, quota=100)
    state = json.loads((folder / "state.json").read_text())
    for row in state["operations"]:
        row["due"] = 0.0
    (folder / "state.json").write_text(json.dumps(state))
    with served(folder) as (server, client):
        assert server.faults.quota == 100
        assert client.insert(NODES[:3], template=DEMAND, nodeset="cpu", request="r").name == begun.name
        assert done(client, begun.name) is None
        assert {*host.running} == set(NODES[:3])


@given(st.lists(st.tuples(st.sampled_from(NODES[:3]), st.booleans()), max_size=12), st.integers(0, 11))
def test_every_running_machine_has_an_instance_in_any_order_of_events(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[str, bool]], killed_after: int
) -> None:
    """Creations and deletions in any order, and a process that ends in between."""
    host, folder = Host(), tmp_path_factory.mktemp("cloud")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "create": host.create,
            "delete": host.delete,
            "running": lambda paths: host.running.get(paths.folder.name),
            "is_between_boots": lambda _: False,
            "files_of": lambda _: None,
        }.items():
            patch.setattr(host_compute.machine, name, value)
        for part in (requests[:killed_after], requests[killed_after:]):
            with served(folder) as (server, client):
                server.faults.insert_seconds = server.faults.delete_seconds = 0.0
                for number, (name, create) in enumerate(part):
                    try:
                        if create:
                            client.insert([name], template=DEMAND, nodeset="cpu", request=f"{len(part)}-{number}")
                        else:
                            client.delete(name, request=f"{len(part)}-{number}")
                    except CloudError as error:
                        assert error.kind in (ErrorKind.EXISTS, ErrorKind.TRANSIENT)  # noqa: PT017
        with served(folder) as (server, client):
            settled(client, lambda: all(operation.done for operation in server.operations.values()))
            there = {name for name, status in statuses(client).items() if status == "RUNNING"}
    assert there == set(host.running)
