"""Partitions: which nodes, for whom, for how long."""

from typing import Annotated

from pydantic import Field

from cluster.catalog.bounds import MOST_NODES
from cluster.config.impact_annotations import Reconfigure
from cluster.config.section import Section, Slurm
from cluster.config.slurm import SCRIPTS, Script
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

LINE = Reconfigure("the partition's line in slurm.conf; jobs that run keep what they were given")


class Partition(Section):
    """A partition of Slurm."""

    nodesets: Annotated[tuple[NodesetName, ...], Slurm("Nodes"), LINE] = Field(min_length=1, examples=[["cpu"]])
    """Names of the nodesets whose nodes are in this partition."""
    default: Annotated[Flag, Slurm("Default", {True: "YES", False: None}), LINE] = False
    """Jobs that name no partition go here; exactly one partition is the default."""
    exclusive: Annotated[Flag, Slurm("OverSubscribe", {True: "EXCLUSIVE", False: None}), LINE] = False
    """A job gets whole nodes, whatever it asked for."""
    max_time: Annotated[SlurmTime, Slurm("MaxTime"), LINE] = "INFINITE"
    """Longest run time that a job can ask for, e.g. "24:00:00"."""
    default_time: Annotated[SlurmTime | None, Slurm("DefaultTime"), LINE] = None
    """Run time of jobs that ask for none. Default: max_time."""
    def_mem_per_cpu: Annotated[Mebibytes | None, Slurm("DefMemPerCPU"), LINE] = None
    """MiB for each CPU of jobs that ask for no memory. Default: the nodes' memory divided by their CPUs."""
    max_mem_per_cpu: Annotated[Mebibytes | None, Slurm("MaxMemPerCPU"), LINE] = None
    """MiB for each CPU that a job gets at most; a job that asks for more is charged more CPUs."""
    min_nodes: Annotated[Natural | None, Slurm("MinNodes"), LINE] = Field(default=None, le=MOST_NODES)
    """Fewest nodes of a job."""
    max_nodes: Annotated[Positive | None, Slurm("MaxNodes"), LINE] = Field(default=None, le=MOST_NODES)
    """Most nodes of a job."""
    priority_tier: Annotated[Whole | None, Slurm("PriorityTier"), LINE] = Field(default=None, ge=0, le=65533)
    """Jobs of a higher tier are considered first on nodes that partitions share. Default of Slurm: 1."""
    qos: Annotated[QosName | None, Slurm("QOS"), LINE] = None
    """QOS whose limits hold for the partition as a whole."""
    allow_accounts: Annotated[tuple[AccountName, ...], Slurm("AllowAccounts"), LINE] = ()
    """Accounts that may use the partition. Default: all."""
    allow_groups: Annotated[tuple[GroupName, ...], Slurm("AllowGroups"), LINE] = ()
    """Groups that may use the partition. Default: all."""
    allow_qos: Annotated[tuple[QosName, ...], Slurm("AllowQos"), LINE] = ()
    """QOS that may be used here. Default: all."""
    scripts: Annotated[tuple[Script, ...], SCRIPTS] = ()
    """Scripts that run on the nodes of this partition's jobs, after those of `slurm.scripts`."""
    conf: Annotated[Settings, LINE] = Field(default_factory=dict)
    """Further parameters of the PartitionName line, e.g. {PreemptMode: REQUEUE}."""
