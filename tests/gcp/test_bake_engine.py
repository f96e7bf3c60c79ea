"""The bake as a resource of a stack: what the engine and the Pulumi CLI do with it."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from components.gcp.baked_image import BakeProvider
from components.gcp.nodes import ElasticInstancesProvider
from components.local.compute_engine.errors import QUOTA
from engine import events
from engine.core.scope import Scope
from tests import programs
from tests.gcp.baking import (
    IMAGE,
    LONG_LIMITS,
    assert_image_ready,
    assert_no_machines,
    props,
    run_engine,
    write_program,
)
from tests.harness import ROOT, provider_process
from tests.lab.google.compute import FakeCompute, FakeElastic, Fault, Machine

PROGRAM = """
import json, pathlib, pulumi
from components.gcp.baked_image import BakedImage
image = BakedImage("image", json.loads(pathlib.Path("inputs.json").read_text()))
pulumi.export("image", image.self_link)
"""
OTHER = IMAGE.replace("0123456789ab", "ba9876543210")

Run = Callable[..., list[events.Event]]


@pytest.fixture
def run(fake: FakeCompute, tmp_path: Path) -> Run:
    """Return a function that runs the engine on a stack with an image, such as `run("up", digest=...)`."""
    write_program(tmp_path, PROGRAM)

    def once(
        kind: str, *, ok: bool = True, only: dict[str, Any] | None = None, replace: tuple[str, ...] = (), **changes: Any
    ) -> list[events.Event]:
        forced = {"scope": Scope(replace=replace)} if replace else {}
        return run_engine(tmp_path, kind, only or props(fake, **changes), ok=ok, **forced)

    return once


def changing(fake: FakeCompute) -> list[str]:
    return [f"{c.method} {c.path.rpartition('/')[2]}" for c in fake.calls if c.method in ("POST", "DELETE")]


class TestLife:
    def test_a_preview_makes_no_request(self, fake: FakeCompute, run: Run) -> None:
        run("preview")
        assert fake.calls == []

    def test_up_bakes_and_the_next_up_makes_no_request(self, fake: FakeCompute, run: Run) -> None:
        message = [event.message for event in run("up") if isinstance(event, events.LogLine)]
        assert "a3mega-0123456789ab: step 1 of 2: packages" in message
        assert_image_ready(fake)
        assert_no_machines(fake)
        fake.calls.clear()
        run("up")
        run("up", minutes=30.0, machine_type="e2-standard-8", script="#!/bin/bash\n# said otherwise\n")
        assert fake.calls == []

    def test_a_newer_program_alone_changes_nothing(self, fake: FakeCompute, run: Run) -> None:
        run("up")
        fake.calls.clear()
        newer = {"digest": "ba9876543210", "image": "a3mega-ba9876543210", "script": "#!/bin/bash\ntrue\n"}
        planned = [e for e in run("up", **newer) if isinstance(e, events.Planned)]
        assert {event.op for event in planned} == {"same"}
        assert fake.calls == []
        run("refresh")
        run("up", **newer)
        assert set(fake.world.images) == {IMAGE}
        run("destroy")
        assert fake.world.images == fake.world.machines == {}

    def test_the_new_image_is_created_before_the_old_one_is_deleted(self, fake: FakeCompute, run: Run) -> None:
        run("up")
        fake.calls.clear()
        run("up", digest="ba9876543210", image="a3mega-ba9876543210", content={"recipe": "2027-03"})
        assert set(fake.world.images) == {OTHER}
        assert changing(fake)[-1] == f"DELETE {IMAGE.rpartition('/')[2]}"

    def test_a_forced_replacement_keeps_the_image(self, fake: FakeCompute, run: Run) -> None:
        run("up")
        fake.calls.clear()
        run("up", replace=("**BakedImage**",))
        assert_image_ready(fake)
        assert changing(fake) == ["POST setLabels"]
        run("destroy")
        assert fake.world.images == {}

    def test_labels_are_changed_in_place(self, fake: FakeCompute, run: Run) -> None:
        run("up")
        fake.calls.clear()
        run("up", labels={"hpc-cluster": "a3mega", "slurm": "25-05-9"})
        assert changing(fake) == ["POST setLabels"]

    def test_a_deleted_image_is_recreated_after_a_refresh(self, fake: FakeCompute, run: Run) -> None:
        run("up")
        fake.world.images.clear()
        run("refresh")
        run("up")
        assert_image_ready(fake)

    def test_after_a_failure_the_next_up_completes_the_image(self, fake: FakeCompute, run: Run) -> None:
        fake.faults = {"instances.insert": Fault(errors=[QUOTA])}
        (failed,) = [e for e in run("up", ok=False) if isinstance(e, events.StepFailed)]
        assert failed.message.startswith("could not make the builder a3mega-0123456789ab-builder:\n")
        assert_no_machines(fake)
        fake.faults = {}
        run("up")
        assert_image_ready(fake)


def test_providers_unpickle_where_nothing_was_imported(fake: FakeCompute) -> None:
    program = """
