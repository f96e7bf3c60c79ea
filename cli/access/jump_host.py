"""One connection to a machine that leads to others, held open while they are asked."""

import os
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import IO

_END_SECONDS = 3.0
_ASK_SECONDS = 20.0
_READY = "ready"


class Gate:
    """A master connection of ssh: others go through it without a login of their own, and end with it."""

    def __init__(self, name: str, argv: list[str], host: str, trouble: str, words: Callable[[str], str]) -> None:
        """`argv` runs ssh to the machine, `host` is what it is told to log in to; with `trouble` it is not tried.

        `words` makes one line of what it says where it fails.
        """
        self._name, self._argv, self._host, self._explain = name, argv, host, words
        self.trouble = trouble
        """Why it could not be opened; empty if it is open."""
        self._socket = ""

    @property
    def forward(self) -> str:
        """ssh's ProxyCommand for a machine behind this one."""
        through = shlex.join(self._through).replace("%", "%%")
        return f"{through} -W '[%h]:%p' {shlex.quote(self._host)}"

    @property
    def _through(self) -> list[str]:
        # Should the connection be gone, no other one is tried: nothing here knows the keys for it.
        options = ["-F", "none", "-S", self._socket, "-o", "BatchMode=yes", "-o", "ProxyCommand=false"]
        return [self._argv[0], *options]

    def ask(self, line: str) -> tuple[int, str, str]:
        """Exit code, output and last words of a line that root runs there."""
        if self.trouble:
            return 1, "", self.trouble
        command = [*self._through, "-T", self._host, line]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=_ASK_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, "", f"no answer within {_ASK_SECONDS:.0f} s"
        return done.returncode, done.stdout, last(done.stderr)

    @contextmanager
    def held(self, seconds: float) -> Generator["Gate"]:
        """Have it open; `trouble` says why it is not after `seconds`."""
        if self.trouble:
            yield self
            return
        from engine.private import PrivateFolder

        folder = PrivateFolder("hpc-gate")
        self._socket = f"{folder.path}/gate"
        # It ends with its standard input, so with this process however that ends.
        command = [*self._argv, "-M", "-S", self._socket, "-T", self._host, f"echo {_READY}; exec cat >/dev/null"]
        try:
            with tempfile.TemporaryFile() as said, subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
                # A terminal's Ctrl-C is for what goes through it.
                start_new_session=True,
            ) as process:  # fmt: skip
                try:
                    if not _ready(process, seconds):
                        self.trouble = self._words(said, process.poll(), seconds)
                    yield self
                finally:
                    _end(process)
        finally:
            folder.remove()

    def _words(self, said: IO[bytes], code: int | None, seconds: float) -> str:
        said.seek(0)
        words = self._explain(said.read().decode(errors="replace"))
        return f"{self._name}, which leads there: {words or ('no answer' if code is None else f'exit code {code}')}" + (
            f" within {seconds:.0f} s" if code is None and not words else ""
        )


def last(text: str) -> str:
    """The last line that says something: ssh ends with one that only says that it was cut off."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not _cut_off(line)]
    return (telling or lines or [""])[-1]


def _cut_off(line: str) -> bool:
    closed = line.startswith(("Connection closed by UNKNOWN", "Connection to UNKNOWN"))
    return closed or line.startswith(("kex_exchange_identification: Connection closed", "stdio forwarding failed"))


def _ready(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether the machine has let us in, within the time."""
    assert process.stdout is not None  # noqa: S101 - a pipe, by the caller
    limit = time.monotonic() + seconds
    came = b""
    while (left := limit - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            data = os.read(process.stdout.fileno(), 4096)
            came += data
            if _READY.encode() in came:
                return True
            if not data:
                process.wait()
                return False
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
