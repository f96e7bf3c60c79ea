"""Jobs, as squeue tells of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from slurm import slurm_conf
from slurm.output import WAITING
from system.host import SetupError, run

ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
RESTART_SECONDS = 30
CUT_OFF = ("Connection reset by peer", "Zero Bytes were transmitted or received")
"""What squeue prints when slurmctld ends while it answers."""


@dataclass(frozen=True)
class Job:
    """A job as squeue shows it: times in Slurm's own notation."""

    number: str
    user: str
    elapsed: str
    limit: str
    state: str
    partitions: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def held(self) -> tuple[str, ...]:
        """The nodes that it holds now."""
        return () if self.state in ENDED | WAITING else self.nodes

    def __str__(self) -> str:
        where = f"on {','.join(self.held)}, {self.elapsed} of {self.limit}" if self.held else "waiting"
        return f"job {self.number} of {self.user} {where}"


def everywhere() -> list[Job]:
    """Every job that slurmctld knows, ended ones too. One that is restarting meanwhile is asked again."""
    end = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            return parse(
                run("squeue", "--noheader", "--all", "--states=all", "--array", "--format=%A|%u|%M|%l|%T|%P|%N")
            )
        except SetupError as error:
            if not any(text in str(error) for text in CUT_OFF) or time.monotonic() > end:
                raise
        time.sleep(0.5)


def left(jobs: list[Job], nodes: set[str], partitions: set[str]) -> list[Job]:
    """Those that hold one of the nodes, or run or wait in one of the partitions. A pure function."""
    return [
        job for job in jobs if job.state not in ENDED and (set(job.held) & nodes or set(job.partitions) & partitions)
    ]


def parse(text: str) -> list[Job]:
    """squeue's lines, as asked for above. A pure function."""
    rows = (line.split("|") for line in text.split("\n") if line.count("|") == 6)
    return [
        Job(number, user, elapsed, limit, state, tuple(parts.split(",")), tuple(slurm_conf.expand(hosts)))
        for number, user, elapsed, limit, state, parts, hosts in rows
    ]
