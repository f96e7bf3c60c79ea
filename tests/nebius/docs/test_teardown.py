"""A destroy ends what would outlive the cluster, in the order in which nothing comes back."""

import json
from typing import Any, cast

import pytest

from components.nebius import teardown
from components.nebius.kubectl import Kubectl, KubectlError
from tests.nebius.docs.kubectl import Cluster, row


def cluster() -> Cluster:
    """One with an operator, a load balancer, and a volume."""
    found = Cluster()
    found.objects["deployments"] = [row("soperator", status={"replicas": 1})]
    found.objects["services"] = [row("slurm-login-svc", spec={"type": "LoadBalancer"})]
    volume: dict[str, Any] = {
        "csi": {"driver": teardown.CSI_DRIVER},
        "claimRef": {"namespace": "slurm"},
        "persistentVolumeReclaimPolicy": "Delete",
    }
    found.objects["persistentvolumes"] = [row("pvc-1", spec=volume)]
    found.answers["version"] = lambda _: json.dumps({})

    def scale(_words: Any) -> str:
        found.objects["deployments"] = [row("soperator", status={})]
        return ""

    def delete(words: Any) -> str:
        gone = {"service": "services", "persistentvolumeclaims": "persistentvolumes"}.get(words[0])
        if gone:
            found.objects[gone] = []
        return ""

    found.answers["scale"], found.answers["delete"] = scale, delete
    return found


def torn(found: Cluster, stage: str) -> list[str]:
    """What was done, in its order."""
    teardown.Ending(kubectl=cast("Kubectl", found), pace=0.01, most=0.05).run(stage)
    return [f"{words[0]} {words[1]}" for words in found.ran if words[0] in ("scale", "delete")]


def test_the_operator_ends_before_what_it_would_create_again() -> None:
    steps = ["scale deployment", "delete poddisruptionbudgets", "delete service"]
    assert torn(cluster(), "charts") == steps
    assert torn(cluster(), "volumes") == [*steps, "delete persistentvolumeclaims"]


def test_active_checks_are_not_held_by_an_operator_that_has_ended() -> None:
    """Soperator takes its finalizer away; without it, the chart of the checks would never be uninstalled."""
    found = cluster()
    found.objects["activechecks"] = [row("held", metadata={"finalizers": ["slurm.nebius.ai/f"]}), row("free")]
    torn(found, "charts")
    first = [words[:3] for words in found.ran if words[0] in ("scale", "patch")]
    assert [words[0] for words in first] == ["scale", "patch"]
    assert first[1][2] == "held"


def test_what_does_not_end_is_reported_and_does_not_stop_it(capfd: pytest.CaptureFixture[str]) -> None:
    found = cluster()
    found.answers["scale"] = found.answers["delete"] = lambda _: ""
    assert len(torn(found, "volumes")) == 4
    said = "".join(capfd.readouterr())
    assert "Soperator's pods did not end" in said
    assert "the load balancer of slurm-login-svc is still there" in said
    assert "volumes pvc-1 are still there" in said


def test_a_server_that_does_not_answer_stops_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    found = cluster()

    def refuse(_words: Any) -> str:
        raise KubectlError("connection refused")

    found.answers["version"] = refuse
    assert torn(found, "charts") == []
    assert "API server does not answer" in "".join(capfd.readouterr())
