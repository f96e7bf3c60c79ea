"""GPU clusters on InfiniBand, NVIDIA's driver, and the version of Kubernetes that its presets follow."""

from collections.abc import Iterator

from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, listing
from cluster.platforms.nebius.machine_types import FABRICS, PLATFORMS, fabrics_of, preset_of
from cluster.platforms.nebius.section import Nebius
from cluster.platforms.nebius.versions import KUBERNETES_VERSIONS, LOOKED, PRESETS, creatable
from cluster.roster import nodeset_type


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
    yield from _drivers(config, settings)


def _drivers(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    """A preset of drivers that is known, and that node images of this Kubernetes do not have."""
    preset, version = settings.gpu.drivers_preset, KUBERNETES_VERSIONS.get(settings.kubernetes.version)
    if settings.gpu.driver != "preinstalled" or version is None or preset not in PRESETS:
        return
    platforms = [nodeset_type(config, one).family.name for one in config.nodesets.values()]
    for platform in dict.fromkeys(platforms):
        offered = version.drivers.get(platform, ())
        if offered and preset not in offered:
            yield Finding(
                id="nebius-drivers-preset",
                at=("nebius", "gpu", "drivers_preset"),
                given=preset,
                allowed=f"with Kubernetes {version.name} on {platform}: {listing(offered)} (as of {LOOKED})",
                todo=f"write {offered[-1]}, or another nebius.kubernetes.version",
            )
            return


def find_warnings(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    yield from _kubernetes(settings)
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


def _kubernetes(settings: Nebius) -> Iterator[Finding]:
    """A version that no new cluster has. One that is up with it stays, so that is no error."""
    version = settings.kubernetes.version
    known = KUBERNETES_VERSIONS.get(version)
    if known is not None and not known.deprecated:
        return
    ended = f", and ended it on {known.end_of_life}" if known and known.end_of_life else ""
    why = f"Nebius creates no clusters of it any more{ended}" if known else "it is none of those that are known here"
    yield Finding(
        id="nebius-kubernetes-version",
        level=Level.WARNING,
        at=("nebius", "kubernetes", "version"),
        what=f"Kubernetes {version}: {why} (as of {LOOKED}). `up` asks Nebius before it creates a cluster",
        todo=f"for a new cluster, write one of {listing(creatable())}",
    )
