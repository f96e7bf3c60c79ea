"""Slurm's own settings."""

from typing import Literal

from pydantic import Field

from cluster.config.scripts import Rxdm, Script
from cluster.config.section import Section
from cluster.config.types import Flag, LuaText, Natural, Seconds, Settings


class Timers(Section):
    """How long Slurm waits; all in seconds."""

    slurmctld: Seconds = 120
    """SlurmctldTimeout: until a backup controller takes over."""
    slurmd: Seconds = 300
    """SlurmdTimeout: silence after which a node is set down and its jobs end."""
    inactive: Seconds = 0
    """InactiveLimit: until the job of an srun that does not answer is ended; 0 never."""
    wait: Seconds = 0
    """WaitTime: between the end of a step's first task and the end of the others; 0 lets them run on."""
    kill_wait: Seconds = 30
    """KillWait: between SIGTERM and SIGKILL at a job's time limit."""
    min_job_age: Seconds = 300
    """MinJobAge: how long a finished job stays in squeue's reach."""
    unkillable_step: Seconds = 240
    """UnkillableStepTimeout: until a node whose processes don't die is drained; large memory takes long to free."""
    message: Seconds = 30
    """MessageTimeout: for one request between daemons and commands."""
    batch_start: Seconds = 60
    """BatchStartTimeout: until a batch job that does not start is requeued."""
    prolog_epilog: Seconds = 600
    """PrologEpilogTimeout: for one prolog or epilog; container images pulled in a prolog take minutes."""


class SlurmSettings(Section):
    """Slurm's own settings."""

    version: Literal["22.05", "23.11", "24.11", "25.05"] | None = None
    """Slurm's release. Default: what image.base comes with."""
    timers: Timers = Field(default_factory=Timers)
    """How long Slurm waits; all in seconds."""
    consumable: Literal["core", "cpu"] = "core"
    """Smallest unit given to a job: a core with all its threads, or one hardware thread (CR_Core or CR_CPU)."""
    return_to_service: Literal[0, 1, 2] = 2
    """When a down node comes back by itself: 0 never, 1 if it had only stopped answering, 2 whenever it registers."""
    join_seconds: Seconds = 300
    """How long `up` waits for nodes to be idle, in seconds; a node with a baked image boots in about two minutes."""
    drain_seconds: Natural = Field(default=3600, le=365 * 86400)
    """How long `up` waits, in seconds, for the jobs of nodes that leave, before it gives up and leaves them drained."""
    mpi_default: Literal["none", "pmi2", "pmix"] = "pmix"
    """How srun starts MPI ranks unless told otherwise."""
    prolog_flags: tuple[
        Literal["Alloc", "Contain", "DeferBatch", "ForceRequeueOnFail", "NoHold", "RunInJob", "Serial", "X11"], ...
    ] = ("Contain",)
    """PrologFlags; Contain gives each job a container on its nodes before its first step. ForceRequeueOnFail from Slurm
    23.11 on, RunInJob from 24.11 on."""
    pam_slurm_adopt: Flag = False
    """Users may log in by SSH to nodes where a job of theirs runs; what they start there is part of the job, and ends
    with it. Otherwise nodes let nobody in but root."""
    scrontab: Flag = False
    """Users may have jobs submitted again and again, as `crontab` does, by `scrontab` on a login machine."""
    slurmrestd: Flag = False
    """Slurm's REST API (slurmrestd) at port 6820 of the controller's internal address, for users who show a token of
    their own; `scontrol token` on a login machine gives one."""
    job_submit_lua: LuaText | None = None
    """Lua that slurmctld asks about every job that is submitted or changed, with the functions slurm_job_submit and
    slurm_job_modify: it can refuse the job or set what it asks for. Jobs of root too."""
    job_account_gather: Literal["cgroup", "linux"] | None = None
    """Where a job's usage is read: cgroup counters, or /proc. Default: linux on local, cgroup elsewhere."""
    scripts: tuple[Script, ...] = ()
    """Scripts that run on every node of every job, before those of its partition and of the node's nodeset."""
    rxdm: Rxdm | None = None
    """The prolog of A3 Mega nodes, which starts the receive data path manager (GPUDirect-TCPXO)."""
    extra: Settings = Field(default_factory=dict)
    """Further parameters of slurm.conf, e.g. {PriorityType: priority/multifactor}. Not those that are set elsewhere."""
