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
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from typer import Exit

from cli import console, interrupts
from cli.errors import CliError
from cli.stack import state_dir

# Exceptions with a message for people, by their module. A module that is not imported has raised nothing.
_EXPECTED = {
    "engine.errors": "EngineError",
    "cluster.cloud_checks": "CloudCheckError",
    "cluster.findings": "ConfigError",
    "components.local.host.paths": "HostError",
    "components.local.rehearsal": "RehearsalError",
    "components.nebius.api.client": "NebiusError",
    "components.state_bucket": "StateBucketError",
}
_DISK = {
    errno.ENOSPC: "Free some space there (df -h, df -i)",
    errno.EDQUOT: "Free some of your quota there",
    errno.EROFS: "Make it writable",
}


@contextmanager
def handle_errors(document: Mapping[str, Any] | None = None) -> Generator[None]:
    """Turn what a command raises into a message on standard error and an exit code.

    `document` are keys of the JSON document that the command would have printed; None for one that prints none.
    """
    printed = len(console.documents)

    def print_document(text: str, more: Mapping[str, Any]) -> None:
        if document is not None and len(console.documents) == printed:
            console.json({**document, "ok": False, "error": text, **more})

    try:
        yield
    except Exit:
        raise
    except KeyboardInterrupt:
        print_document("interrupted", {})
        console.note("Interrupted.")
        raise Exit(interrupts.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of the output has ended. Python would report that again when it flushes the stream at exit.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(128 + signal.SIGPIPE) from None
    except Exception as error:  # noqa: BLE001 - nothing catches it after this
        imported = ((sys.modules.get(module), name) for module, name in _EXPECTED.items())
        expected = [kind for module, name in imported if isinstance(kind := getattr(module, name, None), type)]
        if isinstance(error, (CliError, *expected)):
            text = message(error)
        elif isinstance(error, OSError) and error.errno in _DISK:
            where = f"{error.filename}: " if error.filename else ""
            todo = f"{_DISK[error.errno]}, and repeat the command: it goes on from what was written."
            text = f"{where}{error.strerror}. {todo}"
        else:
            text = _report_defect(error)
        print_document(text, error.document if isinstance(error, CliError) else {})
        console.error(text)
        raise Exit(1) from None


def message(error: BaseException) -> str:
    """Return the text of an expected error. Errors of the engine name no commands, so the command that helps is
    added."""
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


def _report_defect(error: Exception) -> str:
    """Write the traceback to a file, and return a message with the file's name."""
    where = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {platform.platform()} Python {platform.python_version()}"
    text = "\n".join([where, f"arguments: {sys.argv[1:]}", "".join(traceback.format_exception(error))])
    file = state_dir.directory() / "logs" / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    end = f"This is a defect: please report it with {file}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Arguments and messages may have secrets.
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    except OSError as failure:
        end = f"This is a defect. Its traceback could not be kept ({failure}):\n{text}"
    return f"Unexpected error: {type(error).__name__}: {error}".strip().splitlines()[0] + f"\n{end}"
