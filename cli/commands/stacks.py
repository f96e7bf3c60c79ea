"""stacks."""

from dataclasses import asdict, dataclass

from cli import console, options
from cli.errors import CliError
from cli.stack import project, stackfile, state_dir
from engine import EngineError


@dataclass(frozen=True)
class Row:
    """One stack, as its file and its state show it."""

    stack: str
    platform: str
    resources: int
    updated: str
    """Time of the last change (RFC 3339), empty if it was never up."""
    rehearses: str = ""
    """The stack that this one rehearses."""


def stacks(*, json: options.Json = False) -> None:
    """List the stacks: those with a file here, rehearsals, and those with state."""
    rows = [_row(name) for name in project.known()]
    if json:
        console.json([asdict(row) for row in rows])
        return
    if not rows:
        console.note("There are no stacks yet: write a Pulumi.<stack>.yaml.")
        return
    table = [("STACK", "PLATFORM", "RESOURCES", "LAST CHANGE")]
    table += [(row.stack, _where(row), str(row.resources) if row.updated else "-", row.updated or "-") for row in rows]
    console.table(table)


def _where(row: Row) -> str:
    return f"{row.platform}, rehearses {row.rehearses}" if row.rehearses else row.platform


def _row(name: str) -> Row:
    of = ""
    try:
        file = stackfile.read(project.ROOT, name)
        of = file.rehearses or ""
        platform = "(no file)" if file.settings is None else file.platform or "(not said)"
    except CliError:
        platform = "(unreadable)"

    space = project.workspace(name) if state_dir.on_files(name) else None
    if space is None or name not in space.stacks():
        return Row(name, platform, 0, "", of)
    try:
        deployment = space.stack(name).export_state().get("deployment") or {}
    except EngineError:
        # Other commands report more; the list must not end here.
        return Row(name, platform, 0, "(state can't be read)", of)
    time = str((deployment.get("manifest") or {}).get("time") or "")
    # Seconds are enough for a list; the zone stays.
    updated = time[:19] + ("Z" if time.endswith("Z") else "")
    return Row(name, platform, len(deployment.get("resources") or ()), updated, of)
