"""Accounting: who is charged, and within which limits."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cluster.config.section import Section
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


class Account(Section):
    """A group of users that is charged together."""

    name: AccountName
    """Name, as in --account."""
    parent: AccountName | None = None
    """Account above this one. Default: root."""
    description: Words = ""
    """What the account is for. Default: its name."""
    organization: Words = ""
    """Who is behind it. Default: the parent's name, else its own."""
    fairshare: Shares | None = None
    """Shares of the parent's usage. Default of Slurm: 1."""


class Qos(Section):
    """A quality of service: priority and limits that a job or a partition can carry."""

    name: QosName
    """Name, as in --qos."""
    priority: Stored | None = None
    """Added to the priority of its jobs."""
    max_wall: SlurmTime | None = None
    """Longest run time of a job."""
    max_jobs_per_user: StoredPositive | None = None
    """Running jobs of one user."""
    max_submit_jobs_per_user: StoredPositive | None = None
    """Running and waiting jobs of one user."""
    max_tres_per_job: Limits = Field(default_factory=dict)
    """Resources of one job, e.g. {cpu: 64, gres/gpu: 8}."""
    max_tres_per_user: Limits = Field(default_factory=dict)
    """Resources of all running jobs of one user, e.g. {gres/gpu: 16}."""
    grp_tres: Limits = Field(default_factory=dict)
    """Resources of all running jobs of this QOS together."""
    preempt: tuple[QosName, ...] = ()
    """QOS whose jobs may be stopped for jobs of this one, and begin again later (PreemptType=preempt/qos,
    PreemptMode=REQUEUE; `slurm.extra: {PreemptMode: CANCEL}` ends them)."""
    flags: tuple[QosFlag, ...] = ()
    """Behaviour flags of sacctmgr's QOS."""


class Accounting(Section):
    """What is recorded and enforced."""

    accounts: tuple[Account, ...] = Field(default=(), max_length=10_000)
    """Accounts. Default: those that users name."""
    qos: tuple[Qos, ...] = Field(default=(), max_length=1000)
    """QOS besides `normal`, which always exists."""
    enforce: tuple[Enforced, ...] = ("associations", "limits", "qos", "safe")
    """What jobs are held to; empty records only."""
    purge_after_months: Positive = Field(default=24, le=1200)
    """Months after which job records leave the database. Archived first."""
