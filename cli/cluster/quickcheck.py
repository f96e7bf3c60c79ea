"""Runs the quickcheck's driver on the login machine, and reads what it prints while it does."""

import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cli.access.remote import follow
from cli.access.ssh import shell_line
from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cluster.jobs.quickcheck import FAIL, PASS, SKIP, CheckPlan, CheckResult, Event, parse_events
from cluster.jobs.script import FOLDER

_PROGRAMS = Path(__file__).parents[2] / "scripts" / "jobs" / "checks"
PLACE = f"{FOLDER}/checks"
_MAIL_SECONDS = 20
"""Time for mail to be delivered on the controller: slurmctld starts the mailer when the job has ended."""


# The mailbox is the user's own file, so it is read as the user. $1: user, $2: what its subject has.
_MAIL = """\
mailer=$(scontrol show config | sed -n 's/^MailProg *= *//p')
[ -n "$mailer" ] && [ -x "$mailer" ] && [ -d /var/mail ] || { echo none; exit; }
home=$(getent passwd "$1" | cut -d: -f6)
[ ! -e "$home/.forward" ] || { echo sent; exit; }
if runuser -u "$1" -- grep -qs -- "$2" "/var/mail/$1"; then echo came; else echo missing; fi
"""


def put(jobs: Jobs) -> None:
    """Write the programs of the checks to the cluster's shared folder."""
    jobs.put({f"{PLACE}/{path.name}": path.read_text(encoding="utf-8") for path in sorted(_PROGRAMS.glob("*.py"))})


def run(jobs: Jobs, plan: CheckPlan, on_event: Callable[[Event], None]) -> list[Event]:
    """Run the plan; all events, each of which `on_event` gets as it comes. Whatever ends this, Ctrl-C among it, cancels
    every job of it.

    Raises:
        CliError: the driver did not come to its end.
    """
    events: list[Event] = []
    errors: list[str] = []

    def show(lines: Mapping[str, list[str]]) -> None:
        for event in parse_events(line for some in lines.values() for line in some):
            events.append(event)
            on_event(event)

    target, words = jobs.cluster.target(None), ["python3", f"{PLACE}/driver.py", plan.spec()]
    line = shell_line(jobs.user, words, terminal=False)
    done = False
    try:
        follow(
            [target],
            jobs.cluster.admin_key,
            lambda _: line,
            show=show,
            note=lambda lines: errors.extend(line for some in lines.values() for line in some),
        )
        done = any(event["event"] in ("done", "failed") for event in events)
    finally:
        if not done:
            jobs.run(shlex.join(["scancel", "--quiet", f"--name=hpc-check-{plan.options.run}"]))
    if not done:
        text = "\n".join(errors[-20:]) or "it printed nothing"
        raise CliError(f"{target.name}: the checks did not come to their end:\n{text}")
    return events


def mail_result(scheduler: Scheduler, user: str, run: str) -> CheckResult:
    """Return whether mail about the end of a job of this run is in the user's mailbox on the controller."""
    line = shlex.join(["bash", "-c", _MAIL, "mail", user, f"Name=hpc-check-{run} "])
    end = time.monotonic() + _MAIL_SECONDS
    while (found := scheduler.ask(line).strip()) == "missing" and time.monotonic() < end:
        time.sleep(0.5)
    status, text = {
        "came": (PASS, f"in /var/mail/{user}"),
        "none": (SKIP, "the controller has no mailer that delivers on the cluster"),
        "sent": (SKIP, f"{user} has mail sent on by ~/.forward"),
    }.get(found, (FAIL, f"not in /var/mail/{user} on the controller after {_MAIL_SECONDS} s"))
    todo = "./hpc ssh STACK controller -- mailq; ./hpc logs STACK slurmctld" if status == FAIL else ""
    return CheckResult(check="mail", status=status, text=text, todo=todo)
