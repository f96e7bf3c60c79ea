"""Runs a Pulumi Python program without the Pulumi CLI: preview, up, destroy, refresh, in the CLI's own state format.

    stack = Workspace(Path("."), backend="file:///var/lib/pulumi").stack("dev")
    result = stack.up(print).check()

It knows nothing of what the program is about, prints nothing, and imports the SDK only when a program is run.
"""

from engine import events
from engine.core.scope import Scope
from engine.errors import EngineError, NotRunnable, StateDamaged, WrongPassphrase
from engine.events import ProgramError, Result, UpdateFailed
from engine.project import KubernetesTools
from engine.state.lock import StackLocked
from engine.workspace import Stack, Workspace

__all__ = [
    "EngineError", "KubernetesTools", "NotRunnable", "ProgramError", "Result", "Scope", "Stack", "StackLocked",
    "StateDamaged", "UpdateFailed", "Workspace", "WrongPassphrase", "events",
]  # fmt: skip
