"""Runs a Pulumi Python program without the Pulumi CLI: preview, up, destroy, refresh, in the CLI's own state format.

    stack = Workspace(Path("."), backend="file:///var/lib/pulumi").stack("dev")
    result = stack.up(print).check()

It does not depend on what the program deploys, prints nothing, and imports the SDK only when a program is run.
"""

from engine import events
from engine.core.scope import Scope
from engine.errors import DamagedStateError, EngineError, NotRunnableError, PassphraseError
from engine.events import ProgramError, Result, UpdateError
from engine.state.lock import StackLockedError
from engine.workspace import Stack, Workspace

__all__ = [
    "DamagedStateError",
    "EngineError",
    "NotRunnableError",
    "PassphraseError",
    "ProgramError",
    "Result",
    "Scope",
    "Stack",
    "StackLockedError",
    "UpdateError",
    "Workspace",
    "events",
]
