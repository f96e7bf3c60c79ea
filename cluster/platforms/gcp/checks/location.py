"""Where on Google Cloud: the zone has the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.catalog.zones import ZONES
from cluster.findings import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig

_SEEN = "`gcloud compute {kind} list --filter zone:{zone}`"


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Machine types and GPUs that are not to be had in the zone."""
    if config.gcp is None:
        return
    zone = config.gcp.zone
    for name, kind in _wanted(config).items():
        if name not in ZONES or zone in ZONES[name]:
            continue
        yield Broken(
            at=("gcp", "zone"),
            given=zone,
            allowed=f"a zone that has {name}: {_zones(name, zone)}",
            todo=f"take one of these; if {_SEEN.format(kind=kind, zone=zone)} shows {name}, add the zone to "
            "cluster/catalog/zones.py",
        )


def _wanted(config: ClusterConfig) -> dict[str, str]:
    """Machine types and attached GPUs, with the list of Google's that has them."""
    wanted: dict[str, str] = {}
    for section in config.nodesets.values():
        wanted[section.machine_type or config.controller.machine_type] = "machine-types"
        if section.gpus:
            wanted[section.gpus.type] = "accelerator-types"
    return wanted


def _zones(name: str, zone: str) -> str:
    """The zones of a type; of many, those that are in the same part of the world."""
    part = zone.partition("-")[0]
    near = [one for one in ZONES[name] if one.startswith(f"{part}-")]
    far = [one for one in ZONES[name] if one not in near]
    return ", ".join([*near, *far])
