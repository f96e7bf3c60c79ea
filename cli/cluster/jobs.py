"""Jobs of a user on a cluster that is up: files for them, submission, waiting, output."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cli.access import remote
from cli.access.remote import driver_of
from cli.access.ssh import shell_line
from cli.access.target import Target
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cluster.jobs.script import BODIES, FOLDER, Option, words
from cluster.observe.job_states import JobState, parse_sacct, parse_squeue, sacct_line, squeue_line
from cluster.printable import printable

__all__ = ["JobState", "Jobs"]
_SECONDS = 60.0
_RECORD_SECONDS = 20.0
"""For an ended job to be in the accounting database, which slurmctld writes to in rounds of five seconds."""
_LONGEST_PAUSE = 5.0
_SUBMITTED = re.compile(r"([0-9]+)(;.*)?")
"""What `sbatch --parsable` prints: the job's id, and the cluster's name where there are several."""


@dataclass(frozen=True)
class Jobs:
    """Jobs of one user, submitted on the login machine."""

    cluster: Cluster
    stack: str
    """Its stack, as commands name it."""
    user: str
    """A user of the cluster, or root."""

    def put(self, files: Mapping[str, str], mode: int = 0o644) -> list[str]:
        """Write files below FOLDER, as root, each atomically, and only those that differ. On the controller: root of
        other machines is nobody to its NFS server; with pods on the login pod, which has the jail.

        `files`: absolute path to text. Files named *.sh get mode 0755, others `mode`. Returns the paths that changed.

        Raises:
            CliError: a folder on the way is not root's alone, or the machine does not answer.
        """
        strange = [path for path in files if not path.startswith(f"{FOLDER}/") or ".." in path.split("/")]
        if strange:
            raise ValueError(f"not below {FOLDER}: {', '.join(strange)}")
        rows = {path: [text, 0o755 if path.endswith(".sh") else mode] for path, text in files.items()}
        program = (BODIES / "put.py").read_text(encoding="utf-8")
        call = f"\n\nput({FOLDER!r}, json.loads({json.dumps(rows)!r}))\n"
        machine = self.cluster.controller if driver_of(self._login).needs_admin_key else self._login
        return json.loads(self._ask("python3 -", stdin=program + call, seconds=120, machine=machine))

    def submit(self, script: str, *arguments: str, options: Mapping[str, Option] | None = None) -> str:
        """Submit a batch script and return the job's id.

        `script`: absolute path on the cluster, or the script's text, which begins with #!. `arguments` are the
        script's own, `options` sbatch's long options, which win over the script's own.

        Raises:
            CliError: sbatch refused it; with its message.
        """
        text = script if script.startswith("#!") else ""
        if text and arguments:
            raise ValueError("arguments need a script that is a file")
        given = ["sbatch", "--parsable", *words(options or {}), *([] if text else [script, *arguments])]
        printed = self._as_user(shlex.join(given), stdin=text)
        found = _SUBMITTED.fullmatch(printed.strip().rpartition("\n")[2])
        if not found:
            raise CliError(
                f"sbatch on {self._login.name} printed no job id: {printable(printed.strip()) or '(nothing)'}"
            )
        return found[1]

    def states(self, ids: Iterable[str]) -> dict[str, JobState]:
        """The state of jobs of this user; those that neither slurmctld nor the database knows (yet) are left out."""
        wanted = list(ids)
        found = parse_squeue(self._as_user(squeue_line()), wanted)
        if missing := [one for one in wanted if one not in found]:
            found |= parse_sacct(self._as_user(sacct_line(missing)), missing)
        return found

    def wait(
        self,
        ids: Iterable[str],
        on_change: Callable[[Mapping[str, JobState]], None] | None = None,
        seconds: float | None = None,
    ) -> Mapping[str, JobState]:
        """Wait until jobs have ended; the last states of all, also if they have not after `seconds`.

        `on_change` is called with all states whenever a state, a reason or nodes change. Ctrl-C raises through: the
        jobs go on, and the caller says how to see them or cancels them.

        Raises:
            CliError: the login machine does not answer, or a job is unknown there.
        """
        wanted = list(ids)
        start, pause, shown, unknown_since = time.monotonic(), 0.5, None, None
        while True:
            found = self.states(wanted)
            seen = {one: (row.state, row.reason, row.nodes) for one, row in found.items()}
            if seen != shown and on_change:
                on_change(found)
            now = time.monotonic()
            missing = [one for one in wanted if one not in found]
            unknown_since = (unknown_since or now) if missing else None
            if unknown_since and now - unknown_since > _RECORD_SECONDS:
                raise CliError(f"job {', '.join(missing)}: slurmctld and the accounting database do not know it.")
            if not missing and all(row.ended for row in found.values()):
                return found
            if not missing and seconds is not None and now - start > seconds:
                return found
            pause = 0.5 if seen != shown else min(_LONGEST_PAUSE, pause * 1.3)
            shown = seen
            time.sleep(pause)

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel jobs; those that have ended are left as they are."""
        if wanted := list(ids):
            self._as_user(shlex.join(["scancel", "--quiet", *wanted]))

    def read(self, path: str, most: int = 20_000_000) -> str:
        """The first `most` bytes of a file, as the user.

        Raises:
            CliError: the user can't read it.
        """
        return self._as_user(f"head -c {most} -- {shlex.quote(path)}", seconds=300)

    def run(self, line: str, seconds: float = _SECONDS) -> str:
        """Run a line of the user's login shell on the login machine; its standard output.

        Raises:
            CliError: it failed, or the machine does not answer.
        """
        return self._as_user(line, seconds=seconds)

    @property
    def _login(self) -> Target:
        return self.cluster.target(None)

    def _as_user(self, line: str, *, stdin: str = "", seconds: float = _SECONDS) -> str:
        return self._ask(shell_line(self.user, ["bash", "-c", line], terminal=False), stdin=stdin, seconds=seconds)

    def _ask(self, line: str, *, stdin: str = "", seconds: float = _SECONDS, machine: Target | None = None) -> str:
        machine = machine or self._login
        done = remote.capture(machine, self.cluster.admin_key, line, stdin=stdin, seconds=seconds)
        if done.code:
            error = (done.err or done.out).strip() or f"exit code {done.code}"
            raise CliError(f"{machine.name}: {error if done.reached else f'does not answer: {error}'}")
        return done.out
