"""Shared file systems in pods: volumes of the nodes' mounts, and what checks that they are mounted."""

from collections.abc import Iterable
from typing import Any

from cluster.platforms.nebius.names import JAIL_LABEL
from cluster.platforms.nebius.node_groups import ACCOUNTING, JAIL, SPOOL, submount_tag
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.values import filters, images

SIZE = "1Ti"
"""What each volume says of itself. Nothing reads it, and Kubernetes refuses another size for a claim that is bound, so
it is not the size of the file system, which may grow."""
LOCAL_CLASS = "slurm-local-pv"
"""StorageClass of volumes that are mounts of the node (storageClass.local.name of helm-slurm-cluster-storage)."""
IMAGE_STORAGE = "image-storage"
"""Volume, and ConfigMap of helm-soperator-custom-configmaps, of disks for container images."""


def storage(inputs: Inputs) -> dict[str, Any]:
    """Values of helm-slurm-cluster-storage: on every node with the file system, a pod keeps it mounted."""
    return {
        "volume": {
            "jail": {"size": SIZE, "filestoreDeviceName": JAIL},
            "controllerSpool": {"size": SIZE, "filestoreDeviceName": SPOOL},
            "accounting": {"enabled": True, "size": SIZE, "filestoreDeviceName": ACCOUNTING},
            "jailSubMounts": [
                {"name": name, "size": SIZE, "filestoreDeviceName": submount_tag(name)}
                for name in inputs.settings.filesystems.submounts
            ],
        },
        "storage": {
            "jail": {
                "matchExpressions": [{"key": JAIL_LABEL, "operator": "In", "values": ["true"]}],
                "tolerations": [filters.ANY_ROLE, *([filters.ON_GPUS] if inputs.gpus else [])],
            },
            "controllerSpool": _on("controller"),
            "accounting": _on("accounting"),
        },
    }


def _on(role: str) -> dict[str, Any]:
    return {"matchExpressions": [filters.role_is(role)], "tolerations": [filters.tolerated(role)]}


def claim(name: str) -> dict[str, Any]:
    """A volume source of a claim of the storage chart."""
    return {"persistentVolumeClaim": {"claimName": f"{name}-pvc", "readOnly": False}}


def sources(inputs: Inputs) -> list[dict[str, Any]]:
    """The volume sources that parts of a SlurmCluster name."""
    return [
        {"name": JAIL, **claim(JAIL)},
        {"name": SPOOL, **claim(SPOOL)},
        *({"name": tag, **claim(tag)} for tag in map(submount_tag, inputs.settings.filesystems.submounts)),
    ]


def submounts(inputs: Inputs) -> list[dict[str, Any]]:
    """File systems inside the jail, by the name of their volume source."""
    return [
        {"name": name, "mountPath": one.mount, "volumeSourceName": submount_tag(name)}
        for name, one in inputs.settings.filesystems.submounts.items()
    ]


def ensure_mounted(inputs: Inputs, *, with_submounts: bool = False) -> list[dict[str, Any]]:
    """Containers that let a pod start only where its file systems are mounted, not on a node's empty directories."""
    names = inputs.settings.filesystems.submounts if with_submounts else ()
    mounts = [("ensure-jail-virtiofs", JAIL), *((f"ensure-jail-submount-{name}-virtiofs", name) for name in names)]
    return [_grep(images.busybox(inputs), name, volume, "virtiofs") for name, volume in mounts]


def ensure_disk(inputs: Inputs, name: str, filesystem: str) -> dict[str, Any]:
    """The same for a disk of the node's own."""
    return _grep(images.busybox(inputs), f"ensure-{name}-{filesystem}", name, filesystem)


def image_directories(inputs: Inputs) -> dict[str, Any]:
    """A container that makes the directories of enroot and Docker on a disk for container images."""
    directories = [f"/volume-mount/{one}" for one in ("enroot/cache", "enroot/data", "enroot/runtime", "docker")]
    script = f"mkdir -p {' '.join(directories)} && chmod 777 -R /volume-mount/enroot /volume-mount/docker"
    return _container(images.busybox(inputs), "prepare-image-storage", IMAGE_STORAGE, ["sh", "-c", script])


def _grep(image: str, name: str, volume: str, filesystem: str) -> dict[str, Any]:
    return _container(image, name, volume, ["grep", f" /volume-mount {filesystem} ", "/proc/mounts"])


def _container(image: str, name: str, volume: str, command: Iterable[str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "volumeMounts": [{"name": volume, "mountPath": "/volume-mount"}],
        "command": [*command],
    }
