"""Workers as NodeSets: values of helm-nodesets."""

from typing import Any

from cluster.catalog.parameters import NODE
from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.names import CLUSTER_ANNOTATION, NODESET_NAME_LABEL
from cluster.platforms.nebius.node_groups import JAIL
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.values import filters, images, volumes
from cluster.platforms.nebius.section import Workers
from cluster.roster import nodeset_gpu, sizes
from cluster.slurm.text import assignments, overridden

PRIORITY = "soperator-worker-high-priority"
"""PriorityClass of workers, which the chart creates."""
SUPERVISORD = "custom-supervisord-config"
"""ConfigMap of helm-soperator-custom-configmaps: what runs in a worker beside slurmd."""
SHARED_MEMORY = "256Gi"
"""Size limit of /dev/shm on nodes with GPUs, where NCCL and data loaders exchange data (the guide's example)."""
SMALL_SHARED_MEMORY = "64Gi"
"""On other nodes. Memory that is used there counts against the job."""
_JOBS_DIRECTORY = "/var/run/nebius/slurm"
"""Where the prolog writes which job has which GPU, and the DCGM exporter reads it."""


def nodesets(inputs: Inputs) -> dict[str, Any]:
    """Values of the chart."""
    return {"nodesets": [_nodeset(inputs, name) for name in inputs.nodesets], **images.nodesets(inputs)}


