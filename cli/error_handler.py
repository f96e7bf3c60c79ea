"""What goes wrong, in words and exit codes: 1 for an error, 2 for a wrong command line, 130 for Ctrl-C.

No traceback reaches a user. An exception that nobody expected goes to a file, with one line that says so.
"""

import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from typer import Exit

from cli import console
from cli.errors import expected, on_disk, words
from cli.stack import state_dir

INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE


@contextmanager
def shown() -> Generator[None]:
    """Turn what a command raises into its text on standard error and an exit code."""
    try:
        yield
    except Exit:
        raise
    except KeyboardInterrupt:
        console.note("Interrupted.")
        raise Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain again when it flushes at exit.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(BROKEN_PIPE) from None
    except Exception as error:  # noqa: BLE001 - the last one before the user
        if isinstance(error, expected()):
            console.error(words(error))
        elif full := on_disk(error):
            console.error(full)
        else:
            _report(error)
        raise Exit(1) from None


def _report(error: Exception) -> None:
    """Write the traceback to a file and name it."""
    text = "\n".join(
        [
            f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {platform.platform()} Python {platform.python_version()}",
            f"arguments: {sys.argv[1:]}",
            "".join(traceback.format_exception(error)),
        ]
    )
    what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    try:
        file = _write(text)
    except OSError as refused:
        console.error(
            f"Unexpected error: {what}\nThis is a defect. Its traceback could not be kept ({refused}):\n{text}"
        )
        return
    console.error(f"Unexpected error: {what}\nThis is a defect: please report it with {file}")


def _write(text: str) -> Path:
    folder = state_dir.directory() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    # Arguments and messages of other people's exceptions may hold anything.
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return file
