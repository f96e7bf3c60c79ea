"""Machines, networks and directories that are refused.

Each case: what is replaced in a small cluster. tests/golden/refused has the errors.
"""

from tests.cluster.stacks import nodeset

SHAPES = {
    "a misspelt key": {"partition": {}},
    "a misspelt key further down": nodeset(cuont=2),
    "a key that is like no other": nodeset(zzz=2),
    "a count in quotes": nodeset(count="2"),
    "a count that is true": nodeset(count=True),
    "a secret": {"password": {"secure": "v1:abc"}},
    "a name that ends a line": {"name": "dev\n"},
    "a list for a mapping": {"nodesets": ["cpu"]},
    "a mapping for a list": {"users": {"alice": 2001}},
    "a platform that is none": {"platform": "lokal"},
    "a user without uid": {"users": [{"name": "bob"}]},
}


MACHINES = {
    "a node count of 0": nodeset(count=0),
    "more nodes than Slurm can have": nodeset(count=10**12),
    "a machine type that does not exist": nodeset(machine_type="local-2c-2gpuu"),
    "GPUs that the machine can't take": nodeset(machine_type="n1-standard-1", gpus={"type": "h100", "count": 1}),
    "GPUs on a machine that has its own": nodeset(machine_type="a3-megagpu-8g", gpus={"type": "t4", "count": 1}),
    "a min above max": nodeset(count={"min": 3, "max": 2}),
    "no elastic node": nodeset(count={"min": 2, "max": 2}),
    "a max of 0": nodeset(count={"min": 0, "max": 0}),
    "a misspelt key of a count": nodeset(count={"min": 2, "max": 4, "maxx": 4}),
    "idle of nodes that stay": nodeset(idle="10m"),
    "capacity of local nodes that stay": nodeset(capacity="spot"),
    "a time without its unit": nodeset(idle=10),
    "a cluster name in capitals": {"name": "Dev"},
    "a nodeset named as a role": {"nodesets": {"cpu": {}, "login": {}}},
    "a nodeset named as a node": {"nodesets": {"cpu": {}, "dev-cpu-0": {}}},
    "host names that are too long": {"name": "a" * 20, "nodesets": {"cpu": {}, "b" * 40: {"count": 11}}},
    "an image of another platform": {"image": {"base": "ubuntu-2404"}},
    "an image that does not exist": {"image": {"base": "debian12"}},
    "machines of a role on the controller": {"login": {"on": "controller", "count": 2}},
    "a role on something else": {"login": {"on": "login"}},
    "two nodesets on the controller": {"nodesets": {"cpu": {"on": "controller"}, "b": {"on": "controller"}}},
}


PLACES = {
    "a node count of 900": nodeset(count=900),
    "more machines than a bridge takes": {**nodeset(count=1022), "network": {"cidr": "10.0.0.0/8"}},
    "many more, in several nodesets": {
        "nodesets": {"cpu": {"count": 65536}, "gpu": {"count": 60000}},
        "network": {"cidr": "10.0.0.0/8"},
    },
    "more login machines than addresses": {"login": {"count": 600}},
    "a network that is none": {"network": {"cidr": "10.77"}},
    "a network with host bits": {"network": {"cidr": "10.77.0.5/20"}},
    "a public network": {"network": {"cidr": "8.8.0.0/20"}},
    "a tiny network": {"network": {"cidr": "10.7.0.0/27"}},
    "addresses outside the network": nodeset(addresses="10.99.0.0/24"),
    "addresses of the controller": nodeset(addresses="10.77.0.0/24"),
    "addresses of another nodeset": {
        "nodesets": {"cpu": {"addresses": "10.77.2.0/23"}, "gpu": {"addresses": "10.77.2.0/24"}}
    },
    "an eighth nodeset": {"nodesets": {name: {} for name in ("cpu", *"abcdefg")}},
    "a shared system directory": {"storage": {"shared": ["/usr"]}},
    "a shared directory below a system directory": {"storage": {"shared": ["/etc/ssh"]}},
    "a shared directory over the state disk": {"storage": {"shared": ["/srv/state"]}},
    "home folders that nobody can write": {"storage": {"read_only": ["/home"]}},
    "a cluster state that nobody can write": {"storage": {"read_only": ["/opt/apps"]}},
    "a read-only directory that is not shared": {"storage": {"read_only": ["/opt/app"]}},
    "a mount point that is no path": {"storage": {"shared": ["home"]}},
}


CASES = SHAPES | MACHINES | PLACES
