"""Slurm's own settings, with what runs on nodes beside jobs: prologs and epilogs, rxdm, health checks."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict, model_validator
from typing_extensions import Self

from cluster.catalog.slurm_releases import PROLOG_FLAGS
from cluster.config.impact_annotations import NoEffect, Reconfigure, Restart
from cluster.config.section import Section, Slurm
from cluster.config.types import (
    ContainerImage,
    Flag,
    LuaText,
    Natural,
    PartitionName,
    Positive,
    ScriptFile,
    ScriptName,
    ScriptText,
    ScriptUrl,
    Seconds,
    Settings,
    Sha256,
    UserName,
    Whole,
)
from cluster.findings import RefusedError
from scripts.node.health.check_kinds import Check

SCRIPTS = Reconfigure("holds for jobs that begin, or end, from then on; what runs already is left alone")


class Sourced(Section):
    """A script of one's own; exactly one of file, url and text says what is in it."""

    EXAMPLE: ClassVar[str]
    """An example without the key that says where the script comes from."""

    name: ScriptName
    file: ScriptFile | None = None
    """Path of the script here, from the project's folder or from the root; read whenever `up` runs."""
    url: ScriptUrl | None = None
    """URL that the machine downloads it from; needs sha256."""
    text: ScriptText | None = None
    """The script itself, with its #! line."""
    sha256: Sha256 | None = None
    """SHA-256 of what stands at url; anything else is refused before it runs."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        refuse_unpinned(self.url, self.sha256)
        sources = [key for key in ("file", "url", "text") if getattr(self, key) is not None]
        if len(sources) != 1:
            raise RefusedError(
                f"exactly one of file, url and text, e.g. {self.EXAMPLE}",
                f"keep one of {' and '.join(sources)}" if sources else "say what is in it",
            )
        return self


class Script(Sourced):
    """A script that slurmd runs as root on each node of a job; exactly one of file, url and text says what is in it."""

    EXAMPLE = "{name: 10-gpu-check, file: scripts/gpu-check.sh}"

    name: ScriptName = Field(examples=["10-gpu-check"])
    """File name; scripts of one place run in the order of their names."""
    on: tuple[Literal["prolog", "epilog"], ...] = ("prolog",)
    """The time when it runs: before a job, after it, or both; SLURM_SCRIPT_CONTEXT says which."""

    @model_validator(mode="after")
    def _at_some_time(self) -> Self:
        if not self.on or len(set(self.on)) < len(self.on):
            raise RefusedError(
                "prolog, epilog or both, once each, e.g. on: [prolog, epilog]",
                "remove the second" if self.on else "remove `on` for the default, prolog",
            )
        return self


class Rxdm(Section):
    """The prolog of A3 Mega nodes: it installs the NCCL plugin and starts the receive data path manager for jobs on
    two or more nodes, and is patched for Ubuntu 22.04 where its version needs that. Default source: the version
    that goes with the driver of the image."""

    partitions: tuple[PartitionName, ...] = Field(min_length=1, examples=[["a3mega"]])
    """Partitions of A3 Mega nodes, for whose jobs it runs as prolog and as epilog."""
    file: ScriptFile | None = None
    """Path of another version here, from the project's folder or from the root."""
    url: ScriptUrl | None = None
    """URL that the controller downloads another version from; needs sha256."""
    sha256: Sha256 | None = None
    """SHA-256 of what stands at url."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        refuse_unpinned(self.url, self.sha256)
        if self.file and self.url:
            raise RefusedError("file or url, or neither for the default version", "remove one of them")
        return self


def refuse_unpinned(url: str | None, sha256: str | None) -> None:
    """Refuse a URL without a SHA-256: its content can change at any time, and the script runs as root."""
    if url and not sha256:
        raise RefusedError(
            "sha256 beside url, e.g. {url: https://example.org/check.sh, sha256: 64 of 0-9 and a-f}",
            "download it, read it, and add what `sha256sum` prints as sha256",
        )
    if sha256 and not url:
        raise RefusedError("sha256 beside url only", "remove sha256, or give the script's address as url")


NODES = NoEffect("nodes take it over within seconds; the next check uses it")
CHECKS = Reconfigure("health checks never end a job; a node that fails one takes no new jobs")
MEASURES = NoEffect("measured on idle nodes from then on; running jobs are not affected")

Share = Annotated[int, Field(strict=True, ge=0, le=90)]


class NcclTest(Section):
    """The periodic NCCL test (all_reduce) of each idle node with GPUs. It needs what `./hpc nccl build` leaves."""

    every_hours: Annotated[Positive, Field(le=24 * 365), MEASURES] = 24
    """Hours between two measurements of a node."""
    min_busbw_gbps: Annotated[Positive | None, Field(le=100_000), MEASURES] = None
    """Bus bandwidth in GB/s, average of 512 MiB to 8 GiB, below which a node is drained. Default: the catalog's
    figure for the machine type; where it has none, the result is recorded and no node is drained."""
    user: Annotated[UserName | None, MEASURES] = None
    """The user whose home has what `./hpc nccl build` left, and whose jobs the tests are. Default: the first one."""
    minutes: Annotated[Positive, Field(le=24 * 60), MEASURES] = 10
    """Time limit of one test, and how long its job may wait for the idle node, in minutes."""


class FabricTest(NcclTest):
    """The periodic NCCL test (all_gather) between pairs of idle nodes, over the network of the GPUs: GPUDirect-TCPXO on
    A3 Mega. It needs what `./hpc nccl build` leaves."""


class DiagTest(Section):
    """The periodic diagnostic of DCGM on each idle node with GPUs: level 2 takes minutes, 3 half an hour, 4 hours. Its
    first level is one of the checks."""

    every_hours: Annotated[Positive, Field(le=24 * 365), MEASURES] = 168
    """Hours between two measurements of a node."""
    level: Annotated[Literal[2, 3, 4], MEASURES] = 2
    """`-r` of `dcgmi diag`."""
    minutes: Annotated[Positive, Field(le=24 * 60), MEASURES] = 30
    """Time limit of one diagnostic, in minutes."""


class NetworkTest(Section):
    """The periodic measurement of TCP throughput between pairs of idle nodes, by a program of its own."""

    every_hours: Annotated[Positive, Field(le=24 * 365), MEASURES] = 24
    """Hours between two measurements of a node."""
    min_mbps: Annotated[Positive | None, Field(le=10_000_000), MEASURES] = None
    """Megabits per second below which a node is drained. Default: none, so that the result is only recorded."""
    seconds: Annotated[Positive, Field(le=60), MEASURES] = 3
    """Seconds that data is sent, in each direction."""


class HealthChecks(Section):
    """Health checks of nodes: every few minutes, before and after jobs, and measurements on idle nodes. A node
    that fails one is drained with a reason that begins with `hpc-health:`; its jobs run on."""

    interval_seconds: Annotated[Whole | None, Field(ge=5, le=65533), CHECKS] = None
    """HealthCheckInterval: how often each node is checked, in seconds. Default: 300; with `requeue` 30, so that the job
    of a lost GPU runs elsewhere within 90 seconds."""
    drain: Annotated[Flag, NODES] = True
    """True if a node that fails a check is drained; otherwise the result is only recorded."""
    requeue: Annotated[Flag, CHECKS] = False
    """Whether the batch jobs of a node are requeued when a check drains it for a GPU that is not to be used: it is
    lost, or has an Xid that calls for a reset. AdminComment has the reason. Otherwise they run until they end."""
    resume_after: Annotated[Positive, Field(le=1000), NODES] = 3
    """Number of checks in a row that must pass before a node that a check drained is resumed, where the fault can be
    over by itself: a mount, a full disk, the clock, a NIC, leftover processes."""
    skip: Annotated[tuple[Check, ...], Field(max_length=20), NODES] = ()
    """Checks that are left out."""
    timeout_seconds: Annotated[Positive, Field(le=30), NODES] = 20
    """Seconds that one program or file system may take to answer. slurmd ends the whole check after 60."""
    prolog: Annotated[Flag, SCRIPTS] = True
    """True if the quick checks (devices, NICs, mounts) run before each job: if one fails, the job is requeued."""
    epilog: Annotated[Flag, SCRIPTS] = True
    """True if processes that a job left on GPUs, and new ECC errors, are looked for after each job."""
    disk_free_percent: Annotated[Share, NODES] = 5
    """Least share of free space and of free inodes on local file systems, in percent."""
    clock_seconds: Annotated[Whole, Field(ge=2, le=200), NODES] = 5
    """Largest difference between the clocks of node and controller, in seconds. MUNGE refuses credentials from 300."""
    ecc_errors: Annotated[Whole, Field(ge=0, le=1_000_000), NODES] = 0
    """Most uncorrectable ECC errors of one GPU since its driver was loaded; more are a warning on a GPU that remaps
    rows, which contains them."""
    nvlink_errors: Annotated[Whole, Field(ge=0, le=1_000_000_000), NODES] = 0
    """Most errors of one NVLink since the last check that it has not repaired: recoveries, lost packets."""
    nic_mbps: Annotated[Positive | None, Field(le=10_000_000), NODES] = None
    """Least speed of each NIC in megabits per second, where its driver reports one. Default: not checked."""
    nccl: Annotated[NcclTest | None, MEASURES] = None
    """The periodic NCCL test. Default: none."""
    diag: Annotated[DiagTest | None, MEASURES] = None
    """The periodic diagnostic of DCGM. Default: none."""
    fabric: Annotated[FabricTest | None, MEASURES] = None
    """The periodic NCCL test between pairs of nodes. Default: none."""
    network: Annotated[NetworkTest | None, MEASURES] = None
    """The periodic measurement of TCP throughput between nodes. Default: none."""

    @property
    def interval(self) -> int:
        """Seconds between two checks of a node."""
        return self.interval_seconds or (30 if self.requeue else 300)


TIMER = Reconfigure("a timer that follows `scontrol reconfigure`")
LAUNCH = Restart("slurmctld and slurmd restart; jobs that run keep what they were started with")
WARM = NoEffect("`up` downloads what is new by small jobs of the lowest priority on nodes that have room")


class Timers(Section):
    """Slurm's timers, all in seconds."""

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
    """Downloads of nodes at the end of an `up`, so that the first job need not wait for them: the images that rxdm
    pulls before the first job on several nodes, and container images. On demand: `./hpc warm-up STACK`."""

    partitions: Annotated[tuple[PartitionName, ...], WARM] = ()
    """Partitions whose nodes are warmed. Default: all."""
    containers: Annotated[tuple[ContainerImage, ...], WARM] = Field(
        default=(), max_length=50, examples=[["nvcr.io/nvidia/pytorch:24.04-py3"]]
    )
    """Public images that each node puts below /var/lib/hpc/images, for all its users, with enroot or apptainer."""
    seconds: Annotated[int, Field(strict=True, ge=60, le=86_400), NoEffect("how long `up` waits, and nothing else")] = (
        1800
    )
    """Seconds that all of it may take; what is not done then is reported, and `up` goes on."""


