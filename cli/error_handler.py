"""Turns exceptions into messages and exit codes: 1 for an error, 2 for a wrong command line, 130 for Ctrl-C.

No traceback is shown to a user. That of an unexpected exception goes to a file, which the message names.
"""

import errno
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress

from typer import Exit

from cli import console, interrupts
from cli.errors import CliError
from cli.stack import state_dir

# By module. The modules are not imported for this: one that is not loaded has raised nothing.
_EXPECTED = {
    "engine.errors": "EngineError",
    "cluster.findings": "ConfigError",
    "components.local.host.paths": "HostError",
    "components.nebius.api.client": "NebiusError",
    "components.rehearsal": "RehearsalError",
    "components.state_bucket": "StateBucketError",
}
_DISK = {
    errno.ENOSPC: "Free some space there (df -h, df -i)",
    errno.EDQUOT: "Free some of your quota there",
    errno.EROFS: "Make it writable",
}


@contextmanager
def shown() -> Generator[None]:
    """Turn what a command raises into its text on standard error and an exit code."""
    try:
        yield
    except Exit:
        raise
    except KeyboardInterrupt:
        console.note("Interrupted.")
        raise Exit(interrupts.INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain again when it flushes at exit.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(128 + signal.SIGPIPE) from None
    except Exception as error:  # noqa: BLE001 - the last one before the user
        loaded = ((sys.modules.get(module), name) for module, name in _EXPECTED.items())
        kinds = [kind for module, name in loaded if isinstance(kind := getattr(module, name, None), type)]
        if isinstance(error, (CliError, *kinds)):
            console.error(message(error))
        elif full := _disk_message(error):
            console.error(full)
        else:
            _report(error)
        raise Exit(1) from None


def _disk_message(error: BaseException) -> str:
    """The text of an error of a disk that can't be written, with what to do; empty for any other error."""
    todo = _DISK.get(error.errno or 0) if isinstance(error, OSError) else None
    if not isinstance(error, OSError) or todo is None:
        return ""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}. {todo}, and repeat the command: it goes on from what was written."


def message(error: BaseException) -> str:
    """The text of an expected error, with the command that helps: the engine has none."""
    hint = ""
    if "engine.errors" in sys.modules:
        from engine import DamagedStateError, PassphraseError, StackLockedError  # imported already

        if isinstance(error, DamagedStateError) and error.backup:
            stack = error.file.stem
            hint = (
                f"Go back with: ./hpc state import {stack} {error.backup}\n"
                f"What that state has missed comes in with: ./hpc up {stack}"
            )
        elif isinstance(error, StackLockedError):
            hint = f"Unlock it with: ./hpc state unlock {error.stack}"
        elif isinstance(error, PassphraseError):
            hint = f"It was taken from {state_dir.passphrase_source()}. Nothing was changed: put the right one there."
    return f"{error}\n{hint}".rstrip()


def _report(error: Exception) -> None:
    """Write the traceback to a file and name it."""
    where = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {platform.platform()} Python {platform.python_version()}"
    text = "\n".join([where, f"arguments: {sys.argv[1:]}", "".join(traceback.format_exception(error))])
    file = state_dir.directory() / "logs" / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    end = f"This is a defect: please report it with {file}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Arguments and messages of other people's exceptions may hold anything.
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    except OSError as refused:
        end = f"This is a defect. Its traceback could not be kept ({refused}):\n{text}"
    console.error(f"Unexpected error: {type(error).__name__}: {error}".strip().splitlines()[0] + f"\n{end}")
