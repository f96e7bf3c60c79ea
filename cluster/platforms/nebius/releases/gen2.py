"""Soperator 1.22 to 2.x: workers in the SlurmCluster, one controller, active checks.

Source: helm/soperator-fluxcd at the tags (dependsOn of its templates), without Flux.
"""

from cluster.platforms.nebius.releases import checks, operators, slurm_cluster
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values import partitions


def releases(inputs: Inputs) -> tuple[Release, ...]:
    """All releases, each after those that it needs."""
    more = {"partitionConfiguration": partitions.raw(inputs)}
    return (
        *base(inputs),
        slurm_cluster.storage(inputs, "soperator"),
        slurm_cluster.slurm_cluster(inputs, more, needs=("soperator", "mariadb-operator", "slurm-cluster-storage")),
        *checking(inputs, "slurm-cluster"),
    )


def base(inputs: Inputs) -> tuple[Release, ...]:
    """What a cluster runs on, which needs none of its nodes but those of the system."""
    needs = ("prometheus-operator-crds", "cert-manager", "kruise", "mariadb-operator-crds")
    return (
        operators.prometheus_crds(inputs),
        operators.mariadb_crds(inputs),
        operators.cert_manager(inputs),
        operators.kruise(inputs, "cert-manager"),
        operators.soperator(inputs, *needs),
        operators.mariadb(inputs, "mariadb-operator-crds", "cert-manager"),
    )


def checking(inputs: Inputs, *workers: str) -> tuple[Release, ...]:
    """What watches over nodes."""
    return (
        operators.soperatorchecks(inputs),
        operators.nodeconfigurator(inputs),
        *((checks.dcgm_exporter(inputs),) if inputs.gpus else ()),
        checks.active_checks(inputs, "soperatorchecks", *workers),
    )
