"""Machines, networks and directories that are refused.

Each case: what is replaced in a small cluster, and words of its error, `where | given | allowed | to do`.
"""

from tests.cluster.stacks import nodeset

SHAPES = {
    "a misspelt key": ({"partition": {}}, "partition | partition | partitions | write `partitions:`"),
    "a misspelt key further down": (nodeset(cuont=2), "nodesets.cpu.cuont | cuont: 2 | count | write `count:`"),
    "a key that is like no other": (nodeset(zzz=2), "nodesets.cpu.zzz | zzz | machine_type | remove it"),
    "a count in quotes": (
        nodeset(count="2"),
        "nodesets.cpu.count | 2 | a whole number without quotes | Nodes, numbered",
    ),
    "a count that is true": (nodeset(count=True), "nodesets.cpu.count | true | a whole number | write it so"),
    "a secret": ({"password": {"secure": "v1:abc"}}, "password | password | users | remove it"),
    "a name that ends a line": ({"name": "dev\n"}, "name | dev | a letter first | host name"),
    "a list for a mapping": ({"nodesets": ["cpu"]}, "nodesets | [cpu] | a mapping | Compute nodes"),
    "a mapping for a list": ({"users": {"alice": 2001}}, "users | {alice: 2001} | a list | People"),
    "a platform that is none": ({"platform": "lokal"}, "platform | lokal | local | write local"),
    "a user without uid": ({"users": [{"name": "bob"}]}, "users[0].uid | nothing | User number | add `uid:`"),
}


MACHINES = {
    "a node count of 0": (nodeset(count=0), "nodesets.cpu.count | 0 | at least 1 | raise it"),
    "more nodes than Slurm can have": (nodeset(count=10**12), "nodesets.cpu.count | 1000000000000 | 65536 | lower"),
    "a machine type that does not exist": (
        nodeset(machine_type="local-2c-2gpuu"),
        "nodesets.cpu.machine_type | local-2c-2gpuu | a3-megagpu-8g | write local-2c-2gpu",
    ),
    "GPUs that the machine can't take": (
        nodeset(machine_type="n1-standard-1", gpus={"type": "h100", "count": 1}),
        "nodesets.cpu.gpus.type | h100 | t4 | another GPU type",
    ),
    "GPUs on a machine that has its own": (
        nodeset(machine_type="a3-megagpu-8g", gpus={"type": "t4", "count": 1}),
        "nodesets.cpu.gpus | 1 x t4 | comes with 8 x h100 | remove `gpus`",
    ),
    "a min above max": (nodeset(count={"min": 3, "max": 2}), "nodesets.cpu.count | {min: 3, max: 2} | below max | 2"),
    "no elastic node": (nodeset(count={"min": 2, "max": 2}), "nodesets.cpu.count | max: 2 | below max | `count: 2`"),
    "a max of 0": (nodeset(count={"min": 0, "max": 0}), "nodesets.cpu.count.max | 0 | at least 1 | raise it"),
    "a misspelt key of a count": (
        nodeset(count={"min": 2, "max": 4, "maxx": 4}),
        "nodesets.cpu.count.maxx | maxx: 4 | min, max | write `max:`",
    ),
    "idle of nodes that stay": (nodeset(idle="10m"), "nodesets.cpu.idle | 10m | an elastic nodeset | remove it"),
    "capacity of local nodes that stay": (
        nodeset(capacity="spot"),
        "nodesets.cpu.capacity | {spot: {}} | nothing on local, but for elastic nodes | remove it here",
    ),
    "a time without its unit": (nodeset(idle=10), "nodesets.cpu.idle | 10 | with s, m, h or d | write it so"),
    "a cluster name in capitals": ({"name": "Dev"}, "name | Dev | a letter first | host name"),
    "a nodeset named as a role": (
        {"nodesets": {"cpu": {}, "login": {}}},
        "nodesets.login | login | any name but controller, login | rename the nodeset",
    ),
    "a nodeset named as a node": (
        {"nodesets": {"cpu": {}, "dev-cpu-0": {}}},
        "nodesets.dev-cpu-0 | dev-cpu-0 | no machine has | rename",
    ),
    "host names that are too long": (
        {"name": "a" * 20, "nodesets": {"cpu": {}, "b" * 40: {"count": 11}}},
        f"nodesets.{'b' * 40} | of 64 characters | at most 63 characters | shorten",
    ),
    "an image of another platform": (
        {"image": {"base": "ubuntu-2404"}},
        "image.base | ubuntu-2404 | debian-12 | write one",
    ),
    "an image that does not exist": (
        {"image": {"base": "debian12"}},
        "image.base | debian12 | debian-12 | write debian-12",
    ),
    "machines of a role on the controller": (
        {"login": {"on": "controller", "count": 2}},
        "login | {on: controller, count: 2} | `on: controller` without | remove count",
    ),
    "a role on something else": ({"login": {"on": "login"}}, "login.on | login | only controller | write controller"),
    "two nodesets on the controller": (
        {"nodesets": {"cpu": {"on": "controller"}, "b": {"on": "controller"}}},
        "nodesets.b.on | controller | one nodeset on the controller | let partitions name cpu",
    ),
}


