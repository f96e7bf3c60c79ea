"""Partitions: which nodes, for whom, for how long."""

from pydantic import Field

from cluster.catalog.bounds import MOST_NODES
from cluster.config.scripts import Script
from cluster.config.section import Section
from cluster.config.types import (
    AccountName,
    Flag,
    GroupName,
    Mebibytes,
    Natural,
    NodesetName,
    Positive,
    QosName,
    Settings,
    SlurmTime,
    Whole,
)


class Partition(Section):
    """One queue."""

    nodesets: tuple[NodesetName, ...] = Field(min_length=1, examples=[["cpu"]])
    """Names of the nodesets whose nodes are in this partition."""
    default: Flag = False
    """Jobs that name no partition go here; exactly one partition is the default."""
    exclusive: Flag = False
    """A job gets whole nodes, whatever it asked for."""
    max_time: SlurmTime = "INFINITE"
    """Longest run time that a job can ask for, e.g. "24:00:00"."""
    default_time: SlurmTime | None = None
    """Run time of jobs that ask for none. Default: max_time."""
    def_mem_per_cpu: Mebibytes | None = None
    """MiB for each CPU of jobs that ask for no memory. Default: the nodes' memory divided by their CPUs."""
    max_mem_per_cpu: Mebibytes | None = None
    """MiB for each CPU that a job gets at most; a job that asks for more is charged more CPUs."""
    min_nodes: Natural | None = Field(default=None, le=MOST_NODES)
    """Fewest nodes of a job."""
    max_nodes: Positive | None = Field(default=None, le=MOST_NODES)
    """Most nodes of a job."""
    priority_tier: Whole | None = Field(default=None, ge=0, le=65533)
    """Jobs of a higher tier are considered first on nodes that partitions share. Default of Slurm: 1."""
    qos: QosName | None = None
    """QOS whose limits hold for the partition as a whole."""
    allow_accounts: tuple[AccountName, ...] = ()
    """Accounts that may use the partition. Default: all."""
    allow_groups: tuple[GroupName, ...] = ()
    """Groups that may use the partition. Default: all."""
    allow_qos: tuple[QosName, ...] = ()
    """QOS that may be used here. Default: all."""
    scripts: tuple[Script, ...] = ()
    """Scripts that run on the nodes of this partition's jobs, after those of `slurm.scripts`."""
    conf: Settings = Field(default_factory=dict)
    """Further parameters of the PartitionName line, e.g. {PreemptMode: REQUEUE}."""
