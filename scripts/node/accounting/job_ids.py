"""The numbers of coming jobs: above those of restored records, of which sacct would show only the newest of each."""

from __future__ import annotations

import re
from pathlib import Path

from system.host import log, run, succeeds, wait, write

CONF = Path("/etc/slurm/slurm.conf")
HIGHEST = 67_000_000  # MaxJobId's default (slurm.conf(5)): after it, numbers start at the first again


def restart(recorded: int) -> None:
    """Restart slurmctld, whose jobs go on, and have it number the next job above `recorded`."""
    coming = next_number(run("scontrol", "show", "config"))
    if not coming <= recorded < HIGHEST:
        _restart()
        return
    # slurmctld goes on from FirstJobId once it has drawn a number there, and remembers; so it is wanted for one job.
    before = CONF.read_text()
    write(CONF, with_first(before, recorded + 1), quiet=True)
    try:
        _restart()
        # slurmctld takes no jobs until it has the accounts.
        drawn: list[str] = []
        wait("slurmctld's next job number", lambda: _draw(drawn), seconds=60, interval=0.5, unit="slurmctld")
        run("scancel", drawn[0])
        log(f"the next job is number {int(drawn[0]) + 1}: above the restored ones")
    finally:
        write(CONF, without_first(before), quiet=True)
        run("scontrol", "reconfigure")


def next_number(config: str) -> int:
    """NEXT_JOB_ID in what `scontrol show config` prints; 0 where a release does not say."""
    found = re.search(r"^NEXT_JOB_ID\s*=\s*(\d+)", config, re.MULTILINE)
    return int(found[1]) if found else 0


MARK = "# For one job, after a restore:"


def with_first(conf: str, number: int) -> str:
    """slurm.conf with the number of the next job."""
    return f"{without_first(conf).rstrip()}\n{MARK}\nFirstJobId={number}\n"


def without_first(conf: str) -> str:
    """slurm.conf without it, should a run that was cut off have left it there."""
    return conf.partition(f"{MARK}\n")[0]


def _restart() -> None:
    run("systemctl", "restart", "slurmctld")
    wait("slurmctld's answer", lambda: succeeds("scontrol", "ping"), seconds=60, interval=0.2, unit="slurmctld")
    log("restarted slurmctld; jobs go on")


def _draw(drawn: list[str]) -> bool:
    command = ["sbatch", "--parsable", "--hold", "--job-name=hpc-restore", "--chdir=/", "--output=/dev/null"]
    if not drawn and succeeds(*command, "--test-only", "--wrap", "true"):
        drawn.append(run(*command, "--wrap", "true").split(";")[0].strip())
    return bool(drawn)
