"""Helm releases of a cluster: what they are, in which order they are installed, and values of the stack file.

Source: helm/soperator-fluxcd of github.com/nebius/soperator at the tags, which is what its makers install, but without
Flux: `dependsOn` of its templates, versions of its values.yaml, where `4.8.*` is the newest release of 4.8 here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.platforms.nebius.names import MONITORING_NAMESPACE, OPERATOR_NAMESPACE
from cluster.platforms.nebius.section import Nebius, settings_of
from cluster.platforms.nebius.values import Facts, chart_values
from cluster.platforms.nebius.versions import series
from cluster.roster import has_gpus

__all__ = ["BACKUP_SECRET", "FIXED", "Facts", "Release", "configured", "releases"]

PROMETHEUS = "https://prometheus-community.github.io"
VICTORIA_METRICS = "https://victoriametrics.github.io/helm-charts"
BACKUP_SECRET = "jail-backup"  # noqa: S105 - the name of a Secret
"""Secret in the cluster's namespace, with the keys aws-access-key-id, aws-access-secret-key and backup-password."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A Helm release."""

    name: str
    chart: str
    """Name of the chart in its repository; with an `oci://` or a folder as repository, the last part of its path."""
    repo: str
    """A repository of charts (`https://...`), a registry (`oci://...`) or a folder."""
    version: str
    namespace: str
    values: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Names of releases that are installed before it."""
    after: tuple[str, ...] = ()
    """Conditions to wait for besides: `nodes` (node groups are complete), `gpu` (the GPU operator is deployed and nodes
    offer their GPUs), `populated` (the Job that populates the jail is Complete), `available` (the SlurmCluster is),
    `people` (users and accounts are made)."""
    hooks: bool = True
    """True if the chart's hooks run. Without them, what they wait for is waited for by the program itself."""
    post_renderer: str = ""
    """A program that changes the chart's objects before they are installed, by its path in this project."""
    timeout: int = 1200
    """Seconds until its installation has failed. A failed one is left as it is, to be looked at and repeated: Helm's
    `atomic` would uninstall it, and all that users have in it."""


def releases(config: ClusterConfig, facts: Facts) -> tuple[Release, ...]:
    """The releases of a cluster, each after those that it needs: values of `nebius.values` are laid over those that
    follow from the rest of the configuration."""
    settings = settings_of(config)
    return tuple(
        replace(release, values=merged(release.values, settings.values.get(release.name, {})))
        for release in configured(config, settings, facts)
    )


