"""Slurm's own settings."""

from typing import Annotated, Literal

from pydantic import Field

from cluster.catalog.parameters import PROLOG_FLAGS
from cluster.config.health import CHECKS, HealthChecks
from cluster.config.impact import ByRule, NoEffect, Reconfigure, Restart
from cluster.config.metadata import Slurm
from cluster.config.scripts import SCRIPTS, Rxdm, Script
from cluster.config.section import Section
from cluster.config.types import ContainerImage, Flag, LuaText, Natural, PartitionName, Seconds, Settings

TIMER = Reconfigure("a timer that follows `scontrol reconfigure`")
LAUNCH = Restart("slurmctld and slurmd restart; jobs that run keep what they were started with")
WARM = NoEffect("`up` downloads what is new by small jobs of the lowest priority on nodes that have room")


class Timers(Section):
    """How long Slurm waits; all in seconds."""

    slurmctld: Annotated[Seconds, Slurm("SlurmctldTimeout"), TIMER] = 120
    """SlurmctldTimeout: until a backup controller takes over."""
    slurmd: Annotated[Seconds, Slurm("SlurmdTimeout"), TIMER] = 300
    """SlurmdTimeout: silence after which a node is set down and its jobs end."""
    inactive: Annotated[Seconds, Slurm("InactiveLimit"), TIMER] = 0
    """InactiveLimit: until the job of an srun that does not answer is ended; 0 never."""
    wait: Annotated[
        Seconds, Slurm("WaitTime"), Restart("slurmctld restarts; steps that run keep the time they were started with")
    ] = 0
    """WaitTime: between the end of a step's first task and the end of the others; 0 lets them run on."""
    kill_wait: Annotated[Seconds, Slurm("KillWait"), TIMER] = 30
    """KillWait: between SIGTERM and SIGKILL at a job's time limit."""
    min_job_age: Annotated[Seconds, Slurm("MinJobAge"), TIMER] = 300
    """MinJobAge: how long a finished job stays in squeue's reach."""
    unkillable_step: Annotated[Seconds, Slurm("UnkillableStepTimeout"), TIMER] = 240
    """UnkillableStepTimeout: until a node whose processes don't die is drained; large memory takes long to free."""
    message: Annotated[Seconds, Slurm("MessageTimeout"), TIMER] = 30
    """MessageTimeout: for one request between daemons and commands."""
    batch_start: Annotated[Seconds, Slurm("BatchStartTimeout"), TIMER] = 60
    """BatchStartTimeout: until a batch job that does not start is requeued."""
    prolog_epilog: Annotated[Seconds, Slurm("PrologEpilogTimeout"), TIMER] = 600
    """PrologEpilogTimeout: for one prolog or epilog; container images pulled in a prolog take minutes."""


class WarmUp(Section):
    """What nodes download at the end of an `up`, so that the first job need not wait for it: the images that rxdm pulls
    before the first job on several nodes, and container images. On demand: `./hpc warm-up STACK`."""

    partitions: Annotated[tuple[PartitionName, ...], WARM] = ()
    """Partitions whose nodes are warmed. Default: all."""
    containers: Annotated[tuple[ContainerImage, ...], WARM] = Field(
        default=(), max_length=50, examples=[["nvcr.io/nvidia/pytorch:24.04-py3"]]
    )
    """Public images that each node puts below /var/lib/hpc/images, for all its users, with enroot or apptainer."""
    seconds: Annotated[int, Field(strict=True, ge=60, le=86_400), NoEffect("how long `up` waits, and nothing else")] = (
        1800
    )
    """How long all of it may take, in seconds; what is not done then is reported, and `up` goes on."""


