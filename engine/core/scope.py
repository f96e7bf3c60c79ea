"""The scope of a run: some resources only, as with the CLI's --target, --exclude and --replace (pkg/resource/deploy).

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
    """Patterns of URNs, where `*` matches any text without a colon and `**` any text.

    With `targets`, only these resources are created, updated, replaced, deleted or refreshed; with `excludes`, all but
    these. At most one of the two is given. Other resources keep their state. One that does not exist yet is not
    created, and a resource in scope that depends on it is refused. With `dependents`, the resources that depend on
    them are targets (or excluded) as well. Resources in `replace` are replaced whether they differ or not. Providers
    and the stack itself are always in scope."""

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    dependents: bool = False

    def __post_init__(self) -> None:
        if self.targets and self.excludes:
            raise EngineError("targets and excludes can't both be given: say what a run is about, or what it is not")

    @property
    def whole(self) -> bool:
        """True if the whole stack is in scope."""
        return not (self.targets or self.excludes)

    def require(self, existing: Collection[str]) -> None:
        """Raise UnknownResourceError if a URN without a pattern is not among the existing ones."""
        for urn in (*self.targets, *self.excludes, *self.replace):
            if "*" not in urn and urn not in existing:
                raise UnknownResourceError(urn)

    @cached_property
    def replaces(self) -> Callable[[str], bool]:
        """True for the URN of a resource that is replaced in any case."""
        return _matcher(self.replace)

    @cached_property
    def matches(self) -> Callable[[str], bool]:
        """True for the URN of a resource that is itself a target, or excluded."""
        return _matcher(self.targets or self.excludes)


def _matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    exact = {text for text in patterns if "*" not in text}
    globs = [re.compile(_regex(text)) for text in patterns if "*" in text]
    return lambda urn: urn in exact or any(glob.fullmatch(urn) for glob in globs)


def _regex(glob: str) -> str:
    return ".*".join("[^:]*".join(map(re.escape, part.split("*"))) for part in glob.split("**"))


class ScopeFilter:
    """Returns whether resources are in scope. Call it for each resource after those that it depends on."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._matched: set[str] = set()

    def __call__(self, resource: Resource) -> bool:
        scope = self._scope
        if scope.whole or resource.is_provider or resource.type == urns.STACK_TYPE:
            return True
        matched = scope.matches(resource.urn) or (scope.dependents and bool(resource.needs() & self._matched))
        if matched:
            self._matched.add(resource.urn)
        return matched is bool(scope.targets)


def deletable(scope: Scope, candidates: list[Resource], resources: list[Resource]) -> list[Resource]:
    """Return the candidates that may be deleted from a state with these resources, each after those that it depends on.
    Raises EngineError if a dependent of a target would be deleted that is not a target itself."""
    if scope.whole:
        return candidates
    matched = {r.urn for r in resources if scope.matches(r.urn)}
    if scope.excludes:
        kept = _with_dependents(matched, resources) if scope.dependents else set(matched)
        for resource in reversed(resources):
            if resource.urn in kept:
                kept |= resource.needs()
        return [r for r in candidates if r.urn not in kept]
    with_dependents = _with_dependents(matched, resources)
    deleted = [r for r in candidates if r.urn in with_dependents]
    dependents = [r for r in deleted if r.urn not in matched]
    if dependents and not scope.dependents:
        raise EngineError(
            f"{dependents[0].urn} would be deleted along with what it depends on, but is not among the targets: "
            f"name it as well, or take in all dependents"
        )
    return deleted


def _with_dependents(urns_: set[str], resources: list[Resource]) -> set[str]:
    """Return the URNs and those of all resources that depend on them."""
    found = set(urns_)
    for resource in resources:
        if resource.needs() & found:
            found.add(resource.urn)
    return found
