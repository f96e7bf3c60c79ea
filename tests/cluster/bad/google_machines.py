"""Google Cloud: machines, their disks and images.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from typing import Any

from tests.cluster.bad.google_capacity import Changes, a3, cpu


def image(**keys: Any) -> Changes:
    return {"image": keys}


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
    "GPUs connected by GPUDirect-TCPX": (
        {"nodesets": {"gpu": {"machine_type": "a3-highgpu-8g"}}},
        "nodesets.gpu.machine_type",
        "a3-highgpu-8g, whose GPUs are connected by GPUDirect-TCPX",
        "machine types with GPUs whose network this version sets up: a3-megagpu-8g, a3-ultragpu-8g, a4-highgpu-8g",
        "write a3-megagpu-8g",
    ),
    "two fabrics": (
        {"nodesets": {"mega": {"machine_type": "a3-megagpu-8g"}, "ultra": {"machine_type": "a3-ultragpu-8g"}}},
        "nodesets.ultra.machine_type",
        "a3-ultragpu-8g, whose GPUs are connected by GPUDirect RDMA",
        "one fabric in a cluster; another nodeset has GPUDirect-TCPXO",
        "make a stack of their own",
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
    "a recipe that does not exist": (
        image(recipe="2026-12"),
        "image.recipe",
        "2026-12",
        "2026-11, 2025-01",
        "2026-11",
    ),
    "a day that is none": (
        image(snapshot="20261301T000000Z"),
        "image.snapshot",
        "20261301T000000Z",
        "YYYYMMDDTHHMMSSZ",
        "write the day",
    ),
    "a day before there were snapshots": (
        image(snapshot="20230228T000000Z"),
        "image.snapshot",
        "20230228T000000Z",
        "from 20230301T000000Z on",
        "write the day",
    ),
    "a day that is still to come": (
        image(snapshot="20991231T000000Z"),
        "image.snapshot",
        "20991231T000000Z",
        "a day that was",
        "write an earlier day",
    ),
    "packages for an image that is there": (
        image(name="a3mega-0123456789ab", snapshot="20261115T000000Z"),
        "image.snapshot",
        "20261115T000000Z",
        "nothing beside image.name",
        "remove it",
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
    "packages of one's own for an image that is there": (
        image(name="a3mega-0123456789ab", packages=["podman"]),
        "image.packages",
        "[podman]",
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
        "presents_as is for local machines",
        "remove it",
    ),
}

CASES = ALONE | DISKS | IMAGES
