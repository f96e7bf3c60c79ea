"""The process that the Pulumi CLI runs dynamic providers in is the SDK's: create, and errors without a traceback."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from components.nebius.resource import NebiusProvider
from lab.nebius_api.faults import Fault
from lab.nebius_api.server import NebiusServer
from tests.harness import ROOT
from tests.nebius.api.project import OWNER, PROJECT_ID, owned

URN = "urn:pulumi:a::b::c::d"


@pytest.fixture
def host() -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    command = [sys.executable, "-m", "pulumi.dynamic", "127.0.0.1:1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(provider_pb2.ConfigureRequest(args=struct_pb2.Struct()))
            yield stub
        process.terminate()


def properties(api: NebiusServer, **changes: Any) -> struct_pb2.Struct:
    inputs = struct_pb2.Struct()
    given = {
        "kind": "Filesystem", "name": "jail", "resource_name": "jail", "parent_id": PROJECT_ID, "owner": OWNER,
        "spec": {"type": "NETWORK_SSD", "size_gibibytes": 2048}, "labels": {}, "endpoint": api.endpoint, "pace": 0.02,
        "__provider": serialize_provider(NebiusProvider()),
    }  # fmt: skip
    inputs.update({**given, **changes})
    return inputs


def test_it_creates_compares_updates_reads_and_deletes(
    api: NebiusServer, host: provider_pb2_grpc.ResourceProviderStub
) -> None:
    made = host.Create(provider_pb2.CreateRequest(urn=URN, properties=properties(api)))
    assert owned(api) == {"Filesystem jail": [made.id]}
    assert made.properties["status"]["state"] == "READY"
    news = properties(api, spec={"type": "NETWORK_SSD", "size_gibibytes": 4096})
    told = host.Diff(provider_pb2.DiffRequest(urn=URN, id=made.id, olds=made.properties, news=news))
    assert told.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert list(told.replaces) == []
    other = properties(api, spec={"type": "NETWORK_SSD_IO_M3", "size_gibibytes": 2048})
    told = host.Diff(provider_pb2.DiffRequest(urn=URN, id=made.id, olds=made.properties, news=other))
    assert list(told.replaces) == ["spec"]
    assert told.deleteBeforeReplace
    changed = host.Update(provider_pb2.UpdateRequest(urn=URN, id=made.id, olds=made.properties, news=news))
    assert api.store.objects[made.id]["spec"]["size_gibibytes"] == "4096"
    read = host.Read(provider_pb2.ReadRequest(urn=URN, id=made.id, properties=changed.properties))
    assert read.id == made.id
    assert read.properties["spec"]["size_gibibytes"] == 4096
    host.Delete(provider_pb2.DeleteRequest(urn=URN, id=made.id, properties=read.properties))
    assert owned(api) == {}
    assert host.Read(provider_pb2.ReadRequest(urn=URN, id=made.id, properties=read.properties)).id == ""


def test_a_failure_comes_without_a_traceback(api: NebiusServer, host: provider_pb2_grpc.ResourceProviderStub) -> None:
    api.faults.append(Fault(verb="create", what="quota_failure"))
    with pytest.raises(grpc.RpcError) as raised:
        host.Create(provider_pb2.CreateRequest(urn=URN, properties=properties(api)))
    told = str(getattr(raised.value, "details", str)())
    assert "quota compute.instance.gpu.h100: limit 8, asked 16" in told
    assert "Traceback" not in told
