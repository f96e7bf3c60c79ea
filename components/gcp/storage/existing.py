"""File systems that exist: nothing is created."""

import pulumi

from cluster.platforms.gcp.filesystems import existing
from components.gcp.storage.base import FileSystemComponent


class ExistingLustre(FileSystemComponent[existing.ExistingLustre]):
    """A Lustre that machines mount once it answers."""

    TYPE = "hpc:gcp:ExistingLustre"

    def make(self) -> None:
        kind, given = self.args.kind, self.args.kind.section
        self.ready = []
        self.probe = pulumi.Output.from_input(kind.probe(str(given.existing)))
        self.facts = {
            "kind": kind.name, "fsname": given.fsname, "mount": given.mount, "source": kind.source,
            "server_ip": given.existing,
        }  # fmt: skip
        self.register_outputs({"source": kind.source})


class NfsDirectories(FileSystemComponent[existing.Nfs]):
    """Directories of NFS servers."""

    TYPE = "hpc:gcp:NfsDirectories"

    def make(self) -> None:
        self.ready = []
        self.facts = [{"mount": one.mount, "source": f"{one.server}:{one.path}"} for one in self.args.kind.sections]
        self.register_outputs({"directories": self.facts})
