"""A configuration without its wrong parts, of which the rest can still be checked."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from cluster.config.cluster import ClusterConfig
from cluster.findings import Location
from cluster.load.model import platform_of, validate

_ROUNDS = 8


class _Hole:
    """Stands where a list item was, until the others are counted."""


@dataclass(kw_only=True)
class Salvage:
    """A configuration without its wrong parts, and the way back to the file as it is written."""

    config: ClusterConfig
    removed: set[Location]
    stand_ins: Collection[str]
    """Keys of the cluster that others stand in for."""
    unchecked: set[Location]
    """Places that were taken out whole, since nothing is left of them to check without what is wrong in them."""
    positions: Mapping[Location, list[int]] = field(default_factory=dict)
    """For each list (by its place in the file) the positions in the file of the items that were kept."""

    def written(self, location: Location | str) -> Location | str:
        """The place in the file of a place in the salvaged configuration."""
        return location if isinstance(location, str) else _written(location, self.positions)

    def about_removed(self, name: str) -> bool:
        """Whether something of that name, or under it, was taken out."""
        return any(name in map(str, place) for place in self.removed)


def salvage(given: Mapping[str, Any], first: ValidationError) -> Salvage | None:
    """Take out what is wrong; None if too little is left."""
    removed: set[Location] = set()
    positions: dict[Location, list[int]] = {}
    unchecked: set[Location] = set()
    error: ValidationError = first
    for _ in range(_ROUNDS):
        before = len(removed)
        for item in error.errors(include_url=False):
            place = _written(item["loc"], positions)
            if place[-1:] == ("[key]",) or item["type"] == "missing":
                place = place[:-1]
            if error is not first or item["type"] == "missing":
                unchecked.add(place)
            removed.add(place)
        removed.discard(())
        rest, positions = _without(given, removed)
        stand_ins = _fill_in(rest)
        try:
            return Salvage(
                config=validate(rest), removed=removed, stand_ins=stand_ins, positions=positions,
                unchecked=unchecked - {(), *((key,) for key in stand_ins)},
            )  # fmt: skip
        except ValidationError as again:
            if len(removed) == before and again.errors() == error.errors():
                return None
            error = again
    return None


def _fill_in(rest: dict[str, Any]) -> list[str]:
    """Add what nothing can be checked without, where it is missing or was wrong; returns its keys."""
    platform = platform_of(rest)
    sections = {key: section.stand_in for key, section in platform.sections.items() if section.stand_in}
    added = {
        key: stand_in
        for key, stand_in in {"platform": platform.name, "name": "cluster", **sections}.items()
        if key not in rest
    }
    rest.update(added)
    return list(added)


def _written(location: Location, positions: Mapping[Location, list[int]]) -> Location:
    place: Location = ()
    for step in location:
        kept = positions.get(place)
        place = (*place, kept[step] if kept is not None and isinstance(step, int) and step < len(kept) else step)
    return place


def _without(given: Mapping[str, Any], removed: set[Location]) -> tuple[dict[str, Any], dict[Location, list[int]]]:
    rest: Any = copy.deepcopy(dict(given))
    for place in removed:
        _remove(rest, place)
    positions: dict[Location, list[int]] = {}
    return _close(rest, (), positions), positions


def _remove(tree: Any, place: Location) -> None:  # noqa: ANN401 - what stands in the file may have any shape
    try:
        for step in place[:-1]:
            tree = tree[step]
    except (KeyError, IndexError, TypeError):
        return  # filled in by a default, or within something else that was taken out
    last = place[-1]
    if isinstance(tree, dict):
        tree.pop(last, None)
    elif isinstance(tree, list) and isinstance(last, int) and last < len(tree):
        tree[last] = _Hole


def _close(tree: Any, place: Location, positions: dict[Location, list[int]]) -> Any:  # noqa: ANN401
    if isinstance(tree, Mapping):
        return {key: _close(value, (*place, key), positions) for key, value in tree.items()}
    if isinstance(tree, list):
        kept = [(position, value) for position, value in enumerate(tree) if value is not _Hole]
        positions[place] = [position for position, _ in kept]
        return [_close(value, (*place, position), positions) for position, value in kept]
    return tree
