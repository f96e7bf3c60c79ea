"""The scripts of a stack that run before and after jobs, with their places in the file, and their interpreters."""

from collections.abc import Iterator

from cluster.catalog.base_system import INTERPRETERS, missing_interpreter
from cluster.config.cluster import ClusterConfig
from cluster.config.slurm import Script
from cluster.findings import Finding, Location, listing


def placed_scripts(config: ClusterConfig) -> Iterator[tuple[Location, Script]]:
    """Yield every script with its place in the file, except that of `slurm.rxdm`."""
    lists: list[tuple[Location, tuple[Script, ...]]] = [(("slurm", "scripts"), config.slurm.scripts)]
    lists += [(("partitions", name, "scripts"), part.scripts) for name, part in config.partitions.items()]
    lists += [(("nodesets", name, "scripts"), section.scripts) for name, section in config.nodesets.items()]
    for at, scripts in lists:
        yield from (((*at, position), script) for position, script in enumerate(scripts))


def programs_may_differ(config: ClusterConfig) -> bool:
    """Return whether machines may have programs that this program's images do not have: from another image, or from
    steps of the stack's own."""
    return config.image.name is not None or bool(config.image.provision)


def interpreter(config: ClusterConfig, at: Location, text: str) -> Finding | None:
    """Check that machines have a script's interpreter. Without it, the nodes of jobs would be drained."""
    missing = None if programs_may_differ(config) else missing_interpreter(text)
    if missing is None:
        return None
    return Finding(
        id="script-interpreter",
        at=at,
        given=f"a script for {missing!a}",
        allowed=f"an interpreter that the machines have, in /bin, /usr/bin or by /usr/bin/env: {listing(INTERPRETERS)}",
        todo="end its lines with a line feed alone, without \\r"
        if missing.endswith("\r")
        else "write it for one of these",
    )
