"""The plugin of the Kubernetes provider, the program pulumi-resource-kubernetes, of the version that requirements.txt
locks: its Check and Diff of all objects and releases of the shipped stack on Nebius, beside the embedded engine's."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from engine import values
from engine.core.diff import differences
from engine.core.run import with_outputs
from engine.project import KubernetesTools
from engine.providers.base import Context
from engine.providers.helm import Release
from engine.providers.kubernetes import Cluster, Object
from engine.providers.process import Outcome
from engine.state.resource import Resource
from engine.values import Props, plain
from lab import nebius_rehearsal
from tests.harness import ROOT, Registered, deploy
from tests.nebius.deploy.test_components import _fakes, given  # noqa: F401 - _fakes is a fixture
from tests.outside.recorder import Recorder

NOBODY = "127.0.0.1:1"
"""Address of the engine that the plugin logs to, and of the cluster: neither is asked for an answer."""


class _Installed(Cluster):
    """A cluster where every object and release is created at once, as it was given."""

    def kubectl(self, ctx: Context, *arguments: str, stdin: str = "", waits: bool = False) -> Outcome:
        live = json.loads(stdin) if "apply" in arguments else {}
        return Outcome(0, json.dumps({**live, "status": {}}) if live else "", "")

    def helm(self, ctx: Context, *arguments: str, stdin: str = "") -> Outcome:
        chart = {"metadata": {"name": "chart", "version": "0.1.0"}}
        release = {"name": "", "namespace": "", "chart": chart, "version": 1, "info": {"status": "deployed"}}
        return Outcome(0, json.dumps(release), "")


@pytest.fixture
def plugin(artifact: Path) -> Iterator[Any]:
    """The plugin, configured for a cluster that does not answer."""
    cluster = {"clusters": [{"name": "c", "cluster": {"server": f"https://{NOBODY}"}}]}
    context = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}], "current-context": "c"}
    kubeconfig = json.dumps({"apiVersion": "v1", "kind": "Config", "users": [{"name": "c"}], **cluster, **context})
    with subprocess.Popen([artifact, NOBODY], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout
            channel = grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}")
            found = provider_pb2_grpc.ResourceProviderStub(channel)
            found.Configure(
                provider_pb2.ConfigureRequest(
                    variables={"kubernetes:config:kubeconfig": kubeconfig}, acceptSecrets=True, acceptResources=True
                )
            )
            yield found
        finally:
            process.kill()


@cache
def _resources() -> list[Registered]:
    cluster = given()["hpc:cluster"]
    nebius = cluster["nebius"]
    local = {**nebius, "soperator": {**nebius["soperator"], "charts": str(nebius_rehearsal.STAND_INS)}}
    return [resource for resource in deploy(given(nebius=local)).resources if resource.type.startswith("kubernetes:")]


def _ours(one: Registered) -> tuple[Release | Object, Context]:
    cluster = _Installed(ROOT, KubernetesTools(Path("kubectl"), Path("helm")))
    provider = Release(cluster, ROOT) if one.type == "kubernetes:helm.sh/v3:Release" else Object(cluster)
    return provider, Context(one.urn, one.type, one.name, lambda *_: None, settings=dict)


def test_states_go_over_both_ways_without_a_change(plugin: Any, outside: Recorder) -> None:
    for resource in _resources():
        provider, ctx = _ours(resource)
        given_: Props = plain(values.from_struct(resource.request.object))
        checked = plugin.Check(provider_pb2.CheckRequest(urn=resource.urn, news=resource.request.object))
        for failure in checked.failures:
            outside.differs("pulumi-kubernetes-check", f"{resource.name}: {failure.property}: {failure.reason}")
        theirs = values.from_struct(checked.inputs)
        for olds, what in (({}, "of a new resource"), (theirs, "after the provider's")):
            for change in differences(theirs, provider.check(ctx, plain(olds), given_)):
                outside.differs("pulumi-kubernetes-check", f"{resource.name}, {what}: {change}")
        inputs = provider.check(ctx, {}, given_)
        id_, outputs = provider.create(ctx, plain(inputs))
        kept = with_outputs(Resource(urn=resource.urn, type=resource.type, custom=True), id_, outputs, inputs)
        diff = plugin.Diff(
            provider_pb2.DiffRequest(
                id=id_, urn=resource.urn, olds=values.to_struct(kept.outputs), old_inputs=values.to_struct(inputs),
                news=checked.inputs,
            )
        )  # fmt: skip
        if diff.changes != provider_pb2.DiffResponse.DIFF_NONE:
            outside.differs(
                "pulumi-kubernetes-diff", f"{resource.name}: {sorted(diff.detailedDiff)} {list(diff.replaces)}"
            )
    kinds = sorted({resource.type for resource in _resources()})
    outside.did(f"Check and Diff of {len(_resources())} resources: {', '.join(kinds)}")
    outside.holds("pulumi-kubernetes-state")
