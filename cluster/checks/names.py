"""Names that sections give of each other: they exist, and stand once in a list."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from cluster.findings import Finding, Location, listing, suggest


def unknown(at: Location, names: Iterable[str], known: Collection[str], what: str, where: str) -> Iterator[Finding]:
    """One for each name that is not known, at its position in the list."""
    have = set(known)
    for position, name in enumerate(names):
        if name not in have:
            yield unknown_name((*at, position), name, known, what, where, rule="unknown-name")


def unknown_name(at: Location, name: str, known: Iterable[str], what: str, where: str, *, rule: str) -> Finding:
    """One name that is not known. `what` it should be, with its article; `where` such are defined; `rule` is the id."""
    return Finding(
        id=rule,
        at=at,
        given=name,
        allowed=f"{what} that exists: {listing(known)}",
        todo=suggest(name, known, f"define {name} under `{where}`, or remove it here"),
        missing=name,
    )


def repeated(at: Location, names: Collection[str], what: str, *, rule: str) -> Iterator[Finding]:
    """One for each name that a list has more than once."""
    for double in sorted(name for name, times in Counter(names).items() if times > 1):
        yield Finding(
            id=rule, at=at, given=listing(names), allowed=f"each {what} once", todo=f"remove the second {double}"
        )
