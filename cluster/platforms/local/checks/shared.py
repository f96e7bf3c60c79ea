"""Directories that local machines share: what is said of one is said of one that there is."""

from collections.abc import Iterator

from cluster.checks.partitions import unknown
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding

WRITTEN = {
    "/home": "people's folders and keys, which the controller makes",
    "/opt/apps": "the scripts and the board by which machines follow the controller",
    "/var/mail": "mailboxes, into which mail about jobs is delivered",
}


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    at, given = ("storage", "read_only"), config.storage
    yield from unknown(at, given.read_only, given.shared, "a directory of storage.shared", "storage.shared")
    for position, path in enumerate(given.read_only):
        if path in WRITTEN and path in given.shared:
            yield Finding(
                id="read-only-needed", at=(*at, position), given=path,
                allowed=f"a directory that the cluster itself does not write to; {path} has {WRITTEN[path]}",
                todo="remove it here, or share another directory for what is only read, e.g. /data",
            )  # fmt: skip
