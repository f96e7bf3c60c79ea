"""Accounting: who is charged, and within which limits."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from cluster.config.impact_annotations import NoEffect, Reconfigure
from cluster.config.section import Section, Slurm
from cluster.config.types import (
    AccountName,
    Positive,
    QosName,
    Resources,
    Shares,
    SlurmTime,
    Stored,
    StoredPositive,
    TresName,
    Words,
)

Enforced = Literal["associations", "limits", "qos", "safe", "nojobs", "nosteps", "wckeys"]
QosFlag = Literal[
    "DenyOnLimit",
    "EnforceUsageThreshold",
    "NoDecay",
    "NoReserve",
    "OverPartQOS",
    "PartitionMaxNodes",
    "PartitionMinNodes",
    "PartitionTimeLimit",
    "RequiresReservation",
    "UsageFactorSafe",
]
Limits = Mapping[TresName, Resources]
IN_DATABASE = NoEffect("Slurm's database takes it over; jobs that run keep what they were given")
LIMIT = NoEffect("Slurm's database takes it over; it holds for jobs that start from then on")


class Account(Section):
    """A group of users that is charged together."""

    name: AccountName
    """Name, as in --account."""
    parent: Annotated[AccountName | None, IN_DATABASE] = None
    """Account above this one. Default: root."""
    description: Annotated[Words, IN_DATABASE] = ""
    """Purpose of the account. Default: its name."""
    organization: Annotated[Words, IN_DATABASE] = ""
    """The organization behind it. Default: the parent's name, else its own."""
    fairshare: Annotated[Shares | None, IN_DATABASE] = None
    """Shares of the parent's usage. Default of Slurm: 1."""


class Qos(Section):
    """A quality of service: priority and limits that a job or a partition can carry."""

    name: QosName
    """Name, as in --qos."""
    priority: Annotated[Stored | None, Slurm("Priority"), LIMIT] = None
    """Added to the priority of its jobs."""
    max_wall: Annotated[SlurmTime | None, Slurm("MaxWall"), LIMIT] = None
    """Longest run time of a job."""
    max_jobs_per_user: Annotated[StoredPositive | None, Slurm("MaxJobsPerUser"), LIMIT] = None
    """Running jobs of one user."""
    max_submit_jobs_per_user: Annotated[StoredPositive | None, Slurm("MaxSubmitJobsPerUser"), LIMIT] = None
    """Running and waiting jobs of one user."""
    max_tres_per_job: Annotated[Limits, Slurm("MaxTRESPerJob"), LIMIT] = Field(default_factory=dict)
    """Resources of one job, e.g. {cpu: 64, gres/gpu: 8}."""
    max_tres_per_user: Annotated[Limits, Slurm("MaxTRESPerUser"), LIMIT] = Field(default_factory=dict)
    """Resources of all running jobs of one user, e.g. {gres/gpu: 16}."""
    grp_tres: Annotated[Limits, Slurm("GrpTRES"), LIMIT] = Field(default_factory=dict)
    """Resources of all running jobs of this QOS together."""
    preempt: Annotated[tuple[QosName, ...], Slurm("Preempt")] = ()
    """QOS whose jobs may be stopped for jobs of this one, and begin again later (PreemptType=preempt/qos,
    PreemptMode=REQUEUE; `slurm.extra: {PreemptMode: CANCEL}` ends them)."""
    flags: Annotated[tuple[QosFlag, ...], Slurm("Flags"), LIMIT] = ()
    """Behaviour flags of sacctmgr's QOS."""


class Accounting(Section):
    """Accounts, QOS and limits: what is recorded and enforced."""

    accounts: tuple[Account, ...] = Field(default=(), max_length=10_000)
    """Accounts. Default: those that users name."""
    qos: tuple[Qos, ...] = Field(default=(), max_length=1000)
    """QOS besides `normal`, which always exists."""
    enforce: Annotated[
        tuple[Enforced, ...],
        Slurm("AccountingStorageEnforce"),
        Reconfigure("holds for jobs that are submitted from then on"),
    ] = ("associations", "limits", "qos", "safe")
    """The limits that jobs are held to; empty records only."""
    purge_after_months: Annotated[
        Positive, NoEffect("slurmdbd restarts, and slurmctld keeps its records until it is back")
    ] = Field(default=24, le=1200)
    """Months after which job records leave the database. Archived first."""
