"""Helm releases of a cluster: their order, and their values, which templates in charts/ are filled with.

Source: helm/soperator-fluxcd of github.com/nebius/soperator at the tags, which is what its makers install, but without
Flux: `dependsOn` of its templates, versions of its values.yaml, where `4.8.*` is the newest release of 4.8 here.
In a template `${name}` is replaced by what `chart_values` has for the name. A text that is nothing else becomes the
value itself, which may be a mapping, or an output of Pulumi's that is not resolved yet.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.catalog.nebius_machine_types import MUNGE, Resources
from cluster.config.cluster import ClusterConfig
from cluster.findings import listing, nearest
from cluster.platforms.nebius import monitoring, sizing, slurm
from cluster.platforms.nebius.names import GPU, LOGIN_NODE_PORT, MONITORING_NAMESPACE, NODESET_LABEL, OPERATOR_NAMESPACE
from cluster.platforms.nebius.node_groups import JAIL, SPOOL, submount_tag
from cluster.platforms.nebius.stack_file_fields import Nebius, NodeDisk, Workers, settings_of
from cluster.platforms.nebius.versions import CERT_MANAGER, GPU_CHECKS, LONG_CHECKS, SCRIPTS, image_tag
from cluster.roster import has_gpus, nodeset_gpu
from cluster.slurm.power_saving import elastic_nodesets

PROMETHEUS = "https://prometheus-community.github.io"
VICTORIA_METRICS = "https://victoriametrics.github.io/helm-charts"
BACKUP_SECRET = "jail-backup"  # noqa: S105 - the name of a Secret
"""The Secret in the cluster's namespace with the keys aws-access-key-id, aws-access-secret-key and backup-password."""


@dataclass(frozen=True, kw_only=True)
class ChartRelease:
    """A Helm release."""

    name: str
    chart: str
    """Name of the chart in its repository; with an `oci://` or a folder as repository, the last part of its path."""
    repo: str
    """A repository of charts (`https://...`), a registry (`oci://...`) or a folder."""
    version: str
    sha256: str = ""
    """SHA-256 of the chart's archive; empty if no source of it could be had (docs/explanation/security.md)."""
    namespace: str
    values: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Names of releases that are installed before it."""
    after: tuple[str, ...] = ()
    """Further conditions to wait for: `nodes` (node groups are complete, their GPUs too), `populated` (the Job that
    populates the jail is Complete), `available` (the SlurmCluster is), `people` (users and accounts are created)."""
    hooks: bool = True
    """True if the chart's hooks run. Without hooks, the waits of this program replace theirs."""
    post_renderer: str = ""
    """A program that changes the chart's objects before they are installed, by its path in this project."""
    timeout: int = 1200
    """Seconds until its installation has failed. A failed release stays, to be inspected and repeated: Helm's `atomic`
    would uninstall it with all that users have in it."""


@dataclass(frozen=True, kw_only=True)
class CloudFacts:
    """Facts for values that the configuration does not have. Those of the cloud are known only once it has created
    them: each may be an output of Pulumi's."""

    stack: str
    """The stack's name, for the commands of alerts."""
    root_keys: Sequence[Any]
    """SSH public keys that may log in as root, the stack's own first."""
    allocation: Any = None
    """Id of the login Service's public address; None if it has none of its own."""
    backups: Mapping[str, Any] = field(default_factory=dict)
    """The backup bucket: name, endpoint; empty without backups."""


def releases(config: ClusterConfig, facts: CloudFacts) -> tuple[ChartRelease, ...]:
    """Return the releases of a cluster, each after those that it needs. `nebius.values` is merged into the values that
    follow from the rest of the configuration."""
    settings = settings_of(config)
    return tuple(
        replace(release, values=merge_values(release.values, settings.values.get(release.name, {})))
        for release in releases_without_overrides(config, settings, facts)
    )


