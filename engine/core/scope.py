"""The resources that a run is about, as the CLI's --target, --exclude and --replace have it (pkg/resource/deploy).

stack.up(print, scope=Scope(targets=("**::n1",), dependents=True))
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from engine import urn as urns
from engine.errors import EngineError, UnknownResourceError
from engine.state.resource import Resource


@dataclass(frozen=True)
class Scope:
    """URNs; in each, `*` stands for anything but a colon and `**` for anything at all.

    With `targets`, only these are created, updated, replaced, deleted or refreshed, with `excludes` all but these; at
    most one of the two is given. What is left out keeps its state; where it has none yet, it is not made, and who needs
    it is refused. `dependents` takes in (or leaves out) as well what depends on them. `replace` are replaced whether
    they differ or not. Providers and the stack itself are always dealt with."""

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    dependents: bool = False

    def __post_init__(self) -> None:
        if self.targets and self.excludes:
            raise EngineError("targets and excludes can't both be given: say what a run is about, or what it is not")

    @property
    def whole(self) -> bool:
        """True if the run is about the whole stack."""
        return not (self.targets or self.excludes)

    def missing(self, known: Collection[str]) -> list[str]:
        """Return what is named, but not known."""
        given = dict.fromkeys((*self.targets, *self.excludes, *self.replace))
        return [urn for urn in given if "*" not in urn and urn not in known]

    def require(self, known: Collection[str]) -> None:
        """Raises EngineError if a resource is named that is not known."""
        if missing := self.missing(known):
            raise UnknownResourceError(missing[0])

    @cached_property
    def replaces(self) -> Callable[[str], bool]:
        """True if a resource is to be replaced in any case."""
        return _matcher(self.replace)

    @cached_property
    def names(self) -> Callable[[str], bool]:
        """True if a resource is itself among the targets, or the excluded."""
        return _matcher(self.targets or self.excludes)


def _matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    exact = {text for text in patterns if "*" not in text}
    globs = [re.compile(_regex(text)) for text in patterns if "*" in text]
    return lambda urn: urn in exact or any(glob.fullmatch(urn) for glob in globs)


def _regex(glob: str) -> str:
    return ".*".join("[^:]*".join(map(re.escape, part.split("*"))) for part in glob.split("**"))


class Included:
    """The registrations of a program that a run is about. They come each after what it depends on."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._follows: set[str] = set()

    def __call__(self, new: Resource) -> bool:
        scope = self._scope
        if scope.whole or new.is_provider or new.type == urns.STACK_TYPE:
            return True
        hit = scope.names(new.urn) or (scope.dependents and bool(new.needs() & self._follows))
        if hit:
            self._follows.add(new.urn)
        return hit is bool(scope.targets)


def allowed(scope: Scope, left: list[Resource], all_: list[Resource]) -> list[Resource]:
    """Return those of `left` that may be deleted, of a state that holds `all_` (each after what it depends on). Raises
    EngineError if that would take along what is no target."""
    if scope.whole:
        return left
    named = {r.urn for r in all_ if scope.names(r.urn)}
    if scope.excludes:
        if scope.dependents:
            named = _with_dependents(named, all_)
        kept = set(named)
        for resource in reversed(all_):
            if resource.urn in kept:
                kept |= resource.needs()
        return [r for r in left if r.urn not in kept]
    wanted = _with_dependents(named, all_)
    deleted = [r for r in left if r.urn in wanted]
    unnamed = [r for r in deleted if r.urn not in named]
    if unnamed and not scope.dependents:
        raise EngineError(
            f"{unnamed[0].urn} would be deleted along with what it depends on, but is not among the targets: "
            f"name it as well, or take in all dependents"
        )
    return deleted


def _with_dependents(named: set[str], all_: list[Resource]) -> set[str]:
    found = set(named)
    for resource in all_:
        if resource.needs() & found:
            found.add(resource.urn)
    return found
