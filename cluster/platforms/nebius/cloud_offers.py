"""Checks of what Nebius offers for a request: versions, images, quotas, capacity, machine types, fabrics.

The first four are the checks of `up` before its first resource too (components/nebius/preflight.py). Fields: nebius/api
5101002, mk8s/v1/cluster_service.proto, quotas/v1, capacity/v1, compute/v1/platform.proto.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cluster.catalog.nebius_machine_types import fabrics_of, preset_of
from cluster.cloud_checks import CloudCheck, Seen
from cluster.platforms.nebius.cloud_request import AskedPlace, FreeCapacity, Quota, question
from cluster.platforms.nebius.names import MORE_QUOTA
from cluster.platforms.nebius.request import AVAILABILITIES, gpu_quota

_TIB = 1 << 40
FABRICS = "InfiniBand fabrics are those of the catalog; one that it does not know is a warning."
"""The assumption that the fabrics of the capacity advice settle."""


def versions(place: AskedPlace) -> Iterator[CloudCheck]:
    """Yield a check of the version of Kubernetes, if it is new."""
    version = place.request["kubernetes"]
    if version == place.before.get("kubernetes"):
        return

    def read(rows: Sequence[Mapping[str, Any]]) -> Seen:
        row = next((row for row in rows if row["version"] == version), None)
        ends = f" (end of life: {str(row['end_of_life'])[:10]})" if row and row.get("end_of_life") else ""
        # A cluster that is up may go to a version that no new one is created of.
        if row and not row.get("restricted") and (place.before or not row.get("deprecated")):
            return Seen(text=f"Nebius has it{ends}")
        offered = sorted(row["version"] for row in rows if not row.get("deprecated") and not row.get("restricted"))
        why = "Nebius creates no clusters of it" if row else "Nebius has no such version"
        return Seen(text=f"{why}{ends}", todo=f"set nebius.kubernetes.version to one of {', '.join(offered)}")

    asks = f"Kubernetes {version}"
    yield CloudCheck(id="kubernetes-version", asks=asks, requests=question("versions"), read=read)


def images(place: AskedPlace) -> Iterator[CloudCheck]:
    """Yield a check of each node image in the matrix of the Kubernetes version, if it is new."""
    version = place.request["kubernetes"]
    known = place.before.get("images", ()) if version == place.before.get("kubernetes") else ()
    for image in (image for image in place.request["images"] if image not in known):
        system, driver = image["os"], image["drivers_preset"]

        def read(rows: Sequence[Mapping[str, str]], system: str = system, driver: str = driver) -> Seen:
            if any((row["os"], row["drivers_preset"]) == (system, driver) for row in rows):
                return Seen(text="Nebius has it")
            offered = dict.fromkeys(f"{row['os']} with {row['drivers_preset'] or 'no driver'}" for row in rows)
            if not offered:
                return Seen(text="Nebius lists no image of this version and platform", unclear=True)
            todo = "set nebius.gpu.drivers_preset to one of these, or another nebius.kubernetes.version"
            return Seen(text=f"Nebius has no such image; it has {', '.join(sorted(offered))}", todo=todo)

        yield CloudCheck(
            id="node-image",
            asks=f"{image['platform']} with Kubernetes {version}: {system} with {driver or 'no driver'}",
            requests=question("images", version, image["platform"]),
            read=read,
        )


def quotas(place: AskedPlace) -> Iterator[CloudCheck]:
    """Yield a check of each quota that the request needs more of, and of the quota of each platform's GPUs.

    Preemptible nodes and those of a capacity block need no quota of GPUs: the row shows it all the same.
    """
    old = place.before.get("quotas", {})
    now = _more(place.request["quotas"], old)
    at_most = {**now, **_more(place.request.get("most", {}), place.before.get("most", old))}
    gpus = {gpu_quota(node["platform"]) for node in place.request["nodes"] if node["platform"].startswith("gpu-")}
    for name in sorted({*at_most, *gpus}):
        advice = question("blocks", place.tenant) if name in gpus else ()
        yield CloudCheck(
            id="quota",
            asks=f"quota {name} of {place.tenant} in {place.region}",
            requests=(*question("quotas", place.tenant), *advice),
            read=partial(_quota, place, name, now.get(name, 0), at_most.get(name, 0)),
        )


def _quota(  # noqa: PLR0917 - the request's numbers, then the answers
    place: AskedPlace, name: str, now: int, most: int, rows: Sequence[Quota], advice: Sequence[FreeCapacity] = ()
) -> Seen:
    found = [row for row in rows if row.name == name and row.region in ("", place.region)]
    if not found:
        return Seen(text=f"{_amount(name, most)} more needed; Nebius lists no limit or no usage of it", unclear=True)
    row = min(found, key=lambda row: row.free)
    text = f"{_amount(name, most)} more needed, {_amount(name, row.free)} free of {_amount(name, row.limit)}"
    if ".size." in name and row.unit != "byte":
        return Seen(text=f"{most} bytes more needed, {row.free} {row.unit} free of {row.limit}", unclear=True)
    blocks = _in_blocks(place, name, advice)
    text += f", {blocks} free in capacity blocks" if blocks else ""
    if most <= row.free + blocks:
        return Seen(text=text)
    if now <= row.free + blocks:
        return Seen(text=f"{text}: not all elastic nodes can come", todo=MORE_QUOTA, unclear=True)
    return Seen(text=text, todo=MORE_QUOTA)


def _in_blocks(place: AskedPlace, name: str, advice: Sequence[FreeCapacity]) -> int:
    """Return how many GPUs capacity blocks have free for nodes without a policy, which take them first."""
    found = 0
    for node in place.request["nodes"]:
        if node["ways"] == AVAILABILITIES["AUTO"] and gpu_quota(node["platform"]) == name:
            free = sum(row.available(("reserved",)) for row in _of_node(place, node, advice))
            found += min(free, int(node["most"])) * preset_of(f"{node['platform']}/{node['preset']}").gpus
    return found


def _of_node(place: AskedPlace, node: Mapping[str, Any], advice: Sequence[FreeCapacity]) -> list[FreeCapacity]:
    """Return the advice for a kind of nodes, on their fabric if they have one."""
    kind = place.region, node["platform"], node["preset"]
    fitting = [row for row in advice if (row.region, row.platform, row.preset) == kind]
    return [row for row in fitting if node["fabric"] in ("", row.fabric)]


def capacity(place: AskedPlace) -> Iterator[CloudCheck]:
    """Yield a check of the room for each kind of nodes that there are more of. It changes from minute to minute, so it
    is never wrong: node groups wait until there is room."""

    def key(node: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(node[name]) for name in ("platform", "preset", "fabric", "ways"))

    old = {key(node): node["count"] for node in place.before.get("nodes", ())}
    for node in place.request["nodes"]:
        count = int(node["count"] - old.get(key(node), 0))
        if count <= 0:
            continue

        def read(advice: Sequence[FreeCapacity], node: Mapping[str, Any] = node, count: int = count) -> Seen:
            ways = node["ways"].split("+")
            here = [row for row in _of_node(place, node, advice) if row.counts]
            free, kinds = sum(row.available(ways) for row in here), " and ".join(ways).replace("_", " ")
            if not here:
                return Seen(text="Nebius gives no advice for it", unclear=True)
            text = f"room for {free} more nodes at present ({kinds}), {count} needed"
            if free >= count:
                return Seen(text=text)
            every = _of_node(place, {**node, "fabric": ""}, advice)
            others = sorted(row.fabric for row in every if node["fabric"] and row.available(ways) >= count)
            todo = f"write a fabric with room: {', '.join(others)}" if others else "wait, or choose another place"
            return Seen(text=f"{text}: their node group waits until there is room", todo=todo, unclear=True)

        yield CloudCheck(
            id="capacity",
            asks=f"{node['platform']}/{node['preset']}{' on ' + node['fabric'] if node['fabric'] else ''}",
            requests=question("capacities", place.tenant),
            read=read,
        )


def _more(new: Mapping[Any, Any], old: Mapping[Any, Any]) -> dict[Any, int]:
    """Return by how much each count of `new` exceeds that of `old`, if it does."""
    differences = {name: int(count - old.get(name, 0)) for name, count in new.items()}
    return {name: count for name, count in differences.items() if count > 0}


def _amount(name: str, value: int) -> str:
    return f"{value / _TIB:.4g} TiB" if ".size." in name else str(value)


def offers(place: AskedPlace, *more: Callable[[AskedPlace], Iterator[CloudCheck]]) -> list[CloudCheck]:
    """Return the checks that `up` makes too, and more."""
    return [check for kind in (versions, images, *more, quotas, capacity) for check in kind(place)]


def machine_types(place: AskedPlace) -> Iterator[CloudCheck]:
    """Yield a check of each machine type in the project's region, beside the catalog."""
    kinds = {(node["platform"], node["preset"]): node for node in place.request["nodes"]}
    fabric = {(node["platform"], node["preset"]) for node in place.request["nodes"] if node["fabric"]}
    preemptible = {node["platform"] for node in place.request["nodes"] if node["ways"] == "preemptible"}
    for platform, preset in kinds:

        def read(rows: Sequence[Mapping[str, Any]], platform: str = platform, preset: str = preset) -> Seen:
            found = {row["metadata"]["name"]: row for row in rows}
            presets = {row["name"]: row for row in found.get(platform, {}).get("spec", {}).get("presets", ())}
            if preset not in presets:
                kind, offered = (preset, presets) if presets else (platform, found)
                todo = f"choose one of {', '.join(sorted(offered))}, or a project in another region"
                return Seen(text=f"{place.region} has no {kind}", todo=todo)
            row, ours = presets[preset], preset_of(f"{platform}/{preset}")
            size, quota = row["resources"], found[platform]["spec"].get("gpu_count_quota_type", "")
            numbers = tuple(int(size.get(name, 0)) for name in ("vcpu_count", "memory_gibibytes", "gpu_count"))
            text = "{} vCPUs, {} GiB, {} GPUs".format(*numbers)
            differences = {
                f"the catalog has {ours.vcpus} vCPUs, {ours.memory_gib} GiB, {ours.gpus} GPUs": (
                    numbers != (ours.vcpus, ours.memory_gib, ours.gpus)
                ),
                f"its GPUs count against {quota}": ours.gpus and quota != gpu_quota(platform),
                "it can't join a GPU cluster": (platform, preset) in fabric and not row.get("allow_gpu_clustering"),
                "it can't be preemptible": (
                    platform in preemptible and not found[platform].get("status", {}).get("allowed_for_preemptibles")
                ),
            }
            wrong = [what for what, is_so in differences.items() if is_so]
            todo = "choose another machine type, and report this: the catalog differs (nebius_machine_types.py)"
            return Seen(text="; ".join((text, *wrong)), todo=todo if wrong else "")

        yield CloudCheck(
            id="machine-type",
            asks=f"machine type {platform}/{preset} in {place.region}",
            requests=question("platforms", place.project),
            read=read,
        )


def fabrics(place: AskedPlace) -> Iterator[CloudCheck]:
    """Yield a check of each InfiniBand fabric: the advice on capacity names those of a region."""
    nodes = (node for node in place.request["nodes"] if node["fabric"])
    for platform, fabric in dict.fromkeys((node["platform"], node["fabric"]) for node in nodes):

        def read(advice: Sequence[FreeCapacity], platform: str = platform, fabric: str = fabric) -> Seen:
            here = {row.fabric for row in advice if (row.region, row.platform) == (place.region, platform)} - {""}
            if fabric in here:
                new = ", ".join(sorted(here - {*fabrics_of(platform, place.region)}))
                return Seen(text=f"there is one{new and f'; not in the catalog: {new}'}")
            todo = f"set infiniband.fabric to one of {', '.join(sorted(here))}" if here else ""
            return Seen(text="Nebius's advice on capacity does not have it", todo=todo, unclear=True)

        yield CloudCheck(
            id="fabric",
            asks=f"fabric {fabric} of {platform} in {place.region}",
            requests=question("capacities", place.tenant),
            read=read,
            assumptions=(FABRICS,),
        )
