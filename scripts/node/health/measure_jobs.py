"""Jobs of measurements: no job of a user waits for them."""

from __future__ import annotations

import pwd
import time

from system.host import SetupError, log, run

START_SECONDS = 60  # a job that has not started by then waits for somebody else's
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def submit(
    kind: str,
    partition: str,
    options: list[str],
    end: list[str],
    *,
    stdin: str = "",
    user: pwd.struct_passwd | None = None,
) -> str:
    """Submit one job; its number, or nothing where Slurm refuses it."""
    words = ["sbatch", "--parsable", f"--job-name=hpc-health-{kind}", f"--partition={partition}", "--exclusive",
             "--no-requeue", "--nice=10000", *options, *end]  # fmt: skip
    try:
        said = run(*(_as(user) if user else []), *words, stdin=stdin or None, timeout=60)
    except SetupError as error:
        log(f"{kind}: {error}")
        return ""
    return said.strip().partition(";")[0]


def _as(user: pwd.struct_passwd) -> list[str]:
    """A command before another one, which then runs as the user: sbatch gives its own environment to the job, where
    root's HOME is a place that the user can't read."""
    name = user.pw_name
    place = [f"HOME={user.pw_dir}", f"USER={name}", f"LOGNAME={name}", f"SHELL={user.pw_shell}", f"PATH={PATH}"]
    return ["runuser", "-u", name, "--", "env", "-i", *place]


def wait(jobs: list[str], seconds: float) -> None:
    """Wait until these jobs have ended. One that does not start soon is cancelled: whoever has its node goes first."""
    began, left = time.monotonic(), set(jobs)
    while left:
        time.sleep(0.3)
        listed = run("squeue", "--noheader", f"--jobs={','.join(sorted(left))}", "--format=%i %T", accept=(0, 1))
        states = dict(line.split(" ", 1) for line in listed.splitlines() if " " in line)
        left &= set(states)
        late = [job for job in left if states[job] == "PENDING" and time.monotonic() - began > START_SECONDS]
        if time.monotonic() - began > seconds + START_SECONDS:
            late = sorted(left)
        if late:
            log(f"cancelled {', '.join(late)}: not started, or not ended, in time")
            run("scancel", *late)
            left -= set(late)