def configured(config: ClusterConfig, settings: Nebius, facts: Facts) -> tuple[Release, ...]:
    """The releases without values of the stack file."""
    values = chart_values(config, settings, facts)
    version, charts = settings.soperator.version, settings.soperator.charts
    # With Soperator's charts from a folder, the others are there too: what it runs on may reach no other place.
    remote = charts.startswith(("oci://", "https://"))

    def soperator(name: str, namespace: str = config.name, **more: Any) -> Release:  # noqa: ANN401 - fields of Release
        return Release(
            name=name,
            chart=f"helm-{name}",
            repo=charts,
            version=version,
            namespace=namespace,
            values=values(name),
            **more,
        )

    def other(name: str, **more: Any) -> Release:  # noqa: ANN401
        version, namespace, repo = others[name]
        return Release(
            name=name,
            chart=name,
            repo=repo if remote else charts,
            version=version,
            namespace=namespace,
            values=values(name),
            **more,
        )

    mariadb = ("25.10.2", "mariadb-operator-system", "https://helm.mariadb.com/mariadb-operator")
    others = {
        "prometheus-operator-crds": ("19.1.0", "monitoring-system", f"{PROMETHEUS}/helm-charts"),
        "mariadb-operator-crds": mariadb,
        "mariadb-operator": mariadb,
        "cert-manager": (series(version).cert_manager, "cert-manager-system", "https://charts.jetstack.io"),
        "kruise": ("1.8.0", "kruise-system", "https://openkruise.github.io/charts/"),
        "k8up": ("4.8.7", "k8up-system", "https://k8up-io.github.io/k8up"),
        # Those of 5.0, for 4.1 too.
        "victoria-metrics-k8s-stack": ("0.80.0", MONITORING_NAMESPACE, VICTORIA_METRICS),
        "victoria-logs-single": ("0.13.9", MONITORING_NAMESPACE, VICTORIA_METRICS),
        "opentelemetry-collector": (
            "0.149.0",
            MONITORING_NAMESPACE,
            "https://open-telemetry.github.io/opentelemetry-helm-charts",
        ),
    }
    gpus = has_gpus(config)
    ready = ("nodes", "gpu") if gpus else ("nodes",)
    # As the post-renderer of helm/soperator-fluxcd/templates/kruise.yaml.
    limited = "scripts/nebius/webhook_namespace.py"
    found = [
        # What charts describe their metrics with: some can't be installed without. The operator of `monitoring` reads
        # them, or a Prometheus of your own.
        other("prometheus-operator-crds"),
        # Soperator looks for MariaDB's custom resources when it starts.
        other("mariadb-operator-crds"),
        other("cert-manager", needs=("prometheus-operator-crds",)),
        other("kruise", needs=("cert-manager",), post_renderer=limited),
        # With its custom resources in the chart's `crds/`: the chart helm-soperator-crds can't be installed, since its
        # release record is larger than a Secret may be.
        soperator(
            "soperator",
            OPERATOR_NAMESPACE,
            needs=("prometheus-operator-crds", "cert-manager", "kruise", "mariadb-operator-crds"),
        ),
        other("mariadb-operator", needs=("mariadb-operator-crds", "cert-manager")),
        soperator("storageclasses", "storage-system"),
        # Volumes, once there are nodes that can mount them.
        soperator("slurm-cluster-storage", needs=("soperator", "storageclasses"), after=("nodes",)),
        soperator("soperator-custom-configmaps"),
        # Once GPUs can be had: slurmd registers those that it finds when it starts.
        soperator(
            "slurm-cluster",
            needs=("soperator", "mariadb-operator", "slurm-cluster-storage", "soperator-custom-configmaps"),
            after=ready,
            timeout=3600,
        ),
        soperator("nodesets", needs=("soperator", "slurm-cluster"), after=ready),
        soperator("soperatorchecks", OPERATOR_NAMESPACE, needs=("soperator",)),
        soperator("nodeconfigurator", OPERATOR_NAMESPACE, needs=("soperator",)),
    ]
    if gpus:
        found.append(soperator("soperator-dcgm-exporter", needs=("prometheus-operator-crds",), after=("nodes", "gpu")))
    found.append(
        # Without hooks: the chart's own Job would fail the release with the first check that fails, and uninstall
        # nothing but leave `up` without the rest. The program shows checks that failed instead.
        # After accounts: with AccountingStorageEnforce Slurm refuses jobs of a user without one.
        soperator(
            "soperator-activechecks",
            needs=("soperatorchecks", "slurm-cluster", "nodesets"),
            after=("available", "people"),
            hooks=False,
            timeout=1800,
        )
    )
    if facts.backups:
        # The schedule comes after the jail is populated: a backup that starts before ends in a repository that no later
        # backup can use (github.com/nebius/nebius-solutions-library issue 217).
        found += [
            other("k8up", needs=("cert-manager",)),
            soperator("soperator-backup-config", needs=("k8up", "slurm-cluster"), after=("populated",)),
        ]
    if config.monitoring:
        found += [
            # What its operator collects is described by objects of Prometheus' operator.
            other(
                "victoria-metrics-k8s-stack",
                needs=("prometheus-operator-crds", "storageclasses"),
                after=("nodes",),
            ),
            other("victoria-logs-single", needs=("storageclasses",), after=("nodes",)),
            other("opentelemetry-collector", needs=("victoria-logs-single",)),
            soperator("soperator-monitoring-dashboards", MONITORING_NAMESPACE),
        ]
    return tuple(found)


_CLUSTER, _NODESETS = "slurm-cluster", "nodesets"
FIXED: Mapping[tuple[str, ...], tuple[str, str]] = {
    (_CLUSTER, "clusterName"): ("name", ""),
    (_CLUSTER, "partitionConfiguration"): ("partitions", ""),
    (_CLUSTER, "customSlurmConfig"): ("slurm.extra", ""),
    (_CLUSTER, "slurmNodes", "login", "size"): ("login.count", ""),
    (_CLUSTER, "slurmNodes", "login", "sshRootPublicKeys"): ("nebius.login.root_keys", ""),
    (_CLUSTER, "slurmNodes", "login", "sshdServiceType"): ("nebius.login.service", ""),
    (_CLUSTER, "populateJail", "overwrite"): ("", "populateJail.overwrite deletes everything in the jail"),
    (_CLUSTER, "maintenance"): (
        "",
        "some of its values delete the jail or every pod, and charts keep them: use kubectl",
    ),
    (_NODESETS, _NODESETS, "replicas"): ("nodesets.NAME.count", ""),
    (_NODESETS, _NODESETS, "ephemeralNodes"): ("nodesets.NAME.count", ""),
    (_NODESETS, _NODESETS, "initialNumberEphemeralNodes"): ("nodesets.NAME.count", ""),
    (_NODESETS, _NODESETS, "nodeSelector"): ("nodesets.NAME", ""),
}
"""Values that a stack file may not give: the field that sets one, which the rest of the program reads too, or why it is
refused."""


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others laid over them: mappings are merged by key, lists of members with a `name` by these, and all
    else is replaced."""
    found = dict(values)
    for key, value in over.items():
        below = found.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            found[key] = merged(below, value)
        elif isinstance(below, list) and isinstance(value, list) and _named(below) and _named(value):
            laid = {member["name"]: member for member in value}
            kept = [merged(member, laid.pop(member["name"], {})) for member in below]
            found[key] = [*kept, *laid.values()]
        else:
            found[key] = value
    return found


def _named(members: list[Any]) -> bool:
    return bool(members) and all(isinstance(member, Mapping) and "name" in member for member in members)
