"""GPU clusters on InfiniBand, and NVIDIA's driver."""

from collections.abc import Iterator

from cluster.catalog.nebius.fabrics import FABRICS, fabrics_of
from cluster.catalog.nebius.presets import PLATFORMS, preset_of
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, listing
from cluster.platforms.nebius.section import Nebius
from cluster.roster import nodeset_type

_OLD_KUBERNETES = "1.30"
_OLD_PRESETS = ("cuda12",)


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    for name, workers in settings.workers.items():
        if workers.infiniband is None or name not in config.nodesets:
            continue
        found = nodeset_type(config, config.nodesets[name])
        if found.platform != "nebius" or preset_of(found.name).clusterable:
            continue
        fitting = [
            f"{platform.name}/{one.name}" for platform in PLATFORMS.values() for one in platform.presets
            if one.clusterable
        ]  # fmt: skip
        yield Finding(
            id="nebius-gpu-cluster",
            at=("nebius", "workers", name, "infiniband"),
            given=f"a GPU cluster for {found.name}",
            allowed=f"a preset with all GPUs of a host: {listing(fitting)}",
            todo="remove infiniband, or write such a machine type for the nodeset",
        )
    gpu = settings.gpu
    if (
        any(nodeset_type(config, one).gpu for one in config.nodesets.values())
        and gpu.driver == "preinstalled"
        and settings.kubernetes.version == _OLD_KUBERNETES
        and gpu.drivers_preset not in _OLD_PRESETS
    ):
        yield Finding(
            id="nebius-drivers-preset",
            at=("nebius", "gpu", "drivers_preset"),
            given=gpu.drivers_preset,
            allowed=f"with Kubernetes {_OLD_KUBERNETES}: {listing(_OLD_PRESETS)}",
            todo="write it, or nebius.kubernetes.version: '1.31'",
        )


def find_warnings(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    for name, section in config.nodesets.items():
        found, workers = nodeset_type(config, section), settings.workers.get(name)
        infiniband = workers.infiniband if workers else None
        platform = found.family.name
        if infiniband is None:
            if section.count > 1 and preset_of(found.name).clusterable:
                yield Finding(
                    id="nebius-no-gpu-cluster",
                    level=Level.WARNING,
                    at=("nodesets", name),
                    what=f"{section.count} nodes of {found.name} are in no GPU cluster: jobs on several of them have "
                    "Ethernet in place of InfiniBand",
                    todo=f"write nebius.workers.{name}.infiniband, with one of the fabrics "
                    f"{listing(fabrics_of(platform, settings.region))}",
                )
            continue
        fabric = FABRICS.get(infiniband.fabric or "")
        if infiniband.fabric and fabric is None:
            why = "is none of those that are known here"
        elif fabric and (fabric.platform, fabric.region) != (platform, settings.region):
            why = f"is of {fabric.platform} in {fabric.region}, and the nodes are {platform} in {settings.region}"
        else:
            continue
        yield Finding(
            id="nebius-fabric",
            level=Level.WARNING,
            at=("nebius", "workers", name, "infiniband", "fabric"),
            what=f"{infiniband.fabric} {why}",
            todo=f"known for these nodes: {listing(fabrics_of(platform, settings.region))}; Nebius's page "
            "docs.nebius.com/compute/clusters/gpu has all",
        )
