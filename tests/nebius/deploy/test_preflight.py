"""What `up` asks before it creates anything: refused in words, all at once, and only what is new for one that is up."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cluster.platforms.nebius import request as wanted
from components.nebius import preflight
from components.nebius.api import client
from components.nebius.api.client import NebiusError
from tests.cluster.nebius.clusters import FABRIC, gpus, nebius, settings
from tests.cluster.stacks import config as stack
from tests.lab.nebius_api.faults import Fault
from tests.lab.nebius_api.server import NebiusServer, Place

TIB = 1 << 40
CREDENTIAL = {
    "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "t"},
}  # fmt: skip


@pytest.fixture
def api() -> Iterator[NebiusServer]:
    with NebiusServer() as server:
        yield server
        client.close()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(preflight, "report", lines.append)
    return lines


def request(**changes: Any) -> dict[str, Any]:
    config = nebius(**{**gpus(), **changes})
    return wanted.request(config, settings(config))


def check(api: NebiusServer, before: dict[str, Any] | None = None, command: Any = None, **changes: Any) -> None:
    """Ask as a first `up` does, or as one after a stack of `before`."""
    props = {
        "tenant": "tenant-e00abc", "project": "project-e00abc", "region": "eu-north1",
        "command": command or ["/bin/echo", json.dumps(CREDENTIAL)], "request": request(**changes),
    }  # fmt: skip
    provider = preflight.PreflightProvider()
    if before is None:
        provider.create(props)
    else:
        provider.update("id", {**props, "request": before}, props)


def section(**more: Any) -> dict[str, Any]:
    return {"nebius": {"workers": {"worker": FABRIC}, **more}}


def test_elastic_nodes_beyond_the_quota_are_reported(api: NebiusServer, reported: list[str]) -> None:
    api.place.quotas = {"compute.instance.gpu.h100": (40, 0)}
    elastic = {**gpus(count={"min": 1, "max": 4}, capacity={"on_demand": {}}), **section()}
    check(api, **elastic)
    assert reported == []
    more = {**gpus(count={"min": 1, "max": 8}, capacity={"on_demand": {}}), **section()}
    check(api, **more)
    (line,) = reported
    assert line.startswith(
        "quota compute.instance.gpu.h100 of tenant-e00abc in eu-north1: 64 more needed, 40 free of 40"
    )
    assert "not all elastic nodes can come" in line
    reported.clear()
    # Those that there may be already have what they need.
    check(api, request(**more), **more)
    assert reported == []
    with pytest.raises(NebiusError, match="64 more needed"):
        check(api, **{**gpus(count={"min": 6, "max": 8}, capacity={"on_demand": {}}), **section()})


def test_a_request_that_nebius_can_fulfil_passes(api: NebiusServer, reported: list[str]) -> None:
    check(api)
    assert reported == []
    asked = {call.method.rpartition(".")[2] for call in api.calls}
    assert {"ClusterService/ListControlPlaneVersions", "NodeGroupService/GetCompatibilityMatrix"} <= asked


class TestVersions:
    def test_a_deprecated_or_unknown_version_is_refused_before_the_first_resource(self, api: NebiusServer) -> None:
        for version, why in (("1.31", r"creates no clusters of it \(end of life: 2026-09-01\)"), ("1.99", "no such")):
            with pytest.raises(NebiusError, match=rf"Kubernetes {version}: Nebius .*{why}.*one of 1.30, 1.32"):
                check(api, **section(kubernetes={"version": version}))
        assert api.store.objects == {}

    def test_an_existing_cluster_keeps_a_version_that_became_deprecated(self, api: NebiusServer) -> None:
        before = request()
        api.place.deprecated = ("1.36",)
        check(api, before, **{**gpus(count=3), **section()})
        with pytest.raises(NebiusError, match="creates no clusters of it"):
            check(api)

    def test_drivers_without_a_node_image_are_refused(self, api: NebiusServer) -> None:
        api.place.images = {"gpu-h100-sxm": ("cuda14.0",)}
        with pytest.raises(NebiusError) as raised:
            check(api)
        assert "gpu-h100-sxm with Kubernetes 1.36: ubuntu24.04 with cuda13.0: Nebius has no such image" in str(
            raised.value
        )
        assert "ubuntu24.04 with cuda14.0" in str(raised.value)
        check(api, request(), **{**gpus(count=3), **section()})

    def test_a_refused_query_is_reported_and_does_not_stop_the_run(
        self, api: NebiusServer, reported: list[str]
    ) -> None:
        api.faults.append(Fault(verb="listcontrolplaneversions", what="permission_denied"))
        check(api)
        (line,) = reported
        assert line.startswith("Kubernetes 1.36: permission denied")


class TestQuotas:
    def test_all_small_quotas_are_named_at_once(self, api: NebiusServer) -> None:
        api.place.quotas = {
            "compute.filesystem.size.network-ssd": (5 * TIB, 4 * TIB), "compute.gpucluster.count": (0, 0),
            "compute.instance.non-gpu.vcpu": (1000, 0),
        }  # fmt: skip
        with pytest.raises(NebiusError) as raised:
            check(api)
        text = str(raised.value)
        assert (
            "quota compute.filesystem.size.network-ssd of tenant-e00abc in eu-north1: 2.625 TiB more needed, 1 TiB "
            "free of 5 TiB" in text
        )
        assert "compute.gpucluster.count of tenant-e00abc in eu-north1: 1 more needed, 0 free of 0" in text
        assert "vcpu" not in text
        assert "nothing was created" in text

    @pytest.mark.parametrize("capacity", [None, {"on_demand": {}}])
    def test_gpus_count_where_nodes_may_be_on_demand(self, api: NebiusServer, capacity: Any) -> None:
        api.place.quotas = {"compute.instance.gpu.h100": (8, 0)}
        with pytest.raises(NebiusError, match=r"compute\.instance\.gpu\.h100 .*: 16 more needed, 8 free of 8"):
            check(api, **gpus(**({"capacity": capacity} if capacity else {})))

    def test_the_shipped_stack_needs_a_quota_of_gpus(self) -> None:
        shipped = stack("nebius")
        assert wanted.request(shipped, settings(shipped))["quotas"]["compute.instance.gpu.h100"] == 16

    def test_gpus_of_preemptible_nodes_and_of_a_named_capacity_block_do_not_count(self, api: NebiusServer) -> None:
        api.place.quotas = {"compute.instance.gpu.h100": (0, 0), "compute.instance.preemptible.count": (1, 0)}
        check(api, **gpus(capacity={"reservation": "capacityblockgroup-e00abc"}))
        with pytest.raises(NebiusError, match=r"compute\.instance\.preemptible\.count .*: 2 more needed, 1 free of 1"):
            check(api, **gpus(capacity={"spot": {}}))

    @pytest.mark.parametrize(("free", "passes"), [(0, False), (1, False), (2, True)])
    def test_what_capacity_blocks_have_free_needs_no_quota_where_they_come_first(
        self, api: NebiusServer, free: int, passes: bool
    ) -> None:
        api.place.quotas = {"compute.instance.gpu.h100": (0, 0)}
        api.place.advice = (TestRoom().advice("fabric-3", reserved=free, on_demand=9),)
        with nullcontext() if passes else pytest.raises(NebiusError, match=r"gpu\.h100 .*: 16 more needed"):
            check(api)
        with pytest.raises(NebiusError, match=r"gpu\.h100 .*: 16 more needed"):
            check(api, **gpus(capacity={"on_demand": {}}))

    def test_an_existing_stack_needs_quota_for_the_increase_alone(self, api: NebiusServer) -> None:
        api.place.quotas = {"compute.filesystem.size.network-ssd": (5 * TIB, 4 * TIB)}
        larger = section(filesystems={"jail": {"spec": {"size_gib": 3072}}})
        check(api, request(), **larger)
        with pytest.raises(NebiusError, match="2 TiB more needed"):
            check(api, request(), **section(filesystems={"jail": {"spec": {"size_gib": 4096}}}))

    def test_a_quota_without_a_limit_does_not_limit(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = Place.answer

        def unlimited(place: Place, method: str, given: Any) -> Any:
            answer = plain(place, method, given) or {}
            for row in answer["items"] if method == "QuotaAllowanceService/List" else ():
                del row["spec"]["limit"]
            return answer or None

        api.place.quotas = {"compute.gpucluster.count": (0, 0)}
        monkeypatch.setattr(Place, "answer", unlimited)
        check(api)


class TestRoom:
    def advice(self, fabric: str, state: str = "DATA_STATE_FRESH", **available: int) -> dict[str, Any]:
        return {
            "metadata": {"id": f"advice-{fabric}", "parent_id": "tenant-e00abc"},
            "spec": {
                "region": "eu-north1", "fabric": fabric,
                "compute_instance": {"platform": "gpu-h100-sxm", "preset": {"name": "8gpu-128vcpu-1600gb"}},
            },
            "status": {way: {"data_state": state, "available": count} for way, count in available.items()},
        }  # fmt: skip

    def test_too_few_nodes_are_reported_with_the_fabrics_that_have_them(
        self, api: NebiusServer, reported: list[str]
    ) -> None:
        api.place.advice = (self.advice("fabric-3", on_demand=1), self.advice("fabric-6", on_demand=5, reserved=1))
        check(api)
        (line,) = reported
        assert line.startswith("gpu-h100-sxm/8gpu-128vcpu-1600gb on fabric-3: room for 1 more nodes at present")
        assert line.endswith(
            "(reserved and on demand), 2 needed: their node group waits until there is room; to do: write a fabric "
            "with room: fabric-6"
        )

    @pytest.mark.parametrize("row", [{"on_demand": 2}, {"reserved": 1, "on_demand": 1}, {"state": "DATA_STATE_STALE"}])
    def test_enough_or_unknown_capacity_is_not_reported(
        self, api: NebiusServer, reported: list[str], row: dict[str, Any]
    ) -> None:
        given: dict[str, Any] = {"on_demand": 0, **row}
        api.place.advice = (self.advice("fabric-3", **given),)
        check(api)
        assert reported == []


class TestPrograms:
    def test_kubectl_and_the_credential_command_are_looked_for_first(
        self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(NebiusError) as raised:
            check(api, command=["nebius", "mk8s", "v1", "cluster", "get-token"])
        assert "kubectl is not on PATH" in str(raised.value)
        assert "nebius is not on PATH, which gives kubectl and Helm their credential" in str(raised.value)

    @pytest.mark.parametrize(
        ("command", "why"),
        [
            (["/bin/false"], "failed with exit code 1"),
            (["/bin/echo", "token"], "does not print an ExecCredential of client.authentication.k8s.io/v1beta1"),
            (["/bin/echo", json.dumps({**CREDENTIAL, "apiVersion": "client.authentication.k8s.io/v1"})], "does not"),
        ],
    )
    def test_a_command_without_a_credential_is_refused(self, api: NebiusServer, command: list[str], why: str) -> None:
        with pytest.raises(NebiusError, match=why):
            check(api, command=command)
        check(api, request(), command=command)  # the API server is asked then
