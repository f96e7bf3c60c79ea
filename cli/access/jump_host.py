"""One connection to a jump host, open while others go through it."""

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

_END_SECONDS = 3.0
_READY = b"ready"


@contextmanager
def held_open(ssh: Sequence[str], name: str, seconds: float) -> Generator[str | None]:
    """Hold a master connection of `ssh` to a host open; others share it as long as ssh's ControlPath is the same.

    Yields None if it is open, else what ssh printed.
    """
    # It ends with its standard input, so with this process however that ends.
    command = [*ssh, "-o", "ControlMaster=yes", "-T", name, f"echo {_READY.decode()}; exec cat >/dev/null"]
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        # A terminal's Ctrl-C is for what goes through it.
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            if _is_ready(process, seconds):
                yield None
            else:
                errors.seek(0)
                yield errors.read().decode(errors="replace")
        finally:
            _end(process)


def _is_ready(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether the host let us in within the time."""
    assert process.stdout is not None  # noqa: S101 - a pipe, by the caller
    deadline, output = time.monotonic() + seconds, b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            data = os.read(process.stdout.fileno(), 4096)
            output += data
            if _READY in output:
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
