"""Values of each chart: the templates in charts/, which stand beside the chart's own values.yaml, filled for a cluster.

`${name}` is replaced by what `chart_values` gives for the name: by the value itself where nothing else is in the text,
so that it may be a mapping, or an output of Pulumi's, which nobody looks into.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.config.cluster import ClusterConfig
from cluster.findings import listing, nearest
from cluster.platforms.nebius import monitoring, sizing, slurm
from cluster.platforms.nebius.machine_types import MUNGE, Resources
from cluster.platforms.nebius.names import GPU, LOGIN_NODE_PORT, MONITORING_NAMESPACE, NODESET_LABEL
from cluster.platforms.nebius.node_groups import JAIL, SPOOL, submount_tag
from cluster.platforms.nebius.section import Nebius, NodeDisk, Workers
from cluster.platforms.nebius.versions import image_tag, series
from cluster.roster import has_gpus, nodeset_gpu
from cluster.slurm.power_saving import elastic_nodesets

FOLDER = Path(__file__).parent / "charts"
NODESETS = "nodesets"
_DEFAULT_REGISTRY = "cr.eu-north1.nebius.cloud/soperator"
"""The registry of Soperator's images in the charts' own values."""
_OCI = "oci://"
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_OMIT: Any = object()
"""A value that leaves its key out, and the mapping above it where nothing else is in it."""
_ON_GPUS = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
"""Tolerates the taint of nodes with GPUs."""
_ANY_ROLE = {"key": NODESET_LABEL, "operator": "Exists", "effect": "NoSchedule"}
"""Tolerates the taint of every service's nodes."""
_SIZE = "1Ti"
"""Size of each volume: see charts/slurm-cluster-storage.yaml."""
_IMAGE_STORAGE = "image-storage"
"""Volume, and ConfigMap of helm-soperator-custom-configmaps, of disks for container images."""
_SHARED_MEMORY_GIB, _SMALL_SHARED_MEMORY_GIB = 256, 64
"""Size limit of /dev/shm on nodes with GPUs, where NCCL and data loaders exchange data (the guide's example), and on
others. Memory that is used there counts against the job."""
_JOBS_DIRECTORY = "/var/run/nebius/slurm"
"""The folder where the prolog writes which job has which GPU, and the DCGM exporter reads it."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts for the values that are known only once the cloud has created them. Each may be an output of Pulumi's."""

    root_keys: Sequence[Any]
    """SSH public keys that may log in as root, the stack's own first."""
    allocation: Any = None
    """Id of the login Service's public address; None where it has none of its own."""
    backups: Mapping[str, Any] = field(default_factory=dict)
    """The backup bucket: name, endpoint; empty without backups."""


