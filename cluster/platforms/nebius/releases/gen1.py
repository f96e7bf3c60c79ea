"""Soperator before 1.22, as the guide's recipe installs 1.15: workers in the SlurmCluster, a periodic NCCL test.

Source: nebius-solutions-library, tag soperator-v1.15.4-1, soperator/modules/slurm. From 1.20 on OpenKruise is needed.
"""

from cluster.platforms.nebius.releases import operators, slurm_cluster
from cluster.platforms.nebius.releases.checks import nccl_benchmark
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values import partitions


def releases(inputs: Inputs) -> tuple[Release, ...]:
    """All releases, each after those that it needs."""
    more = {
        "partitionConfiguration": partitions.raw(inputs),
        "ncclSettings": {"topologyType": "auto"},
        "periodicChecks": {"ncclBenchmark": nccl_benchmark(inputs)},
    }
    kruise = inputs.number >= (1, 20)
    crds = ("mariadb-operator-crds",) if kruise else ()
    return (
        *((operators.kruise(inputs),) if kruise else ()),
        *((operators.mariadb_crds(inputs),) if kruise else ()),
        operators.mariadb(inputs, *crds),
        slurm_cluster.storage(inputs),
        operators.soperator(inputs, "mariadb-operator", *(("kruise",) if kruise else ())),
        slurm_cluster.slurm_cluster(inputs, more, needs=("soperator", "slurm-cluster-storage")),
    )
