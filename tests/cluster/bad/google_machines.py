"""Google Cloud: machines, how they are asked for, their disks and images.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from typing import Any

from tests.clouds import A3

Changes = dict[str, Any]
CLOSE = {"placement": {"max_distance": 2}}


def a3(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"a3": {**A3, **({"capacity": capacity} if capacity else {}), **keys}}}


def cpu(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"cpu": {**({"capacity": capacity} if capacity else {}), **keys}}}


def image(**keys: Any) -> Changes:
    return {"image": keys}


CAPACITY = {
    "a reservation with placement": (
        a3({"reservation": "mine", **CLOSE}),
        "nodesets.a3.capacity",
        "{reservation: mine, placement: {max_distance: 2}}",
        "placement within on_demand or spot",
        "a reservation brings its own",
    ),
    "spot machines from a reservation": (
        a3({"spot": {}, "reservation": "mine"}),
        "nodesets.a3.capacity",
        "{spot: {}, reservation: mine}",
        "exactly one of",
        "keep one of spot and reservation",
    ),
    "flex from a reservation": (
        a3({"flex": {}, "reservation": "mine"}),
        "nodesets.a3.capacity",
        "{flex: {}, reservation: mine}",
        "exactly one of",
        "keep one of reservation and flex",
    ),
    "capacity that says nothing": (cpu({"spot": None}), "nodesets.cpu.capacity", "{spot: null}", "exactly one", "name"),
    "flex with placement": (
        a3({"flex": CLOSE}),
        "nodesets.a3.capacity.flex.placement",
        "placement",
        "max_run",
        "remove it",
    ),
    "placement too far": (
        a3({"spot": {"placement": {"max_distance": 4}}}),
        "nodesets.a3.capacity.spot.placement.max_distance",
        "4",
        "at most 3",
        "lower it",
    ),
    "placement of machines that have none": (
        cpu({"on_demand": CLOSE}, machine_type="e2-standard-4"),
        "nodesets.cpu.capacity.on_demand.placement",
        "on e2-standard-4",
        "other than e2, n1",
        "another machine type",
    ),
    "flex without GPUs": (
        cpu({"flex": {}}),
        "nodesets.cpu.capacity.flex",
        "flex on n2-standard-2",
        "machines with GPUs",
        "on_demand",
    ),
    "flex for eight days": (
        a3({"flex": {"max_run": "8-00:00:00"}}),
        "nodesets.a3.capacity.flex.max_run",
        "8-00:00:00",
        "ten minutes to seven days",
        "shorten it",
    ),
    "flex for ever": (
        a3({"flex": {"max_run": "INFINITE"}}),
        "nodesets.a3.capacity.flex.max_run",
        "INFINITE",
        "seven days",
        "shorten it",
    ),
    "a calendar without GPUs": (
        cpu({"calendar": "my-week"}),
        "nodesets.cpu.capacity.calendar",
        "my-week for n2-standard-2",
        "A3 machines",
        "on_demand",
    ),
    "a reservation that is no name": (
        a3({"reservation": "projects/p/mine"}),
        "nodesets.a3.capacity.reservation",
        "projects/p/mine",
        "projects/PROJECT/reservations/NAME",
        "gcloud compute reservations list",
    ),
    "a controller from a reservation": (
        {"controller": {"capacity": {"reservation": "mine"}}},
        "controller.capacity.reservation",
        "reservation: mine",
        "on_demand, spot",
        "remove it",
    ),
    "a controller close to itself": (
        {"controller": {"capacity": {"spot": CLOSE}}},
        "controller.capacity.spot.placement",
        "{max_distance: 2}",
        "placement of nodesets",
        "remove it here",
    ),
    "spot and on demand": (
        {"login": {"capacity": {"spot": {}, "on_demand": {}}}},
        "login.capacity",
        "{spot: {}, on_demand: {}}",
        "exactly one of",
        "keep one",
    ),
    "T4 on a machine that takes none": (
        cpu(gpus={"type": "t4", "count": 1}),
        "nodesets.cpu.gpus.type",
        "t4",
        "on n2-standard-2: none",
        "n1-standard-1",
    ),
    "three T4": (
        cpu(machine_type="n1-standard-4", gpus={"type": "t4", "count": 3}),
        "nodesets.cpu.gpus.count",
        "3",
        "1, 2, 4",
        "more nodes",
    ),
    "rehearsal machines": (
        cpu(machine_type="local-2c"),
        "nodesets.cpu.machine_type",
        "local-2c",
        "a machine type of gcp",
        "write ",
    ),
    "addresses of nodes": (
        cpu(addresses="172.16.1.0/24"),
        "nodesets.cpu.addresses",
        "172.16.1.0/24",
        "nothing on gcp",
        "remove it",
    ),
}

ALONE = {
    f"{role} machines with GPUs": (
        {role: {"machine_type": "a3-megagpu-8g", "disk": {"type": "pd-ssd"}, **more}},
        f"{role}.machine_type",
        "a3-megagpu-8g",
        "without GPUs",
        "make a nodeset",
    )
    for role, more in (("controller", {"state_disk": {"type": "pd-ssd"}}), ("login", {}))
}

DISKS = {
    "an unknown disk type of a machine": (
        cpu(disk={"type": "ssd"}),
        "nodesets.cpu.disk.type",
        "ssd",
        "pd-balanced",
        "pd-ssd",
    ),
    "a disk that A3 does not take": (
        a3(disk={"type": "pd-standard"}),
        "nodesets.a3.disk.type",
        "pd-standard, of a3-megagpu-8g",
        "to boot from: pd-balanced, pd-ssd, hyperdisk-balanced",
        "take one of these",
    ),
    "a disk that nothing boots from": (
        a3(disk={"type": "hyperdisk-throughput", "size_gb": 4096}),
        "nodesets.a3.disk.type",
        "hyperdisk-throughput",
        "to boot from",
        "take one of these",
    ),
    "a boot disk smaller than the image": (
        a3(disk={"size_gb": 100}),
        "nodesets.a3.disk.size_gb",
        "100",
        "at least 200: image.builder.size_gb",
        "write 200 or more",
    ),
    "a boot disk smaller than the system": (
        {**image(base="ubuntu-2404"), "login": {"disk": {"size_gb": 12}}},
        "login.disk.size_gb",
        "12",
        "at least 20: for the system",
        "write 20 or more",
    ),
    "a state disk that the controller does not take": (
        {"controller": {"state_disk": {"type": "hyperdisk-balanced"}}},
        "controller.state_disk.type",
        "hyperdisk-balanced, of c2-standard-8",
        "pd-standard, pd-balanced, pd-ssd",
        "take one of these",
    ),
}

IMAGES = {
    "an image family": (
        image(name="projects/my-project/global/images/family/a3mega"),
        "image.name",
        "family/a3mega",
        "one image",
        "changes by itself",
    ),
    "an image that is there and baked": (
        image(name="a3mega-0123456789ab", bake=True),
        "image.bake",
        "true",
        "nothing beside image.name",
        "remove `name`",
    ),
    "steps for an image that is there": (
        image(name="a3mega-0123456789ab", provision=[{"name": "ours", "text": "#!/bin/sh\n"}]),
        "image.provision",
        "name: ours",
        "is used as it is",
        "remove it",
    ),
    "a bake of what needs none": (
        image(base="ubuntu-2404", bake=True),
        "image.bake",
        "true, of ubuntu-2404",
        "true of ubuntu-2204",
        "write `bake: false`",
    ),
    "a builder for no image": (
        image(base="ubuntu-2404", builder={"size_gb": 100}),
        "image.builder",
        "{size_gb: 100}",
        "where no image is made",
        "remove it",
    ),
    "a builder of an N series": (
        image(builder={"machine_type": "n2-standard-8"}),
        "image.builder.machine_type",
        "n2-standard-8",
        "open driver does not install",
        "c2-standard-8",
    ),
    "a builder with GPUs": (
        image(builder={"machine_type": "a3-megagpu-8g"}),
        "image.builder.machine_type",
        "a3-megagpu-8g",
        "has no GPU",
        "c2-standard-8",
    ),
    "a step of two sources": (
        image(provision=[{"name": "ours", "text": "#!/bin/sh\n", "file": "README.md"}]),
        "image.provision[0]",
        "name: ours",
        "exactly one of file, url and text",
        "keep one of file and text",
    ),
    "a system of the rehearsal": (image(base="debian-12"), "image.base", "debian-12", "on gcp: ", "write one of these"),
    "a system that machines say they are": (
        image(presents_as="ubuntu-2204"),
        "image.presents_as",
        "ubuntu-2204",
        "nothing on platforms but local",
        "remove it",
    ),
}

CASES = CAPACITY | ALONE | DISKS | IMAGES
