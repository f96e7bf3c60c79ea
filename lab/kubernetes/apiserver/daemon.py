"""A process that outlives the command that started it, and is known again by pid, start time and boot."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from components.local.host.locks import write_atomically
from components.local.host.paths import HostError
from components.local.host.process import Process

_GRACE_SECONDS = 3.0
"""kube-apiserver waits for open watches when it is asked to end. All state is in etcd, which has it on disk."""


@dataclass(frozen=True)
class Daemon:
    """One process of a folder: its record is `NAME.json`, its output `NAME.log`."""

    folder: Path
    name: str
    mark: str
    """An argument of its command line that names the folder, so that no other process has it."""

    @property
    def log(self) -> Path:
        """What it wrote since its last start."""
        return self.folder / f"{self.name}.log"

    @property
    def record(self) -> Path:
        """Its pid, start time and boot."""
        return self.folder / f"{self.name}.json"

    def alive(self) -> bool:
        """Whether it runs."""
        process = Process.load(self.record)
        return process is not None and process.alive()

    def start(self, command: Sequence[str], *, bound: bool) -> None:
        """Start it in a session of its own; `bound` ends it with the thread that started it, however that ends.

        Raises HostError.
        """
        self.stop()
        setpriv = shutil.which("setpriv") if bound else None
        if bound and not setpriv:
            raise HostError("setpriv is not on this machine (package util-linux): processes can't be bound to this one")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        # Only what it writes itself is readable by others, and it writes to this folder only.
        with self.log.open("wb") as log:
            child = subprocess.Popen(
                [*guard, *command, self.mark], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process = Process.of(child.pid)
        if process:
            write_atomically(self.record, json.dumps(asdict(process)), mode=0o600)

    def stop(self) -> None:
        """End it, also one whose starter was killed before it wrote the record. Raises HostError if it does not end."""
        recorded = Process.load(self.record)
        for process in (*([recorded] if recorded else []), *self._unrecorded()):
            if not process.end(signal.SIGTERM, wait=_GRACE_SECONDS) and not process.end(signal.SIGKILL, wait=10):
                raise HostError(f"{self.name} (process {process.pid}) does not end")
            with suppress(ChildProcessError):  # it may be another process's child
                os.waitpid(process.pid, os.WNOHANG)
        self.record.unlink(missing_ok=True)

    def last_lines(self, count: int = 5) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except FileNotFoundError:
            return "no log"

    def _unrecorded(self) -> list[Process]:
        found: list[Process] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = path.read_bytes().decode(errors="replace").split("\0")
                # In a container the same path is another folder.
                ours = self.mark in arguments and (path.parent / "root").samefile("/")
            except OSError:
                continue
            if ours and (process := Process.of(int(path.parent.name))):
                found.append(process)
        return found
