"""Images, where they come from another registry than the charts' own values have: the registry is in one place."""

from typing import Any

from cluster.platforms.nebius import versions
from cluster.platforms.nebius.releases.inputs import DEFAULT_REGISTRY, Inputs


def busybox(inputs: Inputs) -> str:
    """The image of small helpers."""
    return f"{inputs.registry}/busybox"


def _moved(inputs: Inputs) -> bool:
    return inputs.registry != DEFAULT_REGISTRY


def _tag(inputs: Inputs) -> str:
    return versions.image_tag(inputs.version)


def cluster(inputs: Inputs) -> dict[str, Any]:
    """Of the chart helm-slurm-cluster. MariaDB's is not Soperator's, and stays where it is."""
    if not _moved(inputs):
        return {}
    registry, tag = inputs.registry, _tag(inputs)
    names = {"slurmctld": "controller_slurmctld", "slurmdbd": "controller_slurmdbd", "sshd": "login_sshd"}
    names |= {"slurmd": "worker_slurmd", "munge": "munge", "slurmrestd": "slurmrestd"}
    names["soperatorExporter"] = "soperator-exporter"
    images = {key: f"{registry}/{name}:{tag}" for key, name in names.items()}
    images["sConfigController"] = f"{registry}/sconfigcontroller:{inputs.version}"
    images["populateJailRepository"] = f"{registry}/populate_jail"
    return {"images": images}


def nodesets(inputs: Inputs) -> dict[str, Any]:
    """Of the chart helm-nodesets."""
    if not _moved(inputs):
        return {}
    names = {"munge": "munge", "slurmd": "worker_slurmd"}
    return {
        "images": {key: {"repository": f"{inputs.registry}/{name}", "tag": _tag(inputs)} for key, name in names.items()}
    }


def program(inputs: Inputs, name: str) -> dict[str, Any]:
    """Of one of Soperator's own programs, such as slurm-operator."""
    return {"image": {"repository": f"{inputs.registry}/{name}", "tag": inputs.version}} if _moved(inputs) else {}


def checks(inputs: Inputs) -> dict[str, Any]:
    """Of the chart helm-soperator-activechecks."""
    if not _moved(inputs):
        return {}
    names = {"slurmJob": "slurm_check_job", "k8sJob": "k8s_check_job", "munge": "munge", "sansible": "sansible"}
    return {"images": {key: f"{inputs.registry}/{name}:{_tag(inputs)}" for key, name in names.items()}}
