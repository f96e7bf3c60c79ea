"""Checks of a cluster: active checks and the DCGM exporter."""

from typing import Any

from cluster.platforms.nebius.machine_types import GIB, Resources
from cluster.platforms.nebius.releases.charts import soperator_release
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values import images
from cluster.platforms.nebius.releases.values.slurm_conf import topology_plugin
from cluster.platforms.nebius.releases.values.tiers import requests

_DCGM = Resources(cpu=50, memory=GIB // 2)
GPU_CHECKS = (
    "all-reduce-perf-nccl-in-docker",
    "all-reduce-perf-nccl-with-ib",
    "all-reduce-perf-nccl-without-ib",
    "cuda-samples",
    "gpu-fryer",
    "ib-gpu-perf",
    "mem-perf",
)
"""Checks of minutes, which every worker with GPUs runs alone. Without GPUs they would fail."""
LONG_CHECKS = ("dcgmi-diag-r2", "dcgmi-diag-r3")
CHECKS_USER = "soperatorchecks"
"""The user whose jobs checks are. AccountingStorageEnforce accepts them only where it has an account."""


def dcgm_exporter(inputs: Inputs) -> Release:
    """Metrics of GPUs, with the job that each has."""
    values: dict[str, Any] = {
        "dcgmHpcJobMappingDir": "/var/run/nebius/slurm",
        # Waits for the toolkit that the GPU operator installs.
        "validateToolkit": inputs.settings.gpu.driver == "operator",
        "daemonSet": {"nvidiaDcgmExporter": {"resources": requests(_DCGM)}},
    }
    return soperator_release(
        inputs, "soperator-dcgm-exporter", values=values, needs=("prometheus-operator-crds",), after=("nodes", "gpu")
    )


def active_checks(inputs: Inputs, *needs: str) -> Release:
    """Checks that run when the cluster comes up, and then by schedule.

    Without hooks: the chart's own Job would fail the release with the first check that fails, and uninstall nothing but
    leave `up` without the rest. The program shows checks that failed instead.

    After accounts: with AccountingStorageEnforce Slurm refuses jobs of a user without one.
    """
    values: dict[str, Any] = {
        "slurmClusterRefName": inputs.name,
        **images.checks(inputs),
        "cudaVersion": inputs.settings.gpu.cuda,
        "checks": _checks(inputs),
    }
    if counts := {inputs.gpus_of(name) for name in inputs.nodesets} - {0}:
        values["slurmJob"] = {"gpusPerNode": str(min(counts))}
    return soperator_release(
        inputs,
        "soperator-activechecks",
        values=values,
        needs=needs,
        after=("available", "people"),
        hooks=False,
        timeout=1800,
    )


def _checks(inputs: Inputs) -> dict[str, Any]:
    """What differs from the chart's own, by `health.scope`."""
    scope = inputs.settings.health.scope
    quick, long = scope in ("prod_quick", "prod_acceptance"), scope == "prod_acceptance"
    checks: dict[str, dict[str, Any]] = {
        **{name: _run(inputs, after_creation=quick) for name in GPU_CHECKS},
        **{name: _run(inputs, after_creation=long) for name in LONG_CHECKS},
        "prepull-container-image": _run(inputs, after_creation=quick),
        "manage-jail-state": {"runAfterCreation": scope != "skip_all"},
        "ssh-check": {"k8sJobSpec": {"jobContainer": {"env": _login_count(inputs)}}},
    }
    if scope == "testing":
        for name in GPU_CHECKS:
            checks[name]["suspend"] = True
    if topology_plugin(inputs) not in ("topology/tree", "topology/block"):
        checks["wait-for-topology"] = {"runAfterCreation": False}  # it would wait for a file that nobody writes
    return checks


def _run(inputs: Inputs, *, after_creation: bool) -> dict[str, Any]:
    """Whether a check of GPUs runs when the cluster comes up; never, where there are none."""
    return {"runAfterCreation": after_creation} if inputs.gpus else {"runAfterCreation": False, "suspend": True}


def _login_count(inputs: Inputs) -> list[dict[str, str]]:
    return [{"name": "NUM_OF_LOGIN_NODES", "value": str(inputs.config.login.count)}]