def releases_without_overrides(config: ClusterConfig, settings: Nebius, facts: CloudFacts) -> tuple[ChartRelease, ...]:
    """Return the releases without values of the stack file."""
    given = chart_values(config, settings, facts)
    version, charts = settings.soperator.version, settings.soperator.charts
    # A folder with Soperator's charts has the others too, because its cluster may reach no other place.
    remote = charts.startswith(("oci://", "https://"))

    def values(name: str) -> dict[str, Any]:
        return fill_template(template(name), given) if (FOLDER / f"{name}.yaml").exists() else {}

    def soperator(name: str, namespace: str = config.name, **more: Any) -> ChartRelease:  # noqa: ANN401 - fields of Release
        """Return a release of Soperator's own chart."""
        chart = {"chart": f"helm-{name}", "repo": charts, "version": version}
        return ChartRelease(name=name, namespace=namespace, values=values(name), **chart, **more)

    def other(name: str, **more: Any) -> ChartRelease:  # noqa: ANN401 - fields of Release
        """Return a release of a chart of others."""
        number, namespace, repo = others[name]
        chart = {"chart": name, "repo": repo if remote else charts, "version": number}
        sha256 = _SHA256.get((name, number), "") if remote else ""
        return ChartRelease(name=name, namespace=namespace, values=values(name), sha256=sha256, **chart, **more)

    mariadb = ("25.10.2", "mariadb-operator-system", "https://helm.mariadb.com/mariadb-operator")
    others = {
        "prometheus-operator-crds": ("19.1.0", "monitoring-system", f"{PROMETHEUS}/helm-charts"),
        "mariadb-operator-crds": mariadb,
        "mariadb-operator": mariadb,
        "cert-manager": (CERT_MANAGER, "cert-manager-system", "https://charts.jetstack.io"),
        "kruise": ("1.8.0", "kruise-system", "https://openkruise.github.io/charts/"),
        "k8up": ("4.8.7", "k8up-system", "https://k8up-io.github.io/k8up"),
        # Versions of nebius/soperator c238d993, the branch of 5.0, whose dashboards these metrics are for.
        "victoria-metrics-k8s-stack": ("0.80.0", MONITORING_NAMESPACE, VICTORIA_METRICS),
        "victoria-logs-single": ("0.13.9", MONITORING_NAMESPACE, VICTORIA_METRICS),
        "opentelemetry-collector": (
            "0.149.0",
            MONITORING_NAMESPACE,
            "https://open-telemetry.github.io/opentelemetry-helm-charts",
        ),
    }
    result = [
        # Charts describe their metrics with these kinds, and some can't be installed without them. The operator of
        # `monitoring` reads them, or a Prometheus of your own.
        other("prometheus-operator-crds"),
        # Soperator looks for MariaDB's custom resources when it starts.
        other("mariadb-operator-crds"),
        other("cert-manager", needs=("prometheus-operator-crds",)),
        # As the post-renderer of helm/soperator-fluxcd/templates/kruise.yaml.
        other("kruise", needs=("cert-manager",), post_renderer="scripts/nebius/webhook_namespace.py"),
        # With the definitions in the chart's `crds/`: the chart helm-soperator-crds can't be installed, because its
        # release record is larger than a Secret may be.
        soperator(
            "soperator",
            OPERATOR_NAMESPACE,
            needs=("prometheus-operator-crds", "cert-manager", "kruise", "mariadb-operator-crds"),
        ),
        other("mariadb-operator", needs=("mariadb-operator-crds", "cert-manager")),
        soperator("storageclasses", "storage-system"),
        # Volumes need nodes that can mount them.
        soperator("slurm-cluster-storage", needs=("soperator", "storageclasses"), after=("nodes",)),
        soperator("soperator-custom-configmaps"),
        # slurmd registers the GPUs that it finds when it starts.
        soperator(
            "slurm-cluster",
            needs=("soperator", "mariadb-operator", "slurm-cluster-storage", "soperator-custom-configmaps"),
            after=("nodes",),
            timeout=3600,
        ),
        soperator("nodesets", needs=("soperator", "slurm-cluster"), after=("nodes",)),
        soperator("soperatorchecks", OPERATOR_NAMESPACE, needs=("soperator",)),
        soperator("nodeconfigurator", OPERATOR_NAMESPACE, needs=("soperator",)),
    ]
    if has_gpus(config):
        result.append(soperator("soperator-dcgm-exporter", needs=("prometheus-operator-crds",), after=("nodes",)))
    result.append(
        # Without hooks: the chart's own Job would fail the release, and with it `up`, at the first failed check.
        # `status` shows failed checks instead. After accounts: with AccountingStorageEnforce Slurm refuses jobs of a
        # user without an account.
        soperator(
            "soperator-activechecks",
            needs=("soperatorchecks", "slurm-cluster", "nodesets"),
            after=("available", "people"),
            hooks=False,
            timeout=1800,
        )
    )
    if facts.backups:
        # The schedule comes after the jail is populated: after an earlier backup no further one can use the repository
        # (github.com/nebius/nebius-solutions-library issue 217).
        result += [
            other("k8up", needs=("cert-manager",)),
            soperator("soperator-backup-config", needs=("k8up", "slurm-cluster"), after=("populated",)),
        ]
    if config.monitoring:
        result += [
            # Its operator reads objects of Prometheus' operator.
            other("victoria-metrics-k8s-stack", needs=("prometheus-operator-crds", "storageclasses"), after=("nodes",)),
            other("victoria-logs-single", needs=("storageclasses",), after=("nodes",)),
            other("opentelemetry-collector", needs=("victoria-logs-single",)),
            soperator("soperator-monitoring-dashboards", MONITORING_NAMESPACE),
        ]
    return tuple(result)