@cache
def template(name: str) -> dict[str, Any]:
    """The template of a release's chart."""
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def filled(part: Any, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any YAML
    """A template with its placeholders replaced. Raises KeyError for a placeholder that is not given."""
    if isinstance(part, Mapping):
        members = {key: filled(value, given) for key, value in part.items()}
        kept = {key: value for key, value in members.items() if value is not _OMIT}
        return kept if kept or not members else _OMIT
    if isinstance(part, list):
        return [filled(value, given) for value in part]
    if not isinstance(part, str):
        return part
    if whole := _PLACEHOLDER.fullmatch(part):
        return given[whole[1]]
    if any(given[name] is _OMIT for name in _PLACEHOLDER.findall(part)):
        return _OMIT
    return _PLACEHOLDER.sub(lambda found: str(given[found[1]]), part)


def unknown_values(given: Mapping[str, Any], text: bytes, path: str) -> Iterator[tuple[str, str]]:
    """Keys that the values.yaml of a chart lacks: what is wrong, and what to do where another key was surely meant.

    A mapping that is empty there takes any key. One that is not may still be passed on as a whole.
    """
    yield from _unknown(given, yaml.safe_load(text) or {}, path)


def _unknown(given: Mapping[str, Any], known: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, below in given.items():
        if key not in known:
            meant = nearest(key, known)
            todo = f"write {meant}" if meant else ""
            yield f"{path}.{key}: the chart's values.yaml has no such key\n  allowed: {listing(known)}", todo
        elif below and known[key] and isinstance(known[key], Mapping):
            yield from _unknown(below, known[key], f"{path}.{key}")


def chart_values(config: ClusterConfig, settings: Nebius, facts: Facts) -> Callable[[str], dict[str, Any]]:
    """Gives the values of a release's chart, by the release's name."""
    given = {**_cluster(config, settings), **_services(config, settings, facts)}

    def values(name: str) -> dict[str, Any]:
        if name == NODESETS:
            (member,) = template(name)[NODESETS]
            rows = [filled(member, {**given, **_nodeset(config, settings, nodeset)}) for nodeset in config.nodesets]
            rest = {key: value for key, value in template(name).items() if key != NODESETS}
            return {NODESETS: rows, **({} if (more := filled(rest, given)) is _OMIT else more)}
        return filled(template(name), given) if (FOLDER / f"{name}.yaml").exists() else {}

    return values


def _cluster(config: ClusterConfig, settings: Nebius) -> dict[str, Any]:
    version, registry = settings.soperator.version, _registry(settings)
    moved = registry != _DEFAULT_REGISTRY
    gpus = {gpu.count for nodeset in config.nodesets.values() if (gpu := nodeset_gpu(config, nodeset))}
    tier = sizing.tier(config)
    return {
        "cluster": config.name,
        "version": version,
        "registry": registry,
        # Images are named where they come from another registry than the charts' own values have.
        "mirror": registry if moved else _OMIT,
        "mirror_version": version if moved else _OMIT,
        "mirror_tag": image_tag(version) if moved else _OMIT,
        "tag": image_tag(version),
        "cuda": settings.gpu.cuda,
        "gpu_operator": settings.gpu.driver == "operator",
        "replace_nodes": settings.health.replace_nodes,
        "schedule": settings.backups.schedule,
        "keep_daily": settings.backups.keep_daily,
        "fewest_gpus": str(min(gpus)) if gpus else _OMIT,
        "active_checks": _active_checks(config, settings),
        "kruise": tier.kruise.quantities,
        "operator": _requests(tier.operator),
        "checks": _requests(tier.checks),
        "metrics": _requests(tier.metrics),
        "monitoring": MONITORING_NAMESPACE,
        **dict.fromkeys(monitoring.OPTIONAL, _OMIT),
        **monitoring.values(config),
        "munge": MUNGE.quantities,
    }


def _services(config: ClusterConfig, settings: Nebius, facts: Facts) -> dict[str, Any]:
    gpus, conf = has_gpus(config), slurm.conf(config)
    submounts = settings.filesystems.submounts
    tags = (JAIL, SPOOL, *map(submount_tag, submounts))
    return {
        "slurm_config": conf.in_chart,
        "custom_slurm_config": conf.text or _OMIT,
        "partitions": slurm.partitions(config),
        "account_gather": config.slurm.job_account_gather or "cgroup",
        "tres": "CPU,Mem,Node,VMem,Gres/gpu" if gpus else "CPU,Mem,Node,VMem",
        "keep": f"{config.accounting.purge_after_months}month",
        "mariadb": sizing.MARIADB.quantities,
        "slurmdbd": sizing.slurmdbd(settings).quantities,
        "slurmctld": sizing.slurmctld(config).quantities,
        "sshd": sizing.sshd(config).quantities,
        "exporter": sizing.EXPORTER.quantities,
        "rest": sizing.on_system(settings, sizing.tier(config).rest).quantities,
        "logins": config.login.count,
        "root_keys": list(facts.root_keys),
        "service": settings.login.service,
        **_service(settings, facts),
        "jail_tolerations": [_ANY_ROLE, *([_ON_GPUS] if gpus else [])],
        "storage_submounts": [
            {"name": name, "size": _SIZE, "filestoreDeviceName": submount_tag(name)} for name in submounts
        ],
        "volume_sources": [{"name": tag, **_claim(tag)} for tag in tags],
        "submounts": [
            {"name": name, "mountPath": one.mount, "volumeSourceName": submount_tag(name)}
            for name, one in submounts.items()
        ],
        "jail_mounted": _mounted(settings, JAIL),
        "all_mounted": _mounted(settings, JAIL, *submounts),
        "bucket": facts.backups.get("name", _OMIT),
        "endpoint": facts.backups.get("endpoint", _OMIT),
    }


def _service(settings: Nebius, facts: Facts) -> dict[str, Any]:
    if settings.login.service == "NodePort":
        return {"node_port": LOGIN_NODE_PORT, "service_annotations": _OMIT}
    annotations = {} if facts.allocation is None else {"nebius.com/load-balancer-allocation-id": facts.allocation}
    if settings.login.exposure == "internal":
        annotations["nebius.com/load-balancer-type"] = "internal"
    return {"node_port": _OMIT, "service_annotations": annotations}


def _active_checks(config: ClusterConfig, settings: Nebius) -> dict[str, Any]:
    scope, of = settings.health.scope, series(settings.soperator.version)
    quick, long = scope in ("prod_quick", "prod_acceptance"), scope == "prod_acceptance"

    def run(*, after_creation: bool) -> dict[str, Any]:
        """A check of GPUs never runs where there are none."""
        return (
            {"runAfterCreation": after_creation} if has_gpus(config) else {"runAfterCreation": False, "suspend": True}
        )

    checks: dict[str, dict[str, Any]] = {
        **{name: run(after_creation=quick) for name in of.gpu_checks},
        **{name: run(after_creation=long) for name in of.long_checks},
        "manage-jail-state": {"runAfterCreation": scope != "skip_all"},
    }
    if long and not of.long_checks_enabled:
        for name in of.long_checks:
            checks[name]["enabled"] = True
    if of.prepull:
        checks[of.prepull] = run(after_creation=quick)
    if of.counts_logins:
        count = {"name": "NUM_OF_LOGIN_NODES", "value": str(config.login.count)}
        checks[of.counts_logins] = {"k8sJobSpec": {"jobContainer": {"env": [count]}}}
    if scope == "testing":
        for name in of.gpu_checks:
            checks[name]["suspend"] = True
    if elastic_nodesets(config):
        checks["ensure-healthy-nodes"] = {"runAfterCreation": False}  # it takes nodes that are powered down for down
    if slurm.topology_plugin(config, settings) not in ("topology/tree", "topology/block"):
        checks["wait-for-topology"] = {"runAfterCreation": False}  # it would wait for a file that nobody writes
    return checks


def _nodeset(config: ClusterConfig, settings: Nebius, name: str) -> dict[str, Any]:
    section, size = config.nodesets[name], sizing.worker(config, name)
    workers = settings.workers.get(name) or Workers()
    resources = size.slurmd.quantities
    return {
        "name": name,
        "count": section.most,
        # From 5.0 on it also limits the pods that start together: nodes that wake for one job.
        "together": section.most if section.elastic else max(1, section.most // 5),
        "elastic": True if section.elastic else _OMIT,
        "awake": section.static if section.elastic else _OMIT,
        "has_gpus": bool(size.gpus),
        "if_gpus": True if size.gpus else _OMIT,
        "gpu_tolerations": [_ON_GPUS] if size.gpus else _OMIT,
        "features": list(section.features) or _OMIT,
        "static": slurm.node_line(config, name),
        "slurmd": {**resources, "gpu": size.gpus} if size.gpus else resources,
        "environment": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,graphics,utility,video"}]
        if size.gpus
        else _OMIT,
        "mounts": _mounts(settings, workers),
        "custom_mounts": _custom_mounts(config, settings, workers, gpus=bool(size.gpus)),
        "shared_memory": _shared_memory(size),
        "initial": _initial(settings, workers),
    }


def _mounts(settings: Nebius, workers: Workers) -> list[dict[str, Any]]:
    """File systems and disks inside the jail of a worker, and its disk for container images."""
    found = [
        {"name": name, "mountPath": one.mount, "volumeSource": _claim(submount_tag(name))}
        for name, one in settings.filesystems.submounts.items()
    ]
    found += [
        {"name": name, "mountPath": one.mount, "volumeClaimTemplateSpec": _disk(one)}
        for name, one in workers.local_disks.items()
    ]
    if disk := workers.image_disk:
        found.append(
            {"name": _IMAGE_STORAGE, "mountPath": "/mnt/image-storage", "volumeClaimTemplateSpec": _disk(disk)}
        )
    return found


def _custom_mounts(config: ClusterConfig, settings: Nebius, workers: Workers, *, gpus: bool) -> list[dict[str, Any]]:
    """Slurm's prolog and epilog of Soperator, which the cluster's chart mounts in all pods but these; host folders."""
    scripts = filled(series(settings.soperator.version).scripts, {"cluster": config.name})
    source = {"configMap": {"name": scripts, "defaultMode": 0o755}}
    mounts: list[dict[str, Any]] = [
        {"name": "slurm-scripts", "mountPath": "/opt/slurm_scripts/", "volumeSource": source},
        {"name": "slurm-scripts-jail", "mountPath": "/mnt/jail.upper/opt/slurm_scripts/", "volumeSource": source},
    ]
    if gpus:
        jobs = {"hostPath": {"path": _JOBS_DIRECTORY, "type": "DirectoryOrCreate"}}
        mounts.append({"name": "hpc-jobs-dir", "mountPath": _JOBS_DIRECTORY, "volumeSource": jobs})
        if settings.gpu.driver == "preinstalled":
            # Where the GPU operator would have its driver: the driver is in the root of the node.
            root = {"hostPath": {"path": "/", "type": ""}}
            mounts.append({"name": "nvidia-driver-root", "mountPath": "/run/nvidia/driver", "volumeSource": root})
    if workers.image_disk:
        source = {"configMap": {"name": _IMAGE_STORAGE, "defaultMode": 0o500}}
        mounts += [
            {"name": name, "mountPath": path, "subPath": key, "readOnly": True, "volumeSource": source}
            for name, path, key in (
                ("enroot-on-image-storage", "/etc/enroot/enroot.conf.d/custom-dirs.conf", "enroot.conf"),
                ("docker-on-image-storage", "/etc/docker/daemon.json", "daemon.json"),
            )
        ]
    return mounts


def _initial(settings: Nebius, workers: Workers) -> list[dict[str, Any]]:
    """Containers before slurmd: they check mounts, and make the directories of enroot and Docker on an image disk."""
    found = _mounted(settings, JAIL, *settings.filesystems.submounts)
    disks = {**workers.local_disks, **({_IMAGE_STORAGE: workers.image_disk} if workers.image_disk else {})}
    found += [
        _container(settings, f"ensure-{name}-{one.filesystem}", name, *_grep(one.filesystem))
        for name, one in disks.items()
    ]
    if workers.image_disk:
        directories = [f"/volume-mount/{name}" for name in ("enroot/cache", "enroot/data", "enroot/runtime", "docker")]
        script = f"mkdir -p {' '.join(directories)} && chmod 777 -R /volume-mount/enroot /volume-mount/docker"
        found.append(_container(settings, "prepare-image-storage", _IMAGE_STORAGE, "sh", "-c", script))
    return found


def _mounted(settings: Nebius, *names: str) -> list[dict[str, Any]]:
    """Containers that let a pod start only where its file systems are mounted, not on a node's empty directories."""
    return [
        _container(
            settings,
            "ensure-jail-virtiofs" if name == JAIL else f"ensure-jail-submount-{name}-virtiofs",
            name,
            *_grep("virtiofs"),
        )
        for name in names
    ]


def _grep(filesystem: str) -> tuple[str, ...]:
    return "grep", f" /volume-mount {filesystem} ", "/proc/mounts"


def _container(settings: Nebius, name: str, volume: str, *command: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"{_registry(settings)}/busybox",
        "volumeMounts": [{"name": volume, "mountPath": "/volume-mount"}],
        "command": [*command],
    }


def _registry(settings: Nebius) -> str:
    """Return where images come from: the registry of the charts. Charts of a folder have images of the default one."""
    charts = settings.soperator.charts.rstrip("/")
    return charts.removeprefix(_OCI) if charts.startswith(_OCI) else _DEFAULT_REGISTRY


def _claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": f"{name}-pvc", "readOnly": False}}


def _disk(disk: NodeDisk) -> dict[str, Any]:
    requests = {"requests": {"storage": f"{disk.size_gib}Gi"}}
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": disk.storage_class, "resources": requests}


def _shared_memory(size: sizing.WorkerSize) -> str:
    """Size limit of /dev/shm: at most half of the pod's memory, as on Linux."""
    wanted = _SHARED_MEMORY_GIB if size.gpus else _SMALL_SHARED_MEMORY_GIB
    return f"{min(wanted, max(1, size.memory_mib // 2 // 1024))}Gi"


def _requests(size: Resources) -> dict[str, dict[str, str]]:
    """Return the quantities as Kubernetes has them: requested, with the memory as a limit."""
    given = size.quantities
    return {"requests": {"cpu": given["cpu"], "memory": given["memory"]}, "limits": {"memory": given["memory"]}}
