"""Accounting: who is charged, and within which limits."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field

from cluster.config.impact_annotations import NoEffect, Reconfigure
from cluster.config.section import Section, Slurm
from cluster.config.types import (
    AccountName,
    Hours,
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
Period = Literal["daily", "weekly", "monthly", "quarterly", "yearly"]
Limits = Mapping[TresName, Resources]
IN_DATABASE = NoEffect("Slurm's database takes it over; jobs that run keep what they were given")
LIMIT = NoEffect("Slurm's database takes it over; it holds for jobs that start from then on")
GROUP_LIMIT = NoEffect(
    "Slurm's database takes it over; jobs that run go on, above it too, and those that wait are held to it from then on"
)


class GroupLimits(Section):
    """Limits of an account's jobs together, those of the accounts below it included; or of a user's, in each account by
    themselves. Jobs above a limit wait."""

    grp_tres_hours: Annotated[Mapping[TresName, Hours], Slurm("GrpTRESMins", scale=60), GROUP_LIMIT] = Field(
        default_factory=dict, examples=[{"gres/gpu": 400}]
    )
    """Hours of resources that jobs may use in each `accounting.period`, e.g. {gres/gpu: 400, cpu: 20000}. A job starts
    if what is left suffices until its time limit."""
    grp_tres: Annotated[Limits, Slurm("GrpTRES"), GROUP_LIMIT] = Field(default_factory=dict)
    """Resources of all running jobs, e.g. {gres/gpu: 16}."""
    grp_jobs: Annotated[Stored | None, Slurm("GrpJobs"), GROUP_LIMIT] = None
    """Running jobs."""
    grp_submit_jobs: Annotated[Stored | None, Slurm("GrpSubmitJobs"), GROUP_LIMIT] = None
    """Running and waiting jobs. More are refused."""


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
    limits: GroupLimits = Field(default_factory=GroupLimits.model_construct)
    """Limits of its jobs together."""


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
    period: Annotated[
        Period | None,
        Slurm("PriorityUsageResetPeriod", written={name: name.upper() for name in get_args(Period)}),
        # slurmctld counts periods from its own first start (_decay_thread of priority_multifactor.c, g_last_reset).
        Reconfigure(
            "running jobs go on; on a cluster older than the new period usage counts from 0 within minutes, else what "
            "was used so far counts on"
        ),
    ] = None
    """After each period what everybody has used counts from 0 again, at 00:00 of its first day (a week begins on
    Sunday), for hours and for fair share; within it nothing is forgotten. Needed for limits of hours. Default: usage
    counts half after a week, and never ends at once."""
    purge_after_months: Annotated[
        Positive, NoEffect("slurmdbd restarts, and slurmctld keeps its records until it is back")
    ] = Field(default=24, le=1200)
    """Months after which job records leave the database. Archived first."""
