"""Networks, address blocks and directories.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.change import nodeset

CASES = {
    "a node count of 900": (
        nodeset(count=900),
        "nodesets.cpu.count",
        "900",
        "1 to 510, as the nodeset's addresses are 10.77.2.0/23",
        "widen the network: `network: {cidr: 10.77.0.0/19}`",
    ),
    "more machines than a bridge takes": (
        {**nodeset(count=1022), "network": {"cidr": "10.0.0.0/8"}},
        "nodesets.cpu.count",
        "1022",
        "1021 nodes in all: a bridge of Linux has 1023 machines",
        "lower the count",
    ),
    "many more, in several nodesets": (
        {"nodesets": {"cpu": {"count": 65536}, "gpu": {"count": 60000}}, "network": {"cidr": "10.0.0.0/8"}},
        "nodesets.cpu.count",
        "65536, with those of other nodesets 125536",
        "1021 nodes in all",
        "lower the count",
    ),
    "more login machines than addresses": (
        {"login": {"count": 600}},
        "login.count",
        "600",
        "0 to 508",
        "widen network.cidr",
    ),
    "a network that is none": ({"network": {"cidr": "10.77"}}, "network.cidr", "10.77", "10.77.0.0/20", "four numbers"),
    "a network with host bits": (
        {"network": {"cidr": "10.77.0.5/20"}},
        "network.cidr",
        "10.77.0.5/20",
        "private IPv4",
        "first address: 10.77.0.0/20",
    ),
    "a public network": (
        {"network": {"cidr": "8.8.0.0/20"}},
        "network.cidr",
        "8.8.0.0/20",
        "10.0.0.0/8",
        "private range",
    ),
    "a tiny network": ({"network": {"cidr": "10.7.0.0/27"}}, "network.cidr", "10.7.0.0/27", "/8 to /26", "larger"),
    "addresses outside the network": (
        nodeset(addresses="10.99.0.0/24"),
        "nodesets.cpu.addresses",
        "10.99.0.0/24",
        "inside network.cidr 10.77.0.0/20",
        "widen",
    ),
    "addresses of the controller": (
        nodeset(addresses="10.77.0.0/24"),
        "nodesets.cpu.addresses",
        "10.77.0.0/24",
        "10.77.0.0/23 is for the gateway",
        "choose a free block",
    ),
    "addresses of another nodeset": (
        {"nodesets": {"cpu": {"addresses": "10.77.2.0/23"}, "gpu": {"addresses": "10.77.2.0/24"}}},
        "nodesets.gpu.addresses",
        "10.77.2.0/24",
        "10.77.2.0/23 is nodeset cpu's",
        "choose a free block inside 10.77.0.0/20",
    ),
    "an eighth nodeset": (
        {"nodesets": {name: {} for name in ("cpu", *"abcdefg")}},
        "nodesets.g",
        "no block of the network is left",
        "7 nodesets",
        "give `addresses:` to g",
    ),
    "a shared system directory": (
        {"storage": {"shared": ["/usr"]}},
        "storage.shared[0]",
        "/usr",
        "/opt/apps",
        "hidden",
    ),
    "a shared directory below a system directory": (
        {"storage": {"shared": ["/etc/ssh"]}},
        "storage.shared[0]",
        "/etc/ssh",
        "/data or /opt/apps",
        "with their own /etc/ssh hidden",
    ),
    "a shared directory that has the set-up": (
        {"storage": {"shared": ["/home", "/usr/local"]}},
        "storage.shared[1]",
        "/usr/local",
        "/opt/apps",
        "hidden",
    ),
    "a shared directory among the system's caches": (
        {"storage": {"shared": ["/var/cache/x"]}},
        "storage.shared[0]",
        "/var/cache/x",
        "/data",
        "share another directory",
    ),
    "a shared directory over the state disk": (
        {"storage": {"shared": ["/srv/state"]}},
        "storage.shared[0]",
        "/srv/state",
        "set-up",
        "share another directory",
    ),
    "home folders that nobody can write": (
        {"storage": {"read_only": ["/home"]}},
        "storage.read_only[0]",
        "/home",
        "does not write to; /home has people's folders",
        "remove it here",
    ),
    "a cluster state that nobody can write": (
        {"storage": {"read_only": ["/opt/apps"]}},
        "storage.read_only[0]",
        "/opt/apps",
        "the scripts and the cluster state",
        "/data",
    ),
    "a read-only directory that is not shared": (
        {"storage": {"read_only": ["/opt/app"]}},
        "storage.read_only[0]",
        "/opt/app",
        "a directory of storage.shared that exists: /home, /opt/apps, /var/mail",
        "write /opt/apps",
    ),
    "a mount point that is no path": (
        {"storage": {"shared": ["home"]}},
        "storage.shared[0]",
        "home",
        "/opt/apps",
        "root",
    ),
}
