"""The client of the reconcile loop against Compute Engine's stand-in: lists that may be partial, requests that are sent
again, and kinds of errors."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from reconcile import compute_engine
from reconcile.compute_engine import CloudError, ComputeEngine, ErrorKind, _epoch, kind_of

from components.local.compute_engine.errors import QUOTA
from components.local.compute_engine.http import Call, DroppedConnectionError, RefusalError
from tests.lab.google.compute import FakeElastic, Fault
from tests.node.reconcile.simulated import settings
from tests.waiting import PATIENCE

TEMPLATES = {"gpu-spot": {"machineType": "a3-highgpu-8g", "labels": {"hpc-part": "node"}}, "gpu-reserved": {}}
SPOT, RESERVED = (f"projects/p/global/instanceTemplates/{name}" for name in TEMPLATES)


@pytest.fixture
def fake() -> Iterator[FakeElastic]:
    with FakeElastic(TEMPLATES) as server:
        yield server


@pytest.fixture
def client(fake: FakeElastic, tmp_path: Path) -> ComputeEngine:
    token = tmp_path / "token"
    token.write_text("secret\n")
    return ComputeEngine({**settings()["cloud"], "endpoint": fake.endpoint, "token_file": str(token)})


def insert(client: ComputeEngine, *names: str, template: str = SPOT, request: str = "r"):
    return client.insert(list(names), template=template, nodeset="gpu", request=request)


class TestInsert:
    def test_an_instance_has_the_labels_by_which_it_is_listed_and_deleted(self, client, fake):
        insert(client, "c-gpu-0")
        (found,) = client.instances().instances
        assert (found.name, found.zone, found.machine_type) == ("c-gpu-0", "us-central1-a", "a3-highgpu-8g")
        assert found.created > 0
        assert found.labels == {
            "hpc-cluster": "c",
            "hpc-part": "node",
            "hpc-nodeset": "gpu",
            "hpc-node": "c-gpu-0",
            "hpc-made-by": "reconcile",
            "hpc-template": "gpu-spot",
        }
        assert fake.calls[0].headers["Authorization"] == "Bearer secret"

    def test_a_repeated_request_creates_no_second_instance(self, client, fake):
        assert insert(client, "c-gpu-0").name == insert(client, "c-gpu-0").name
        with pytest.raises(CloudError) as raised:
            insert(client, "c-gpu-0", request="another")
        assert raised.value.kind is ErrorKind.EXISTS

    def test_of_several_instances_all_are_created_or_none(self, client, fake):
        fake.capacity["gpu-spot"] = 3
        operation = insert(client, "c-gpu-0", "c-gpu-1", "c-gpu-2", "c-gpu-3")
        client.instances()
        found = client.operation(operation.name)
        assert found.error is not None
        # The cause is of one of the instances, not of the whole.
        assert (found.done, found.error.kind, found.error.code) == (
            True,
            ErrorKind.STOCK_OUT,
            "ZONE_RESOURCE_POOL_EXHAUSTED",
        )
        assert client.instances().instances == ()
        insert(client, "c-gpu-0", "c-gpu-1", "c-gpu-2", request="less")
        client.instances()
        assert [instance.status for instance in client.instances().instances] == ["RUNNING"] * 3

    def test_a_deleted_template_is_not_reported_as_a_missing_instance(self, client):
        with pytest.raises(CloudError) as raised:
            insert(client, "c-gpu-0", template="projects/p/global/instanceTemplates/old")
        assert raised.value.kind is ErrorKind.TEMPLATE_GONE

    def test_an_operations_error_has_its_kind(self, client, fake):
        fake.faults["instances.insert"] = Fault(errors=[QUOTA])
        operation = insert(client, "c-gpu-0")
        client.instances()
        error = client.operation(operation.name).error
        assert error is not None
        assert error.kind is ErrorKind.QUOTA


class TestList:
    def test_all_pages_of_the_list_are_read(self, client, fake, monkeypatch):
        for number in range(5):
            insert(client, f"c-gpu-{number}", request=str(number))
        monkeypatch.setattr("reconcile.compute_engine.PAGE_SIZE", 2)
        found = client.instances()
        assert (len(found.instances), found.partial) == (5, "")

    def test_instances_of_other_clusters_are_not_listed(self, client, fake):
        insert(client, "c-gpu-0")
        next(iter(fake.world.machines.values())).resource["labels"]["hpc-cluster"] = "another"
        assert client.instances().instances == ()

    @pytest.mark.parametrize(
        ("zone", "names", "partial"),
        [("us-central1-a", [], "zones/us-central1-a does not answer"), ("europe-west4-b", ["c-gpu-0"], "")],
    )
    def test_the_list_is_partial_if_the_clusters_zone_does_not_answer(self, client, fake, zone, names, partial):
        insert(client, "c-gpu-0")
        fake.unreachable = [f"zones/{zone}"]
        listing = client.instances()
        assert ([instance.name for instance in listing.instances], listing.partial) == (names, partial)


class TestOthers:
    def test_deleting_a_missing_instance_is_no_error(self, client, fake):
        insert(client, "c-gpu-0")
        assert client.delete("c-gpu-0", request="d") is not None
        client.instances()
        assert client.get("c-gpu-0") is None
        assert client.delete("c-gpu-0", request="e") is None

    def test_the_guest_attribute_and_the_serial_log_are_read(self, client, fake):
        fake.consoles["c-gpu-0"] = "panic"
        insert(client, "c-gpu-0")
        assert client.guest_attribute("c-gpu-0") == ""
        fake.guest["c-gpu-0"] = "failed: no key"
        assert client.guest_attribute("c-gpu-0") == "failed: no key"
        assert client.serial_log("c-gpu-0") == "panic"

    def test_a_host_is_reported_or_the_refusal_raised(self, client, fake):
        insert(client, "c-gpu-0")
        client.instances()
        before = client.instances().instances[0].host
        client.report_faulty("c-gpu-0", "gpu-xid: 79", request="f")
        client.instances()
        assert client.instances().instances[0].host != before
        fake.reportable = False
        with pytest.raises(CloudError) as raised:
            client.report_faulty("c-gpu-0", "gpu-xid: 79", request="g")
        assert raised.value.kind is ErrorKind.INVALID

    def test_a_reset_is_an_operation(self, client, fake):
        booted: list[str] = []
        fake.boot = lambda name, _: booted.append(name)
        insert(client, "c-gpu-0")
        client.instances()
        client.reset("c-gpu-0", request="s")
        client.instances()
        assert booted == ["c-gpu-0", "c-gpu-0"]


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "message", "status", "kind"),
        [
            ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", 0, ErrorKind.STOCK_OUT),
            ("insufficientCapacity", "", 503, ErrorKind.STOCK_OUT),
            ("backendError", "", 503, ErrorKind.TRANSIENT),
            ("quotaExceeded", "Quota exceeded", 403, ErrorKind.QUOTA),
            ("rateLimitExceeded", "Quota exceeded for quota metric 'Queries'", 403, ErrorKind.RATE_LIMIT),
            ("", "", 429, ErrorKind.RATE_LIMIT),
            ("RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Queries'", 429, ErrorKind.RATE_LIMIT),
            ("RESOURCE_EXHAUSTED", "", 0, ErrorKind.STOCK_OUT),
            ("IP_SPACE_EXHAUSTED", "", 0, ErrorKind.QUOTA),
            ("forbidden", "Required 'compute.instances.create' permission", 403, ErrorKind.PERMISSION),
            ("UNSUPPORTED_OPERATION", "reservation r does not have available resources", 0, ErrorKind.RESERVATION_FULL),
            # Messages as Kubernetes' autoscaler knows them.
            ("", "Specified reservation 'r' does not have available resources", 0, ErrorKind.RESERVATION_FULL),
            ("", "No available resources in specified reservations 'r'", 0, ErrorKind.RESERVATION_FULL),
            ("", "a reservation with status: CREATING, as it requires reservation to be in READY state", 0,
             ErrorKind.RESERVATION_FULL),
            ("", "Specified reservation 'r' does not exist.", 0, ErrorKind.INVALID),
            ("", "Zone does not currently have sufficient capacity for the requested resources", 0,
             ErrorKind.STOCK_OUT),
            ("CONDITION_NOT_MET", "Constraint constraints/compute.vmExternalIpAccess violated for project 1.", 0,
             ErrorKind.INVALID),
            ("REGIONAL_QUOTA", "", 0, ErrorKind.QUOTA),
            ("notFound", "no projects/p/zones/z/instances/i", 404, ErrorKind.NOT_FOUND),
            ("notFound", "no projects/p/global/instanceTemplates/t", 404, ErrorKind.TEMPLATE_GONE),
            ("alreadyExists", "", 409, ErrorKind.EXISTS),
            ("invalid", "", 400, ErrorKind.INVALID),
            ("", "", 500, ErrorKind.TRANSIENT),
        ],
    )  # fmt: skip
    def test_the_kind_follows_from_reason_code_and_status(self, code, message, status, kind):
        assert kind_of(code, message, status) is kind

    @pytest.mark.parametrize("fault", [RefusalError(503, "backendError", "later"), DroppedConnectionError()])
    def test_a_missing_answer_is_a_transient_error(self, client, fake, fault):
        def fails(_number: int, _call: Call) -> None:
            raise fault

        fake.before = fails
        with pytest.raises(CloudError) as raised:
            client.instances()
        assert raised.value.kind is ErrorKind.TRANSIENT

    def test_a_missing_token_file_is_named(self, client, tmp_path):
        (tmp_path / "token").unlink()
        with pytest.raises(CloudError, match="token"):
            client.instances()


def test_each_answer_shows_how_far_this_machines_clock_is_ahead(client, monkeypatch):
    client.instances()
    assert abs(client.skew) < PATIENCE
    monkeypatch.setattr(compute_engine, "time", SimpleNamespace(time=lambda: time.time() + 10_000))
    client.instances()
    assert abs(client.skew - 10_000) < PATIENCE


def test_times_are_read_with_their_zone():
    assert _epoch("2026-11-22T08:00:00.123-08:00") == _epoch("2026-11-22T16:00:00Z") > 0
    assert _epoch("") == 0
