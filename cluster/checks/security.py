"""Software below its security floor, in the words of every preview."""

from collections.abc import Iterator, Mapping

from cluster.catalog.floors import vulnerable
from cluster.findings import Finding, Level, Location


def vulnerable_software(at: Location, what: str, versions: Mapping[str, str], todo: str) -> Iterator[Finding]:
    """Yield a warning if one of these versions of components, which `what` brings, is below its floor."""
    if found := [*vulnerable(versions)]:
        yield Finding(
            id="vulnerable",
            level=Level.WARNING,
            at=at,
            what=f"{what} has software with published vulnerabilities: {'; '.join(found)}",
            todo=todo,
        )