LOOP = NoEffect("the controller's service reads it; jobs are not affected")


class Reconcile(Section):
    """The service on the controller that creates and deletes the machines of elastic nodes, and repairs what differs
    between Slurm and the cloud. It runs where a nodeset has `count: {min, max}`, or with `static`."""

    mode: Annotated[Literal["act", "advise", "off"], LOOP] = "act"
    """`advise` writes into its journal what it would do, and does nothing; `off` stops it: elastic nodes then neither
    come nor go."""
    actions_per_hour: Annotated[Positive, Field(le=100_000), LOOP] = 120
    """Most actions in an hour that remove or restart machines without a request of Slurm's."""
    static: Annotated[Flag, LOOP] = False
    """True if nodesets without elastic nodes are repaired too: machines are rebooted, and their hosts reported; none is
    created or deleted."""
    maintain: Annotated[Flag, LOOP] = False
    """True if announced maintenance of an idle static node's host begins at once, instead of in its window. It takes
    the permission compute.instances.performMaintenance, which none of Google's own roles has: where Google refuses a
    role with it, leave this out."""
    max_unavailable: Annotated[float, Strict(), Field(gt=0, le=1), LOOP] = 0.25
    """Largest part of a partition's nodes that it makes unavailable at the same time, 0 to 1; and that `up` does, where
    it recreates machines of nodes."""


