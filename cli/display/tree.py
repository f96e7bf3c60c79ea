"""A preview as a tree: every resource that changes under its parents, with what changes in it."""

from collections.abc import Iterable

from cli.display import changes
from cli.display.ops import op
from engine.events import Change, Planned

_WHOLE = ("create", "delete", "read")
"""Operations of which the properties say nothing new: all of them come or go."""


def lines(planned: Iterable[Planned], *, whole: bool = False) -> list[changes.Line]:
    """The lines of the tree; empty if nothing changes. `whole`: with all properties of what is to be created."""
    rows = {plan.urn: plan for plan in planned}
    shown: set[str] = set()
    for plan in rows.values():
        urn: str | None = plan.urn if plan.op != "same" else None
        while urn in rows and urn not in shown:
            shown.add(urn)
            urn = rows[urn].parent
    children: dict[str, list[Planned]] = {}
    for plan in rows.values():
        if plan.urn in shown:
            children.setdefault(plan.parent if plan.parent in shown else "", []).append(plan)
    found: list[changes.Line] = []
    _add(found, children, "", 0, whole=whole)
    return found


def _add(
    found: list[changes.Line], children: dict[str, list[Planned]], parent: str, depth: int, *, whole: bool
) -> None:
    for plan in children.get(parent, []):
        shown = op(plan.op)
        indent = "  " * depth
        reason = f"  ({plan.reason})" if plan.reason else ""
        found.append((f"{shown.symbol} {indent}{plan.name}  {plan.type}{reason}", shown.style))
        if plan.op not in _WHOLE:
            for change in plan.changes:
                found += [(f"  {indent}    {text}", style) for text, style in changes.lines(change)]
        for key, value in sorted(plan.inputs.items()) if whole else ():
            found += [
                (f"  {indent}    {text}", style) for text, style in changes.lines(Change(key, "add", None, value))
            ]
        _add(found, children, plan.urn, depth + 1, whole=whole)