PLACES = {
    "a node count of 900": (
        nodeset(count=900),
        (
            "nodesets.cpu.count | 900 | 1 to 510, as the nodeset's addresses are 10.77.2.0/23 | "
            "widen the network: `network: {cidr: 10.77.0.0/19}`"
        ),
    ),
    "more machines than a bridge takes": (
        {**nodeset(count=1022), "network": {"cidr": "10.0.0.0/8"}},
        "nodesets.cpu.count | 1022 | 1021 nodes in all: a bridge of Linux has 1023 machines | lower the count",
    ),
    "many more, in several nodesets": (
        {"nodesets": {"cpu": {"count": 65536}, "gpu": {"count": 60000}}, "network": {"cidr": "10.0.0.0/8"}},
        "nodesets.cpu.count | 65536, with those of other nodesets 125536 | 1021 nodes in all | lower the count",
    ),
    "more login machines than addresses": (
        {"login": {"count": 600}},
        "login.count | 600 | 0 to 508 | widen network.cidr",
    ),
    "a network that is none": ({"network": {"cidr": "10.77"}}, "network.cidr | 10.77 | 10.77.0.0/20 | four numbers"),
    "a network with host bits": (
        {"network": {"cidr": "10.77.0.5/20"}},
        "network.cidr | 10.77.0.5/20 | private IPv4 | first address: 10.77.0.0/20",
    ),
    "a public network": ({"network": {"cidr": "8.8.0.0/20"}}, "network.cidr | 8.8.0.0/20 | 10.0.0.0/8 | private range"),
    "a tiny network": ({"network": {"cidr": "10.7.0.0/27"}}, "network.cidr | 10.7.0.0/27 | /8 to /26 | larger"),
    "addresses outside the network": (
        nodeset(addresses="10.99.0.0/24"),
        "nodesets.cpu.addresses | 10.99.0.0/24 | inside network.cidr 10.77.0.0/20 | widen",
    ),
    "addresses of the controller": (
        nodeset(addresses="10.77.0.0/24"),
        "nodesets.cpu.addresses | 10.77.0.0/24 | 10.77.0.0/23 is for the gateway | choose a free block",
    ),
    "addresses of another nodeset": (
        {"nodesets": {"cpu": {"addresses": "10.77.2.0/23"}, "gpu": {"addresses": "10.77.2.0/24"}}},
        (
            "nodesets.gpu.addresses | 10.77.2.0/24 | 10.77.2.0/23 is nodeset cpu's | "
            "choose a free block inside 10.77.0.0/20"
        ),
    ),
    "an eighth nodeset": (
        {"nodesets": {name: {} for name in ("cpu", *"abcdefg")}},
        "nodesets.g | no block of the network is left | 7 nodesets | give `addresses:` to g",
    ),
    "a shared system directory": ({"storage": {"shared": ["/usr"]}}, "storage.shared[0] | /usr | /opt/apps | hidden"),
    "a shared directory below a system directory": (
        {"storage": {"shared": ["/etc/ssh"]}},
        "storage.shared[0] | /etc/ssh | /data or /opt/apps | with their own /etc/ssh hidden",
    ),
    "a shared directory over the state disk": (
        {"storage": {"shared": ["/srv/state"]}},
        "storage.shared[0] | /srv/state | set-up | share another directory",
    ),
    "home folders that nobody can write": (
        {"storage": {"read_only": ["/home"]}},
        "storage.read_only[0] | /home | does not write to; /home has people's folders | remove it here",
    ),
    "a cluster state that nobody can write": (
        {"storage": {"read_only": ["/opt/apps"]}},
        "storage.read_only[0] | /opt/apps | the scripts and the cluster state | /data",
    ),
    "a read-only directory that is not shared": (
        {"storage": {"read_only": ["/opt/app"]}},
        (
            "storage.read_only[0] | /opt/app | "
            "a directory of storage.shared that exists: /home, /opt/apps, /var/mail | write /opt/apps"
        ),
    ),
    "a mount point that is no path": ({"storage": {"shared": ["home"]}}, "storage.shared[0] | home | /opt/apps | root"),
}


CASES = SHAPES | MACHINES | PLACES
