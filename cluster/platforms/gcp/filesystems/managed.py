"""Google Cloud Managed Lustre."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from cluster.catalog.filesystems import MANAGED
from cluster.config.storage import Lustre
from cluster.findings import Finding, listing
from cluster.platforms.gcp.filesystems.base import Need
from cluster.platforms.gcp.filesystems.lustre import Expected, LustreKind


class Managed(LustreKind):
    """Lustre whose servers Google runs."""

    name = client = "managed"
    component = "components.gcp.storage.lustre:ManagedLustre"
    needs: ClassVar[Mapping[str, Need]] = {"gcp:lustre/": Need(services=("lustre",), roles=("roles/lustre.admin",))}
    keys = ("size_gib", "throughput")
    ready_seconds = 300  # Google's servers are up when they are made
    peered = True
    callback_ports = ("988",)  # servers connect to their clients too

    @staticmethod
    def expected(lustre: Lustre) -> Expected:
        """Capacity and bandwidth, as bought."""
        mbps = lustre.size_gib * lustre.throughput // 1024
        return Expected(capacity_gib=lustre.size_gib, read_mbps=mbps, write_mbps=mbps)

    def pages(self) -> Mapping[str, str]:
        return {"lustre": "/lustre/instances"}

    def find_errors(self) -> Iterator[Finding]:
        yield from super().find_errors()
        lustre = self.section
        if lustre.throughput not in MANAGED:
            yield Finding(
                id="lustre-throughput",
                at=("storage", "lustre", "throughput"),
                given=str(lustre.throughput),
                allowed=f"MB/s for each TiB that are sold: {listing(map(str, MANAGED))}",
                todo="take one of these",
            )
            return
        sizes = MANAGED[lustre.throughput]
        if not sizes.fit(lustre.size_gib):
            yield Finding(
                id="lustre-size",
                at=("storage", "lustre", "size_gib"),
                given=f"{lustre.size_gib}, at {lustre.throughput} MB/s for each TiB",
                allowed=f"{sizes.least} to {sizes.most} in steps of {sizes.step}, at that throughput",
                todo=f"write {sizes.nearest(lustre.size_gib)}, or take another throughput",
            )