import base64, dill, json, sys
given = json.load(sys.stdin)
provider = dill.loads(base64.b64decode(given["provider"]))
found = provider.diff("id", given["old"], given["new"])
elastic = dill.loads(base64.b64decode(given["elastic"]))
elastic.create(given["place"])
kinds = [type(one).__module__ for one in (provider, elastic)]
print(json.dumps([kinds, found.changes, found.replaces, "google.cloud" in sys.modules]))
"""
    given = {
        "provider": serialize_provider(BakeProvider()),
        "old": props(fake),
        "new": props(fake, content={"recipe": "2027-03"}),
        "elastic": serialize_provider(ElasticInstancesProvider()),
        "place": {"project": "p", "zone": "us-central1-a", "cluster": "a3", "nodeset": "gpu"},
    }
    ran = programs.run([sys.executable, "-c", program], cwd=ROOT, input=json.dumps(given), check=True)
    kinds = ["components.gcp.baked_image", "components.gcp.nodes"]
    assert json.loads(ran.stdout) == [kinds, True, ["content"], False]


@pytest.fixture(scope="module")
def host() -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    with provider_process() as stub:
        yield stub


class TestUnderTheCli:
    def create(self, host: provider_pb2_grpc.ResourceProviderStub, fake: FakeCompute) -> Any:
        inputs = struct_pb2.Struct()
        inputs.update({**props(fake), "__provider": serialize_provider(BakeProvider())})
        return host.Create(provider_pb2.CreateRequest(urn="urn:pulumi:a::b::c::d", properties=inputs))

    def test_the_cli_bakes(self, fake: FakeCompute, host: provider_pb2_grpc.ResourceProviderStub) -> None:
        made = self.create(host, fake)
        assert made.id == made.properties["self_link"] == IMAGE
        assert_image_ready(fake)
        assert_no_machines(fake)

    def test_a_failure_has_no_traceback(self, fake: FakeCompute, host: provider_pb2_grpc.ResourceProviderStub) -> None:
        fake.faults = {"instances.insert": Fault(errors=[QUOTA])}
        with pytest.raises(grpc.RpcError) as raised:
            self.create(host, fake)
        message = str(getattr(raised.value, "details", str)())
        assert "QUOTA_EXCEEDED: Quota 'C2_CPUS' exceeded." in message
        assert "Traceback" not in message

    def test_elastic_instances_are_deleted(self, host: provider_pb2_grpc.ResourceProviderStub) -> None:
        labels = {"hpc-cluster": "a3", "hpc-nodeset": "gpu", "hpc-made-by": "reconcile"}
        path = "projects/p/zones/us-central1-a/instances/a3-gpu-0"
        with FakeElastic({}) as fake:
            fake.world.machines[path] = Machine({"name": "a3-gpu-0", "labels": labels, "status": "RUNNING"}, [None])
            place = {"project": "p", "zone": "us-central1-a", "cluster": "a3", "nodeset": "gpu"}
            inputs = struct_pb2.Struct()
            provider = serialize_provider(ElasticInstancesProvider())
            inputs.update({**place, "endpoint": fake.endpoint, "pace": LONG_LIMITS, "__provider": provider})
            host.Delete(provider_pb2.DeleteRequest(id="p", urn="urn:pulumi:a::b::c::d", properties=inputs))
            assert fake.world.machines == {}
