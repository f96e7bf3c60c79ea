"""Health checks of nodes, which drain a node that fails one."""

from typing import Annotated, Literal

from pydantic import Field

from cluster.config.impact import NoEffect, Reconfigure
from cluster.config.scripts import SCRIPTS
from cluster.config.section import Section
from cluster.config.types import Flag, Positive, UserName, Whole

NODES = NoEffect("nodes take it over within seconds; the next check uses it")
CHECKS = Reconfigure("health checks never end a job; a node that fails one takes no new jobs")
MEASURES = NoEffect("measured on idle nodes from then on; running jobs are not affected")

Check = Literal[
    "gpu-count", "gpu-driver", "gpu-xid", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink", "gpu-diag",
    "gpu-processes", "aperture", "nic", "mount", "disk", "local-ssd", "clock",
]  # fmt: skip
Share = Annotated[int, Field(strict=True, ge=0, le=90)]


class NcclTest(Section):
    """The periodic NCCL test (all_reduce) of each idle node with GPUs. It needs what `./hpc nccl build` leaves."""

    every_hours: Annotated[Positive, Field(le=24 * 365), MEASURES] = 24
    """How often each node is measured, in hours."""
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
    """How often each node is measured, in hours."""
    level: Annotated[Literal[2, 3, 4], MEASURES] = 2
    """`-r` of `dcgmi diag`."""
    minutes: Annotated[Positive, Field(le=24 * 60), MEASURES] = 30
    """Time limit of one diagnostic, in minutes."""


class NetworkTest(Section):
    """The periodic measurement of TCP throughput between pairs of idle nodes, by a program of its own."""

    every_hours: Annotated[Positive, Field(le=24 * 365), MEASURES] = 24
    """How often each node is measured, in hours."""
    min_mbps: Annotated[Positive | None, Field(le=10_000_000), MEASURES] = None
    """Megabits per second below which a node is drained. Default: none, so that the result is only recorded."""
    seconds: Annotated[Positive, Field(le=60), MEASURES] = 3
    """How long data is sent, in seconds, in each direction."""


class HealthChecks(Section):
    """Health checks of nodes: every `interval_seconds`, before and after jobs, and measurements on idle nodes. A node
    that fails one is drained with a reason that begins with `hpc-health:`; its jobs run on."""

    interval_seconds: Annotated[Whole, Field(ge=5, le=65533), CHECKS] = 300
    """HealthCheckInterval: how often each node is checked, in seconds."""
    drain: Annotated[Flag, NODES] = True
    """Whether a node that fails a check is drained; otherwise the result is only recorded."""
    resume_after: Annotated[Positive, Field(le=1000), NODES] = 3
    """How many checks in a row must pass before a node that a check drained is resumed, where the fault can be over by
    itself: a mount, a full disk, the clock, a NIC, leftover processes."""
    skip: Annotated[tuple[Check, ...], Field(max_length=20), NODES] = ()
    """Checks that are left out."""
    timeout_seconds: Annotated[Positive, Field(le=30), NODES] = 20
    """How long one program or file system may take to answer, in seconds. slurmd ends the whole check after 60."""
    prolog: Annotated[Flag, SCRIPTS] = True
    """Whether the quick checks (devices, NICs, mounts) run before each job: if one fails, the job is requeued."""
    epilog: Annotated[Flag, SCRIPTS] = True
    """Whether processes that a job left on GPUs, and new ECC errors, are looked for after each job."""
    disk_free_percent: Annotated[Share, NODES] = 5
    """Least share of free space and of free inodes on local file systems, in percent."""
    clock_seconds: Annotated[Whole, Field(ge=2, le=200), NODES] = 5
    """Largest difference between the clocks of node and controller, in seconds. MUNGE refuses credentials from 300."""
    ecc_errors: Annotated[Whole, Field(ge=0, le=1_000_000), NODES] = 0
    """Most uncorrectable ECC errors of one GPU since its driver was loaded."""
    nvlink_errors: Annotated[Whole, Field(ge=0, le=1_000_000_000), NODES] = 0
    """Most recovery or replay errors of one NVLink since the last check."""
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
