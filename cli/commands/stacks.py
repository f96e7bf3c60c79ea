"""stacks."""

import json as jsonlib
from dataclasses import asdict, dataclass

from cli import console, home, options, project, stackfile
from cli.errors import CliError


@dataclass(frozen=True)
class Row:
    """One stack, as its file and its state show it."""

    stack: str
    platform: str
    resources: int
    updated: str
    """Time of the last change (RFC 3339), empty if it was never up."""


def stacks(*, json: options.Json = False) -> None:
    """List the stacks: those with a file here, and those with state."""
    rows = [_row(name) for name in project.known()]
    if json:
        print(jsonlib.dumps([asdict(row) for row in rows], indent=2))
        return
    if not rows:
        console.note("There are no stacks yet: write a Pulumi.<stack>.yaml.")
        return
    table = [("STACK", "PLATFORM", "RESOURCES", "LAST CHANGE")]
    table += [(row.stack, row.platform, str(row.resources) if row.updated else "-", row.updated or "-") for row in rows]
    widths = [max(len(cells[column]) for cells in table) for column in range(4)]
    for number, cells in enumerate(table):
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        console.line(text, style="bold" if number == 0 else "")


def _row(name: str) -> Row:
    try:
        file = stackfile.read(project.ROOT, name)
        platform = "(no file)" if file.settings is None else file.platform or "(not said)"
    except CliError:
        platform = "(unreadable)"
    from engine import EngineError

    space = project.workspace() if home.on_files() else None
    if space is None or name not in space.stacks():
        return Row(name, platform, 0, "")
    try:
        deployment = space.stack(name).export_state().get("deployment") or {}
    except EngineError:
        # Whatever else is done with this stack tells more; the list must not end here.
        return Row(name, platform, 0, "(state can't be read)")
    time = str((deployment.get("manifest") or {}).get("time") or "")
    # Seconds are enough for a list; the zone stays.
    return Row(name, platform, len(deployment.get("resources") or ()), time[:19] + ("Z" if time.endswith("Z") else ""))