def charts_of(releases: Iterable[ChartRelease], values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the rows of the charts of releases, each once; `values` are those of the stack file by release."""
    rows = {
        (release.repo, release.chart, release.version): {"release": release.name, "values": _keys(given)}
        if (given := (values or {}).get(release.name)) and not release.repo.startswith("http")
        else _checked(release)
        for release in releases
    }
    return [
        {"repo": repo, "chart": chart, "version": version, **rows[repo, chart, version]}
        for repo, chart, version in sorted(rows)
    ]


def _checked(release: ChartRelease) -> dict[str, Any]:
    """Return what the archive of a release's chart is checked by: again where its values change, since Helm then
    downloads it again."""
    if not release.sha256:
        return {}
    values = json.dumps(release.values, sort_keys=True)
    return {"sha256": release.sha256, "for": hashlib.sha256(values.encode()).hexdigest()[:16]}


def _keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys without their values, which may be secret."""
    return {key: _keys(value) if isinstance(value, Mapping) else None for key, value in values.items()}


def images(settings: Nebius) -> list[tuple[str, str, str]]:
    """Return registry, name and tag of the images of Soperator that a Slurm cluster has (charts/slurm-cluster.yaml).

    The jail's tag ends in the version of CUDA (helm/slurm-cluster/templates/slurm-cluster-cr.yaml of 4.1.7).
    """
    version, registry = settings.soperator.version, _registry(settings)
    tag = image_tag(version)
    given = fill_template(template("slurm-cluster")["images"], {"mirror": registry, "version": version, "tag": tag})
    jail = f"{given.pop('populateJailRepository')}:{tag}-cuda{settings.gpu.cuda}"
    named = (image.removeprefix(f"{registry}/").partition(":") for image in (*given.values(), jail))
    return [(registry, name, tag) for name, _, tag in named]


_SHA256: Mapping[tuple[str, str], str] = {
    ("prometheus-operator-crds", "19.1.0"): "a1e131afb29af8d428e41789749cb236987b16c01d777950b84094ff0aba931b",
    ("mariadb-operator-crds", "25.10.2"): "0d920baab9cb91e623e88ff1cefbeeff181dcb66d0eed1ab1885f25089365fc9",
    ("mariadb-operator", "25.10.2"): "2f7cbc523dca8b8ea9a9302795647c110c5d07e2b2293d7c376861d1090d9bd4",
    ("kruise", "1.8.0"): "a1050e2624f5d755eab1020fcd634ffad36a6c84f3789bef1b22e05d0e6b2205",
    ("k8up", "4.8.7"): "81d596a7eac93583b7e0bc49f4324f5ac6cb7f136a48a14fd4f791e739186953",
    ("victoria-metrics-k8s-stack", "0.80.0"): "bd8beaa2dfa6cb6a42d63b57bd08bf2e02dbdb0791c855fb798ad5056c80bd97",
    ("victoria-logs-single", "0.13.9"): "593b3f8e0d26eb925a0e3d59848d17a0abc94597802dc26ba8e0925584176a86",
    ("opentelemetry-collector", "0.149.0"): "b2c0068fcc63ea8afb9f4ce4b9def9b68d8d64dc925c91fdb9ad449118f61f6d",
}
"""SHA-256 of archives of charts of others, by name and version: `digest` of index.yaml on the branch gh-pages of
prometheus-community/helm-charts (0163fae), mariadb-operator/mariadb-operator (40163a1), openkruise/charts (6fa00c3),
k8up-io/k8up (8cbef6c), VictoriaMetrics/helm-charts (d35faca) and open-telemetry/opentelemetry-helm-charts (a13f64d)."""
NODESETS = "nodesets"
_CLUSTER = "slurm-cluster"
FIXED: Mapping[tuple[str, ...], str] = {
    (_CLUSTER, "clusterName"): "name decides it",
    (_CLUSTER, "partitionConfiguration"): "partitions decide it",
    (_CLUSTER, "customSlurmConfig"): "slurm.extra decides it",
    (_CLUSTER, "slurmNodes", "login", "size"): "login.count decides it",
    (_CLUSTER, "slurmNodes", "login", "sshRootPublicKeys"): "nebius.login.root_keys decides it",
    (_CLUSTER, "slurmNodes", "login", "sshdServiceType"): "nebius.login.service decides it",
    (_CLUSTER, "populateJail", "overwrite"): "it deletes everything in the jail",
    (_CLUSTER, "maintenance"): "some of its values delete the jail or every pod, and charts keep them: use kubectl",
    **{
        (NODESETS, NODESETS, key): "nodesets.NAME.count decides it"
        for key in ("replicas", "ephemeralNodes", "initialNumberEphemeralNodes")
    },
    (NODESETS, NODESETS, "nodeSelector"): "the nodeset decides it",
}
"""Values that a stack file may not give, and why: a field sets the value, which the program reads elsewhere too, or it
deletes data."""


def merge_values(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with `over` merged into them: mappings by key, lists of members with a `name` by the name;
    everything else is replaced."""
    result = dict(values)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            result[key] = merge_values(below, value)
        elif isinstance(below, list) and isinstance(value, list) and _have_names(below) and _have_names(value):
            new = {member["name"]: member for member in value}
            old = [merge_values(member, new.pop(member["name"], {})) for member in below]
            result[key] = [*old, *new.values()]
        else:
            result[key] = value
    return result


def _have_names(members: list[Any]) -> bool:
    """Return whether there are members, and all are mappings with a `name`."""
    return bool(members) and all(isinstance(member, Mapping) and "name" in member for member in members)


FOLDER = Path(__file__).parent / "charts"
DEFAULT_REGISTRY = "cr.eu-north1.nebius.cloud/soperator"
"""The registry of images in the values.yaml of Soperator's charts."""
_OCI = "oci://"
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_OMIT: Any = object()
"""A value whose key is left out, and with it a mapping that has no other key."""
_ON_GPUS = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
"""The toleration of nodes with GPUs."""
_ANY_ROLE = {"key": NODESET_LABEL, "operator": "Exists", "effect": "NoSchedule"}
"""The toleration of the nodes of every service."""
_SIZE = "1Ti"
"""Size of each volume: see charts/slurm-cluster-storage.yaml."""
_IMAGE_STORAGE = "image-storage"
"""Name of the volume of disks for container images, and of their ConfigMap (helm-soperator-custom-configmaps)."""
_SHARED_MEMORY_GIB, _SMALL_SHARED_MEMORY_GIB = 256, 64
"""Size limit of /dev/shm on nodes with GPUs, where NCCL and data loaders exchange data (the guide's example), and on
others. Used memory there counts against the job."""
_HOST_RUN = "host-run"
"""Name of the volume with /run of the node."""
PERSISTENCED_SOCKET = "nvidia-persistenced/socket"
"""Socket of NVIDIA's persistence daemon, below /run of a node whose image has the driver."""
_JOBS_DIRECTORY = "/var/run/nebius/slurm"
"""The folder in which the prolog writes which job has which GPU, for the DCGM exporter."""


@cache
def template(name: str) -> dict[str, Any]:
    """Return a template in charts/."""
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def fill_template(part: Any, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any YAML
    """Return a template with its placeholders replaced. Raises KeyError for a placeholder that is not given."""
    if isinstance(part, Mapping):
        members = {key: fill_template(value, given) for key, value in part.items()}
        kept = {key: value for key, value in members.items() if value is not _OMIT}
        return kept if kept or not members else _OMIT
    if isinstance(part, list):
        return [fill_template(value, given) for value in part]
    if not isinstance(part, str):
        return part
    if whole := _PLACEHOLDER.fullmatch(part):
        return given[whole[1]]
    if any(given[name] is _OMIT for name in _PLACEHOLDER.findall(part)):
        return _OMIT
    return _PLACEHOLDER.sub(lambda match: str(given[match[1]]), part)


def unknown_values(given: Mapping[str, Any], text: bytes, path: str) -> Iterator[tuple[str, str]]:
    """Yield the keys that the values.yaml of a chart lacks: what is wrong, and what to do if a similar key exists.

    A mapping that is empty there takes any key. A template may read any other mapping as a whole as well.
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


def chart_values(config: ClusterConfig, settings: Nebius, facts: CloudFacts) -> dict[str, Any]:
    """Return the values of all placeholders in templates of releases."""
    version, registry = settings.soperator.version, _registry(settings)
    moved = registry != DEFAULT_REGISTRY
    gpus = {gpu.count for nodeset in config.nodesets.values() if (gpu := nodeset_gpu(config, nodeset))}
    tier = sizing.tier(config)
    slurm_config, custom_slurm_config = slurm.conf(config)
    submounts = settings.filesystems.submounts
    tags = (JAIL, SPOOL, *map(submount_tag, submounts))
    given = {
        "cluster": config.name,
        "version": version,
        "registry": registry,
        # Images of another registry than that of the charts' own values.
        "mirror": registry if moved else _OMIT,
        "mirror_version": version if moved else _OMIT,
        "mirror_tag": image_tag(version) if moved else _OMIT,
        "tag": image_tag(version),
        "cuda": settings.gpu.cuda,
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
        **monitoring.values(config, facts.stack),
        "munge": MUNGE.quantities,
        "slurm_config": slurm_config,
        "custom_slurm_config": custom_slurm_config or _OMIT,
        "partitions": slurm.partitions(config),
        "account_gather": config.slurm.job_account_gather or "cgroup",
        "tres": "CPU,Mem,Node,VMem,Gres/gpu" if gpus else "CPU,Mem,Node,VMem",
        "keep": f"{config.accounting.purge_after_months}month",
        "mariadb": sizing.MARIADB.quantities,
        "slurmdbd": sizing.service(config, "accounting", sizing.MARIADB).quantities,
        "slurmctld": sizing.service(config, "controller").quantities,
        "sshd": sizing.service(config, "login").quantities,
        "rest": sizing.on_system(settings, tier.rest).quantities,
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
            {"name": name, "mountPath": row.mount, "volumeSourceName": submount_tag(name)}
            for name, row in submounts.items()
        ],
        "jail_mounted": _mounted(settings, JAIL),
        "all_mounted": _mounted(settings, JAIL, *submounts),
        "bucket": facts.backups.get("name", _OMIT),
        "endpoint": facts.backups.get("endpoint", _OMIT),
    }
    member = template("nodeset")
    rows = [fill_template(member, {**given, **_nodeset(config, settings, name)}) for name in config.nodesets]
    return {**given, NODESETS: rows}


def _service(settings: Nebius, facts: CloudFacts) -> dict[str, Any]:
    if settings.login.service == "NodePort":
        return {"node_port": LOGIN_NODE_PORT, "service_annotations": _OMIT}
    annotations = {} if facts.allocation is None else {"nebius.com/load-balancer-allocation-id": facts.allocation}
    if settings.login.exposure == "internal":
        annotations["nebius.com/load-balancer-type"] = "internal"
    return {"node_port": _OMIT, "service_annotations": annotations}


def _active_checks(config: ClusterConfig, settings: Nebius) -> dict[str, Any]:
    scope = settings.health.scope
    quick, long = scope in ("prod_quick", "prod_acceptance"), scope == "prod_acceptance"
    gpus = has_gpus(config)

    def run(*, after_creation: bool, suspend: bool = False) -> dict[str, Any]:
        """Return the values of a check of GPUs, which never runs without GPUs."""
        suspended = {"suspend": True} if suspend or not gpus else {}
        return {"runAfterCreation": after_creation and gpus, **suspended}

    checks: dict[str, dict[str, Any]] = {
        **{name: run(after_creation=quick, suspend=scope == "testing") for name in GPU_CHECKS},
        **{name: run(after_creation=long) for name in LONG_CHECKS},
        "manage-jail-state": {"runAfterCreation": scope != "skip_all"},
        "prepull-container-image": run(after_creation=quick),
        "ssh-check": {
            "k8sJobSpec": {"jobContainer": {"env": [{"name": "NUM_OF_LOGIN_NODES", "value": str(config.login.count)}]}}
        },
    }
    if elastic_nodesets(config):
        checks["ensure-healthy-nodes"] = {"runAfterCreation": False}  # it reports nodes that are powered down as down
    if slurm.topology_plugin(config, settings) not in ("topology/tree", "topology/block"):
        checks["wait-for-topology"] = {"runAfterCreation": False}  # it would wait for a file that is never written
    return checks


def _nodeset(config: ClusterConfig, settings: Nebius, name: str) -> dict[str, Any]:
    section, size = config.nodesets[name], sizing.slurmd(config, name)
    workers = settings.workers_of(name)
    gpu = nodeset_gpu(config, section)
    gpus = {"gpu": gpu.count} if gpu else {}
    # At most half of the pod's memory, as on Linux.
    shared_memory_gib = min(_SHARED_MEMORY_GIB if gpu else _SMALL_SHARED_MEMORY_GIB, max(1, size.memory // 2 // 1024))
    return {
        "name": name,
        "count": section.most,
        "together": max(1, section.most // 5),
        "elastic": True if section.elastic else _OMIT,
        "awake": section.static if section.elastic else _OMIT,
        "has_gpus": bool(gpu),
        "if_gpus": True if gpu else _OMIT,
        "gpu_tolerations": [_ON_GPUS] if gpu else _OMIT,
        "features": list(section.features) or _OMIT,
        "static": slurm.node_line(config, name),
        "slurmd": {**size.quantities, **gpus},
        "environment": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,graphics,utility,video"}]
        if gpu
        else _OMIT,
        "mounts": _mounts(settings, workers),
        "custom_mounts": _custom_mounts(workers, gpus=bool(gpu)),
        "shared_memory": f"{shared_memory_gib}Gi",
        "initial": _initial(settings, workers, gpus=bool(gpu)),
    }


def _mounts(settings: Nebius, workers: Workers) -> list[dict[str, Any]]:
    """Return the file systems and disks inside the jail of a worker, and its disk for container images."""
    mounts = [
        {"name": name, "mountPath": row.mount, "volumeSource": _claim(submount_tag(name))}
        for name, row in settings.filesystems.submounts.items()
    ]
    mounts += [
        {"name": name, "mountPath": row.mount, "volumeClaimTemplateSpec": _disk(row)}
        for name, row in workers.local_disks.items()
    ]
    if disk := workers.image_disk:
        mounts.append(
            {"name": _IMAGE_STORAGE, "mountPath": "/mnt/image-storage", "volumeClaimTemplateSpec": _disk(disk)}
        )
    return mounts


def _custom_mounts(workers: Workers, *, gpus: bool) -> list[dict[str, Any]]:
    """Return mounts of Soperator's prolog and epilog, which the cluster's chart leaves out of worker pods; and of host
    folders."""
    source = {"configMap": {"name": SCRIPTS, "defaultMode": 0o755}}
    mounts: list[dict[str, Any]] = [
        {"name": "slurm-scripts", "mountPath": "/opt/slurm_scripts/", "volumeSource": source},
        {"name": "slurm-scripts-jail", "mountPath": "/mnt/jail.upper/opt/slurm_scripts/", "volumeSource": source},
    ]
    if gpus:
        jobs = {"hostPath": {"path": _JOBS_DIRECTORY, "type": "DirectoryOrCreate"}}
        mounts.append({"name": "hpc-jobs-dir", "mountPath": _JOBS_DIRECTORY, "volumeSource": jobs})
        run = {"hostPath": {"path": "/run", "type": "Directory"}}
        mounts.append({"name": _HOST_RUN, "mountPath": "/host-run", "readOnly": True, "volumeSource": run})
        # The driver is in the root of the node; it is mounted at the path that NVIDIA's GPU operator would use.
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


def _initial(settings: Nebius, workers: Workers, *, gpus: bool) -> list[dict[str, Any]]:
    """Return the containers before slurmd: they check mounts, wait for NVIDIA's persistence daemon, and create
    directories on an image disk."""
    containers = _mounted(settings, JAIL, *settings.filesystems.submounts)
    if gpus:
        # NVIDIA's runtime gives slurmd's container the socket only if it exists when the container starts. As
        # nebius-solutions-library, pull request 1177.
        wait = (
            f"until test -S /volume-mount/{PERSISTENCED_SOCKET}; do "
            f"echo waiting for /run/{PERSISTENCED_SOCKET} of the node; sleep 5; done"
        )
        container = _container(settings, "wait-for-nvidia-persistenced", _HOST_RUN, "sh", "-c", wait)
        container["volumeMounts"][0]["readOnly"] = True
        containers.append(container)
    disks = {**workers.local_disks, **({_IMAGE_STORAGE: workers.image_disk} if workers.image_disk else {})}
    containers += [
        _container(settings, f"ensure-{name}-{disk.filesystem}", name, *_grep(disk.filesystem))
        for name, disk in disks.items()
    ]
    if workers.image_disk:
        directories = [f"/volume-mount/{name}" for name in ("enroot/cache", "enroot/data", "enroot/runtime", "docker")]
        script = f"mkdir -p {' '.join(directories)} && chmod 777 -R /volume-mount/enroot /volume-mount/docker"
        containers.append(_container(settings, "prepare-image-storage", _IMAGE_STORAGE, "sh", "-c", script))
    return containers


def _mounted(settings: Nebius, *names: str) -> list[dict[str, Any]]:
    """Return containers that let a pod start only if its file systems are mounted, not on empty directories."""
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
    """Return the registry of images: that of the charts, or the default one for charts of a folder."""
    charts = settings.soperator.charts.rstrip("/")
    return charts.removeprefix(_OCI) if charts.startswith(_OCI) else DEFAULT_REGISTRY


def _claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": f"{name}-pvc", "readOnly": False}}


def _disk(disk: NodeDisk) -> dict[str, Any]:
    requests = {"requests": {"storage": f"{disk.size_gib}Gi"}}
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": disk.storage_class, "resources": requests}


def _requests(size: Resources) -> dict[str, dict[str, str]]:
    """Return the requests of a container, with the memory as a limit."""
    given = size.quantities
    return {"requests": {"cpu": given["cpu"], "memory": given["memory"]}, "limits": {"memory": given["memory"]}}
