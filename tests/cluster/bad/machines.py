"""Machines, their names, types, GPUs and images.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.change import nodeset

CASES = {
    "a node count of 0": (nodeset(count=0), "nodesets.cpu.count", "0", "at least 1", "raise it"),
    "a node count of -1": (nodeset(count=-1), "nodesets.cpu.count", "-1", "at least 1", "remove the nodeset"),
    "more nodes than Slurm can have": (nodeset(count=10**12), "nodesets.cpu.count", "1000000000000", "65536", "lower"),
    "more login machines than anybody needs": (
        {"login": {"count": 10**12}},
        "login.count",
        "1000000000000",
        "at most 1000",
        "lower it",
    ),
    "a machine type that does not exist": (
        nodeset(machine_type="local-2c-2gpuu"),
        "nodesets.cpu.machine_type",
        "local-2c-2gpuu",
        "a3-megagpu-8g",
        "write local-2c-2gpu",
    ),
    "GPUs that the machine can't take": (
        nodeset(machine_type="n1-standard-1", gpus={"type": "h100", "count": 1}),
        "nodesets.cpu.gpus.type",
        "h100",
        "t4",
        "another GPU type",
    ),
    "GPUs on a machine that has its own": (
        nodeset(machine_type="a3-megagpu-8g", gpus={"type": "t4", "count": 1}),
        "nodesets.cpu.gpus",
        "1 x t4",
        "comes with 8 x h100",
        "remove `gpus`",
    ),
    "a cluster name in capitals": ({"name": "Dev"}, "name", "Dev", "a letter first", "host name"),
    "a cluster name with an underscore": ({"name": "my_dev"}, "name", "my_dev", "a-z, 0-9 and -", "host name"),
    "a nodeset named as a role": (
        {"nodesets": {"cpu": {}, "login": {}}},
        "nodesets.login",
        "login",
        "any name but controller, login",
        "rename the nodeset",
    ),
    "a nodeset named as a node": (
        {"nodesets": {"cpu": {}, "dev-cpu-0": {}}},
        "nodesets.dev-cpu-0",
        "dev-cpu-0",
        "no machine has",
        "rename",
    ),
    "host names that are too long": (
        {"name": "a" * 20, "nodesets": {"cpu": {}, "b" * 40: {"count": 11}}},
        f"nodesets.{'b' * 40}",
        "of 64 characters",
        "at most 63 characters",
        "shorten",
    ),
    "an image of another platform": (
        {"image": {"base": "ubuntu-2404"}},
        "image.base",
        "ubuntu-2404",
        "debian-12",
        "write one",
    ),
    "an image that does not exist": (
        {"image": {"base": "debian12"}},
        "image.base",
        "debian12",
        "debian-12",
        "write debian-12",
    ),
    "machines of a role on the controller": (
        {"login": {"on": "controller", "count": 2}},
        "login",
        "{on: controller, count: 2}",
        "`on: controller` without",
        "remove count",
    ),
    "a role on something else": (
        {"login": {"on": "login"}},
        "login.on",
        "login",
        "only controller",
        "write controller",
    ),
    "two nodesets on the controller": (
        {"nodesets": {"cpu": {"on": "controller"}, "b": {"on": "controller"}}},
        "nodesets.b.on",
        "controller",
        "one nodeset on the controller",
        "let partitions name cpu",
    ),
}
