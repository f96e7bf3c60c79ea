"""Where on Google Cloud: zones that are not known to have the machines. Google adds zones, so it is only a warning."""

from collections.abc import Iterator

from cluster import roster
from cluster.catalog.gpus import ACCELERATORS
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, listing


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Machine types and GPUs of nodes that the catalog does not know in the zone."""
    if config.gcp is None:
        return
    zone = config.gcp.zone
    for name, (kind, zones) in _wanted(config).items():
        if not zones or zone in zones:
            continue
        yield Finding(
            id="zone-unknown",
            level=Level.WARNING,
            at=("gcp", "zone"),
            what=f"{zone} is not known to have {name}; zones that have it: {_zones(zones, zone)}",
            todo=f"take one of these, unless `gcloud compute {kind} list --filter zone:{zone}` shows {name}",
        )


def _wanted(config: ClusterConfig) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Machine types and attached GPUs: which of Google's lists has them, and their known zones."""
    wanted: dict[str, tuple[str, tuple[str, ...]]] = {}
    for section in config.nodesets.values():
        kind = roster.nodeset_type(config, section)
        wanted[kind.name] = ("machine-types", kind.family.zones)
        if section.gpus and (row := ACCELERATORS.get(section.gpus.type)):
            wanted[row.type] = ("accelerator-types", row.zones)
    return wanted


def _zones(zones: tuple[str, ...], zone: str) -> str:
    """Zones in one line, those in the same part of the world first."""
    part = zone.partition("-")[0]
    return listing(sorted(zones, key=lambda one: not one.startswith(f"{part}-")))
