"""Pods that serve all users: controller, login, REST API, exporter, and what copies configuration into the jail."""

from typing import Any

from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.machine_types import MUNGE
from cluster.platforms.nebius.names import LOGIN_NODE_PORT
from cluster.platforms.nebius.node_groups import JAIL, SPOOL
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.values import tiers, volumes

_ALLOCATION = "nebius.com/load-balancer-allocation-id"
_INTERNAL = {"nebius.com/load-balancer-type": "internal"}
_REST_COUNT = 2


def controller(inputs: Inputs) -> dict[str, Any]:
    """slurmctld: one, also where there could be two. Its state is on the file system, which every node can have."""
    # The chart's default is a disk, and Helm merges the two.
    spool: dict[str, Any] = {"volumeSourceName": SPOOL, "volumeClaimTemplateSpec": None}
    return {
        "k8sNodeFilterName": "controller",
        "slurmctld": {"resources": sizing.slurmctld(inputs.config).quantities},
        "munge": {"resources": MUNGE.quantities},
        "customInitContainers": volumes.ensure_mounted(inputs),
        "volumes": {"spool": spool, "jail": {"volumeSourceName": JAIL}},
    }


def login(inputs: Inputs) -> dict[str, Any]:
    """sshd and the Service in front of it."""
    service = inputs.settings.login
    values: dict[str, Any] = {
        "size": inputs.config.login.count,
        "k8sNodeFilterName": "login",
        "sshd": {"resources": sizing.sshd(inputs.config).quantities},
        "munge": {"resources": MUNGE.quantities},
        "customInitContainers": volumes.ensure_mounted(inputs, with_submounts=True),
        "sshRootPublicKeys": list(inputs.facts.root_keys),
        "sshdServiceType": service.service,
        "volumes": {"jail": {"volumeSourceName": JAIL}, "jailSubMounts": volumes.submounts(inputs)},
    }
    if service.service == "NodePort":
        values["sshdServiceNodePort"] = LOGIN_NODE_PORT
    else:
        allocation = {} if inputs.facts.allocation is None else {_ALLOCATION: inputs.facts.allocation}
        values["sshdServiceAnnotations"] = {**allocation, **(_INTERNAL if service.exposure == "internal" else {})}
    return values


def exporter() -> dict[str, Any]:
    """What Prometheus reads of Slurm."""
    container: dict[str, Any] = {"resources": sizing.EXPORTER.quantities}
    return {"enabled": True, "k8sNodeFilterName": "system", "exporter": container}


def rest(inputs: Inputs) -> dict[str, Any]:
    """slurmrestd, which soperatorchecks works through."""
    return {
        "enabled": True,
        "k8sNodeFilterName": "system",
        "size": _REST_COUNT,
        "rest": {"resources": tiers.on_system(inputs, tiers.tier(inputs).rest).quantities},
        "customInitContainers": volumes.ensure_mounted(inputs),
    }


def sconfig_controller() -> dict[str, Any]:
    """What copies Slurm's files into the jail."""
    return {"node": {"k8sNodeFilterName": "system", "size": 1}}
