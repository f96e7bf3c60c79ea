"""Edits of single resources of a state: what `pulumi state unprotect`, `delete` and `rename` do to its rows.

Nothing here looks at what is really there.
"""

import re
from collections.abc import Collection, Sequence

from engine import urn as urns
from engine.errors import EngineError, UnknownResource
from engine.values import Value

Row = dict[str, Value]


def unprotected(rows: Sequence[Row], wanted: Collection[str] | None) -> list[Row]:
    """The rows with resources protected no more; None stands for all. Raises EngineError."""
    _require(rows, wanted or ())
    return [
        {key: value for key, value in row.items() if key != "protect" or not (wanted is None or row["urn"] in wanted)}
        for row in rows
    ]


def without(rows: Sequence[Row], wanted: Collection[str], *, force: bool, dependents: bool) -> list[Row]:
    """The rows without some, which the state forgets and which stay where they are. With `dependents`, what needs them
    goes too; with `force`, also what is protected. Raises EngineError."""
    _require(rows, wanted)
    gone = set(wanted)
    for row in rows:  # each stands after what it needs
        if row["urn"] in gone or not (needed := needs(row) & gone):
            continue
        if not dependents:
            raise EngineError(
                f"{row['urn']} needs {min(needed)}, which can't be forgotten alone: name it as well, or take in what "
                "depends on it with --target-dependents"
            )
        gone.add(row["urn"])
    if not force and (kept := [row["urn"] for row in rows if row["urn"] in gone and row.get("protect")]):
        raise EngineError(f"{kept[0]} is protected: unprotect it first, or forget it all the same with --force")
    return [row for row in rows if row["urn"] not in gone]


def renamed(rows: Sequence[Row], wanted: str, name: str) -> list[Row]:
    """The rows with a resource by another name, also where others refer to it. Raises EngineError."""
    _require(rows, [wanted])
    if not re.fullmatch(r"[^\s:]+(:[^\s:]+)*", name):
        raise EngineError(f"{name!r} is no resource's name: it has no spaces and no two colons on end")
    new = f"{wanted.rpartition('::')[0]}::{name}"
    if any(row["urn"] == new for row in rows):
        raise EngineError(f"there is a resource {new} already")
    return [_referring(row, wanted, new) for row in rows]


def needs(row: Row) -> set[str]:
    """What a row refers to."""
    found = {*(row.get("dependencies") or ()), row.get("parent", ""), row.get("deletedWith", "")}
    found |= {urn for urns_ in (row.get("propertyDependencies") or {}).values() for urn in urns_ or ()}
    found |= {*(row.get("replaceWith") or ()), row.get("provider", "").rpartition("::")[0]}
    return found - {""}


def _referring(row: Row, old: str, new: str) -> Row:
    def swapped(urn: str) -> str:
        return new if urn == old else urn

    changed = dict(row)
    for key in ("urn", "parent", "deletedWith"):
        if row.get(key) == old:
            changed[key] = new
    for key in ("dependencies", "replaceWith"):
        if row.get(key):
            changed[key] = [swapped(urn) for urn in row[key]]
    if row.get("propertyDependencies"):
        changed["propertyDependencies"] = {
            key: [swapped(urn) for urn in wanted or ()] for key, wanted in row["propertyDependencies"].items()
        }
    provider, _, id_ = row.get("provider", "").rpartition("::")
    if provider == old:
        changed["provider"] = f"{new}::{id_}"
    return changed


def _require(rows: Sequence[Row], wanted: Collection[str]) -> None:
    known = {row["urn"] for row in rows}
    if missing := sorted(set(wanted) - known):
        raise UnknownResource(missing[0])
    if any(urns.type_of(urn) == urns.STACK_TYPE for urn in wanted):
        raise EngineError("the stack itself is no resource that can be edited")
