"""Lists and edits the resources of a stack's state: in its file, or with the Pulumi CLI if the state has no file."""

import json
from collections.abc import Sequence
from typing import Any

from cli.stack import project, pulumi_program, state_dir
from engine.state import stored_stack


def rows(stack: str, pulumi: str | None = None) -> list[dict[str, Any]]:
    """Return the resources in the state, with encrypted secrets; none for a stack that does not exist."""
    if state_dir.on_files(stack):
        space = project.workspace(stack)
        document: Any = space.stack(stack).export_state() if stack in space.stacks() else {}
    else:
        document = json.loads(run_pulumi(stack, "stack", "export", pulumi=pulumi))
    return (document.get("deployment") or {}).get("resources") or []


def unprotect(stack: str, urns: Sequence[str] | None, pulumi: str | None = None) -> None:
    """Remove the protection of resources, so that they can be deleted; None stands for all."""
    if state_dir.on_files(stack):
        project.require_state(stack).edit(lambda rows: stored_stack.unprotected(rows, urns))
    else:
        run_pulumi(stack, "state", "unprotect", "--yes", *(["--all"] if urns is None else urns), pulumi=pulumi)


def delete(stack: str, urns: Sequence[str], *, force: bool, dependents: bool) -> None:
    """Remove resources from the state; the resources themselves stay."""
    if state_dir.on_files(stack):
        project.require_state(stack).edit(
            lambda rows: stored_stack.without(rows, urns, force=force, dependents=dependents)
        )
        return
    more = [*(["--force"] if force else []), *(["--target-dependents"] if dependents else [])]
    for urn in urns:  # releases before 3.150 take one
        run_pulumi(stack, "state", "delete", "--yes", *more, urn)


def rename(stack: str, urn: str, name: str) -> None:
    """Give a resource another name in the state."""
    if state_dir.on_files(stack):
        project.require_state(stack).edit(lambda rows: stored_stack.renamed(rows, urn, name))
    else:
        run_pulumi(stack, "state", "rename", "--yes", urn, name)


def run_pulumi(stack: str, *arguments: str, pulumi: str | None = None, stdin: str = "") -> str:
    """Run a command of the Pulumi CLI for a stack whose state is not in files, and return its output."""
    pulumi = pulumi or pulumi_program.require_pulumi(f"state at {state_dir.backend(stack)} needs the Pulumi CLI")
    return pulumi_program.run_captured([pulumi, *arguments, "--stack", stack], stack, stdin)