class SlurmSettings(Section):
    """Slurm's own settings."""

    version: Annotated[
        Literal["22.05", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05"] | None, ByRule("slurm_release")
    ] = None
    """Slurm's release. Default: what image.base comes with."""
    timers: Timers = Field(default_factory=Timers)
    """How long Slurm waits; all in seconds."""
    consumable: Annotated[
        Literal["core", "cpu"],
        Slurm(
            "SelectTypeParameters",
            {unit.lower(): f"CR_{unit}_Memory,CR_CORE_DEFAULT_DIST_BLOCK" for unit in ("Core", "CPU")},
        ),
        Restart("slurmctld restarts; jobs that run keep the cores or threads that they have"),
    ] = "core"
    """Smallest unit given to a job: a core with all its threads, or one hardware thread (CR_Core or CR_CPU)."""
    return_to_service: Annotated[
        Literal[0, 1, 2], Slurm("ReturnToService"), Reconfigure("holds for nodes that come back from then on")
    ] = 2
    """When a down node comes back by itself: 0 never, 1 if it had only stopped answering, 2 whenever it registers."""
    join_seconds: Annotated[Seconds, NoEffect("how long `up` waits, and nothing else")] = 300
    """How long `up` waits for nodes to be idle, in seconds; a node with a baked image boots in about two minutes."""
    drain_seconds: Annotated[Natural, NoEffect("how long `up` waits, and nothing else")] = Field(
        default=3600, le=365 * 86400
    )
    """How long `up` waits, in seconds, for the jobs of nodes that leave, before it gives up and leaves them drained."""
    # There is no plugin called none since 23.11; leaving the parameter out means the same in every release.
    mpi_default: Annotated[Literal["none", "pmi2", "pmix"], Slurm("MpiDefault", {"none": None}), LAUNCH] = "pmix"
    """How srun starts MPI ranks unless told otherwise."""
    prolog_flags: Annotated[
        tuple[
            Literal["Alloc", "Contain", "DeferBatch", "ForceRequeueOnFail", "NoHold", "RunInJob", "Serial", "X11"], ...
        ],
        Slurm("PrologFlags", values=PROLOG_FLAGS),
        LAUNCH,
    ] = ("Contain",)
    """PrologFlags; Contain gives each job a container on its nodes before its first step. ForceRequeueOnFail from Slurm
    23.11 on, RunInJob from 24.05 on."""
    pam_slurm_adopt: Annotated[Flag, NoEffect("every node follows within seconds; jobs are not affected")] = False
    """Users may log in by SSH to nodes where a job of theirs runs; what they start there is part of the job, and ends
    with it. Otherwise nodes let nobody in but root."""
    scrontab: Annotated[
        Flag,
        Slurm("ScronParameters", {True: "enable", False: None}, replaceable=True),
        Restart("slurmctld restarts; jobs run on, and what users have in their scrontab is kept"),
    ] = False
    """Users may have jobs submitted again and again, as `crontab` does, by `scrontab` on a login machine."""
    slurmrestd: Annotated[
        Flag, Restart("slurmctld and slurmdbd restart, to accept tokens or no longer; jobs run on")
    ] = False
    """Slurm's REST API (slurmrestd) at port 6820 of the controller's internal address, for users who show a token of
    their own; `scontrol token` on a login machine gives one."""
    job_submit_lua: Annotated[
        LuaText | None, Restart("slurmctld restarts; asked about jobs that are submitted or changed from then on")
    ] = None
    """Lua that slurmctld asks about every job that is submitted or changed, with the functions slurm_job_submit and
    slurm_job_modify: it can refuse the job or set what it asks for. Jobs of root too."""
    job_account_gather: Annotated[
        Literal["cgroup", "linux"] | None, Slurm("JobAcctGatherType", form="jobacct_gather/{}"), LAUNCH
    ] = None
    """Where a job's usage is read: cgroup counters, or /proc. Default: linux on local, cgroup elsewhere."""
    scripts: Annotated[tuple[Script, ...], SCRIPTS] = ()
    """Scripts that run on every node of every job, before those of its partition and of the node's nodeset."""
    rxdm: Annotated[Rxdm | None, SCRIPTS] = None
    """The prolog of A3 Mega nodes, which starts the receive data path manager (GPUDirect-TCPXO)."""
    health: Annotated[HealthChecks | None, CHECKS] = None
    """Health checks of nodes. Default: none; `{}` has them with their defaults."""
    warm_up: Annotated[WarmUp | None, WARM] = None
    """What nodes download at the end of an `up`. Default: nothing."""
    extra: Annotated[Settings, ByRule("extra")] = Field(default_factory=dict)
    """Further parameters of slurm.conf, e.g. {PriorityType: priority/multifactor}. Not those that are set elsewhere."""
