"""What the two kinds of Lustre file systems have in common."""

from typing import TypeVar

import pulumi

from cluster.platforms.gcp.filesystems.lustre import LustreKind
from components.gcp.storage.base import FileSystemComponent

Lustre = TypeVar("Lustre", bound=LustreKind)


class LustreComponent(FileSystemComponent[Lustre]):
    """What the two kinds of Lustre have in common."""

    address: pulumi.Output[str]
    """Address of its management server."""

    def finish(self, address: pulumi.Output[str], source: pulumi.Output[str]) -> None:
        """Report where it is, how large, and how fast it can be at best. `source` is ADDRESS@tcp:/FSNAME."""
        kind, given = self.args.kind, self.args.kind.section
        figures = kind.expected(given)
        self.address, self.source, self.probe = address, source, address.apply(kind.probe)
        self.facts = {
            "kind": kind.name,
            "fsname": given.fsname,
            "mount": given.mount,
            "source": source,
            "server_ip": address,
            "capacity_gib": figures.capacity_gib,
            "bandwidth_mbps": {"read": figures.read_mbps, "write": figures.write_mbps},
            **self.more_facts(),
        }
        self.register_outputs({"source": source, "address": address})

    def more_facts(self) -> dict[str, object]:
        return {}