class SlurmSettings(Section):
    """Slurm's own settings."""

    version: Literal["22.05", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05"] | None = None
    """Slurm's release. Default: what image.base comes with. A later one is an upgrade, under which jobs run on."""
    timers: Timers = Field(default_factory=Timers.model_construct)
    """Slurm's timers, all in seconds."""
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
    """The cases in which a down node comes back by itself: 0 none, 1 if it had only stopped answering, 2 whenever it
    registers."""
    join_seconds: Annotated[Seconds, NoEffect("how long `up` waits, and nothing else")] = 300
    """Seconds that `up` waits for nodes to be idle; a node with a baked image boots in about two minutes."""
    drain_seconds: Annotated[Natural, NoEffect("how long `up` waits, and nothing else")] = Field(
        default=3600, le=365 * 86400
    )
    """Seconds that `up` waits for the jobs of nodes that leave, before it gives up and leaves them drained."""
    # There is no plugin called none since 23.11; leaving the parameter out means the same in every release.
    mpi_default: Annotated[Literal["none", "pmi2", "pmix"], Slurm("MpiDefault", {"none": None}), LAUNCH] = "pmix"
    """The way in which srun starts MPI ranks where a job does not say it."""
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
    """Source of a job's usage: cgroup counters, or /proc. Default: linux on local, cgroup elsewhere."""
    scripts: Annotated[tuple[Script, ...], SCRIPTS] = ()
    """Scripts that run on every node of every job, before those of its partition and of the node's nodeset."""
    rxdm: Annotated[Rxdm | None, SCRIPTS] = None
    """The prolog of A3 Mega nodes, which starts the receive data path manager (GPUDirect-TCPXO)."""
    health: Annotated[HealthChecks | None, CHECKS] = None
    """Health checks of nodes. Default: none; `{}` has them with their defaults."""
    topology: Annotated[
        Literal["places", "nodesets", "none"] | None,
        Restart("slurmctld restarts and numbers nodes again: jobs on parts of several nodes may be counted wrongly"),
    ] = None
    """Switches of topology.conf; a job is placed below as few as possible: `places` has the blocks that the cloud
    gives machines, `nodesets` a switch for each nodeset, `none` no file. Default: places on Google Cloud where nodes
    are placed close to each other, else nodesets if there are several."""
    warm_up: Annotated[WarmUp | None, WARM] = None
    """Downloads of nodes at the end of an `up`. Default: nothing."""
    reconcile: Reconcile = Field(default_factory=Reconcile.model_construct)
    """The service on the controller that creates and deletes the machines of elastic nodes."""
    extra: Settings = Field(default_factory=dict)
    """Further parameters of slurm.conf, e.g. {PriorityType: priority/multifactor}. Not those that are set elsewhere."""