def _nodeset(inputs: Inputs, name: str) -> dict[str, Any]:
    section = inputs.config.nodesets[name]
    size = sizing.worker(inputs.config, name)
    resources = size.slurmd.quantities
    slurmd: dict[str, Any] = {
        "resources": {**resources, "gpu": size.gpus} if size.gpus else resources,
        "volumes": _volumes(inputs, name),
    }
    if size.gpus:
        slurmd["customEnv"] = [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,graphics,utility,video"}]
    values: dict[str, Any] = {
        "name": name,
        "annotations": {CLUSTER_ANNOTATION: inputs.name},
        "replicas": section.count,
        # Pods that are restarted together when slurmd's image or size changes: a fifth, as by the chart, at least one.
        "maxUnavailable": max(1, section.count // 5),
        "gpu": {"enabled": bool(size.gpus), **({"nvidia": {"gdrCopyEnabled": True}} if size.gpus else {})},
        "nodeConfig": {
            **({"features": list(section.features)} if section.features else {}),
            "static": _static(inputs, name),
        },
        "slurmd": slurmd,
        "munge": {"resources": size.munge.quantities},
        "configMapRefSupervisord": SUPERVISORD,
        "enableHostUserNamespace": True,
        "priorityClass": PRIORITY,
        "nodeSelector": {NODESET_NAME_LABEL: name},
        "customInitContainers": _initial(inputs, name),
    }
    if size.gpus:
        values["tolerations"] = [filters.ON_GPUS]
    return values


def _static(inputs: Inputs, name: str) -> str:
    """What NodeName lines have besides the name, the address and RealMemory, which Soperator writes."""
    section = inputs.config.nodesets[name]
    size, gpu = sizes(inputs.config, section), nodeset_gpu(inputs.config, section)
    settings = {
        "CPUs": size.cpus,
        "Boards": 1,
        "SocketsPerBoard": size.sockets,
        "CoresPerSocket": size.cores,
        "ThreadsPerCore": size.threads,
        "Gres": f"gpu:{gpu.type}:{gpu.count}" if gpu else None,
    }
    return " ".join(assignments(overridden(settings, section.node_conf, NODE)))


def _volumes(inputs: Inputs, name: str) -> dict[str, Any]:
    extra = _workers(inputs, name)
    shared = [
        {"name": one["name"], "mountPath": one["mountPath"], "volumeSource": volumes.claim(one["volumeSourceName"])}
        for one in volumes.submounts(inputs)
    ]
    local = [
        {"name": disk, "mountPath": one.mount, "volumeClaimTemplateSpec": _disk(one.storage_class, one.size_gib)}
        for disk, one in extra.local_disks.items()
    ]
    image = extra.image_disk
    if image:
        disk = _disk(image.storage_class, image.size_gib)
        local.append(
            {"name": volumes.IMAGE_STORAGE, "mountPath": "/mnt/image-storage", "volumeClaimTemplateSpec": disk}
        )
    return {
        "spool": {"emptyDir": {}},
        "jail": volumes.claim(JAIL),
        "jailSubMounts": [*shared, *local],
        "customVolumeMounts": _custom(inputs, name),
        "sharedMemorySize": _shared_memory(inputs, name),
        # Disks of single nodes go with their pods, as the recipe has it: nobody would find them again.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    }


def _shared_memory(inputs: Inputs, name: str) -> str:
    """Size limit of /dev/shm: at most half of the pod's memory, as on Linux."""
    size = sizing.worker(inputs.config, name)
    wanted = SHARED_MEMORY if size.gpus else SMALL_SHARED_MEMORY
    half = size.memory_mib // 2 // 1024
    return f"{min(int(wanted.removesuffix('Gi')), max(1, half))}Gi"


def _custom(inputs: Inputs, name: str) -> list[dict[str, Any]]:
    """Slurm's prolog and epilog of Soperator, which the cluster's chart mounts in all pods but these; host folders."""
    scripts = "slurm-scripts" if inputs.number < (5,) else f"{inputs.name}-slurm-scripts"
    source = {"configMap": {"name": scripts, "defaultMode": 0o755}}
    mounts: list[dict[str, Any]] = [
        {"name": "slurm-scripts", "mountPath": "/opt/slurm_scripts/", "volumeSource": source},
        {"name": "slurm-scripts-jail", "mountPath": "/mnt/jail.upper/opt/slurm_scripts/", "volumeSource": source},
    ]
    if inputs.gpus_of(name):
        mounts.append(_host("hpc-jobs-dir", _JOBS_DIRECTORY, _JOBS_DIRECTORY, "DirectoryOrCreate"))
        if inputs.settings.gpu.driver == "preinstalled":
            # Where the GPU operator would have its driver: the driver is in the root of the node.
            mounts.append(_host("nvidia-driver-root", "/run/nvidia/driver", "/", ""))
    if _workers(inputs, name).image_disk:
        mounts += [
            _config("enroot-on-image-storage", "/etc/enroot/enroot.conf.d/custom-dirs.conf", "enroot.conf"),
            _config("docker-on-image-storage", "/etc/docker/daemon.json", "daemon.json"),
        ]
    return mounts


def _host(name: str, mount: str, path: str, kind: str) -> dict[str, Any]:
    return {"name": name, "mountPath": mount, "volumeSource": {"hostPath": {"path": path, "type": kind}}}


def _config(name: str, path: str, key: str) -> dict[str, Any]:
    source = {"configMap": {"name": volumes.IMAGE_STORAGE, "defaultMode": 0o500}}
    return {"name": name, "mountPath": path, "subPath": key, "readOnly": True, "volumeSource": source}


def _disk(storage_class: str, size_gib: int) -> dict[str, Any]:
    requests = {"requests": {"storage": f"{size_gib}Gi"}}
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": requests}


def _initial(inputs: Inputs, name: str) -> list[dict[str, Any]]:
    extra = _workers(inputs, name)
    found = volumes.ensure_mounted(inputs, with_submounts=True)
    found += [volumes.ensure_disk(inputs, disk, one.filesystem) for disk, one in extra.local_disks.items()]
    if extra.image_disk:
        found.append(volumes.ensure_disk(inputs, volumes.IMAGE_STORAGE, extra.image_disk.filesystem))
        found.append(volumes.image_directories(inputs))
    return found


def _workers(inputs: Inputs, name: str) -> Workers:
    return inputs.settings.workers.get(name) or Workers()
