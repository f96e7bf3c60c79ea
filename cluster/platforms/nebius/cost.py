"""Parts of a cluster on Nebius that cost money."""

from collections.abc import Iterator
from functools import partial

from cluster.config.cluster import ClusterConfig
from cluster.cost_parts import Part
from cluster.platforms.nebius.node_groups import node_groups
from cluster.platforms.nebius.request import initial_count, monitoring_gib
from cluster.platforms.nebius.stack_file_fields import settings_of


def parts(config: ClusterConfig) -> Iterator[Part]:
    """Yield nodes with their disks, file systems and the public address. The backups' bucket is left out."""
    settings = settings_of(config)
    for group in node_groups(config, settings):
        least = initial_count(group)
        ways = ("spot" if group.preemptible else "on_demand",)
        what = f"nodeset {group.nodeset}" if group.nodeset else group.role
        disks = [("network-ssd", group.disk_gib)]
        if group.nodeset and (own := settings.workers_of(group.nodeset)):
            more = (*own.local_disks.values(), *filter(None, [own.image_disk]))
            disks += [(disk.type, disk.size_gib) for disk in more]
        for count, elastic in ((least, False), (group.most - least, True)):
            part = partial(Part, what=what, elastic=elastic, nodeset=group.nodeset)
            yield part(item=group.machine_type, count=count, group="machines", ways=ways)
            yield from (part(item=item, count=count * size, group="storage") for item, size in disks)
    yield Part(what="metrics and logs", item="network-ssd", count=monitoring_gib(config), group="storage")
    for path, section in settings.filesystems.members().items():
        if section.spec:
            yield Part(
                what=f"file system {path[-1]}",
                item="filesystem",
                count=section.spec.size_gib,
                group="storage",
                protected=config.deletion_protection,
            )
    public = settings.login.service == "LoadBalancer" and settings.login.exposure == "public"
    yield Part(what="address of the logins", item="public-address", count=int(public), group="network")
