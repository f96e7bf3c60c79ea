"""Releases that follow from the configuration, before values of the stack file are laid over them.

Source: helm/soperator-fluxcd at the tags of github.com/nebius/soperator (dependsOn of its templates), without Flux.
"""

from cluster.platforms.nebius.releases import checks, operators, slurm_cluster
from cluster.platforms.nebius.releases.backups import backups
from cluster.platforms.nebius.releases.charts import soperator_release
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values.nodesets import nodesets


def configured_releases(inputs: Inputs) -> tuple[Release, ...]:
    """The releases of a cluster, each after those that it needs."""
    return (*_operators(inputs), *_slurm(inputs), *_checks(inputs), *backups(inputs))


def _operators(inputs: Inputs) -> tuple[Release, ...]:
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


def _slurm(inputs: Inputs) -> tuple[Release, ...]:
    """The SlurmCluster and its NodeSets."""
    # The chart's message of the day is about Nebius's monitoring.
    configmaps = {"namespace": inputs.name, "configMaps": {"motd": {"enabled": False}}}
    needs = ("soperator", "mariadb-operator", "slurm-cluster-storage", "soperator-custom-configmaps")
    return (
        soperator_release(inputs, "storageclasses", namespace="storage-system", values={}),
        slurm_cluster.storage(inputs, "soperator", "storageclasses"),
        soperator_release(inputs, "soperator-custom-configmaps", values=configmaps),
        slurm_cluster.slurm_cluster(inputs, needs=needs),
        soperator_release(
            inputs,
            "nodesets",
            values=nodesets(inputs),
            needs=("soperator", "slurm-cluster"),
            after=("nodes", "gpu") if inputs.gpus else ("nodes",),
        ),
    )


def _checks(inputs: Inputs) -> tuple[Release, ...]:
    """What watches over nodes."""
    return (
        operators.soperatorchecks(inputs),
        operators.nodeconfigurator(inputs),
        *((checks.dcgm_exporter(inputs),) if inputs.gpus else ()),
        checks.active_checks(inputs, "soperatorchecks", "slurm-cluster", "nodesets"),
    )
