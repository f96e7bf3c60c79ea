"""Exceptions whose text is meant for the user; no other exception leaves the engine."""

from pathlib import Path


class EngineError(Exception):
    """Base of all errors of the engine; its text has the place, the problem and what to do."""


class PassphraseError(EngineError):
    """The passphrase does not fit the stack's secrets, or there is none."""


class DamagedStateError(EngineError):
    """The state file can't be read. Nothing was changed. `backup` is the newest state before it that can be read."""

    def __init__(self, file: Path, reason: str, backup: Path | None) -> None:
        hint = (
            f"The newest state before it that can be read is {backup}: import that one to go back."
            if backup
            else "No .bak beside it and nothing in the folder backups/ can be read: put back a copy of your own."
        )
        super().__init__(f"{file}: damaged ({reason}). Nothing was changed.\n{hint}")
        self.file, self.backup = file, backup


class StateWriteError(EngineError):
    """The state can't be written, so no further step begins."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(
            f"{file}: the state can't be written: {reason}. No further step is begun.\n"
            "Make room (or give write access) there and run the same again: it goes on from here."
        )


class UnknownResourceError(EngineError):
    """The stack has no resource with that URN."""

    def __init__(self, urn: str) -> None:
        quoting = " Put it between single quotes, so that no shell touches the $." if "$" not in urn else ""
        super().__init__(f"there is no resource {urn} in this stack.{quoting} `export` shows their URNs.")


class NotRunnableError(EngineError):
    """The program or the state has a resource whose provider is not embedded: it can be previewed, but not run."""

    def __init__(self, types: list[str], stack: str, kind: str = "up") -> None:
        shown = ", ".join(types[:3]) + (f" and {len(types) - 3} more" if len(types) > 3 else "")
        super().__init__(
            f"the embedded engine can preview stack {stack} but not {'run' if kind == 'up' else kind} it: it has no "
            f"provider for {shown}.\nUse the Pulumi CLI: pulumi {kind} --stack {stack}"
        )


class RunInterruptedError(EngineError):
    """The user asked to stop, so no further step begins."""
