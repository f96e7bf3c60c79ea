"""Keys and values of the wrong shape.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.change import nodeset

CASES = {
    "a misspelt key": ({"partition": {}}, "partition", "partition", "partitions", "write `partitions:`"),
    "a misspelt key further down": (nodeset(cuont=2), "nodesets.cpu.cuont", "cuont: 2", "count", "write `count:`"),
    "a key that is like no other": (nodeset(zzz=2), "nodesets.cpu.zzz", "zzz", "machine_type", "remove it"),
    "a count in quotes": (
        nodeset(count="2"),
        "nodesets.cpu.count",
        "2",
        "a whole number without quotes",
        "Nodes, numbered",
    ),
    "a count that is true": (nodeset(count=True), "nodesets.cpu.count", "true", "a whole number", "write it so"),
    "a secret": ({"password": {"secure": "v1:abc"}}, "password", "password", "users", "remove it"),
    "a name that ends a line": ({"name": "dev\n"}, "name", "dev", "a letter first", "host name"),
    "a list for a mapping": ({"nodesets": ["cpu"]}, "nodesets", "[cpu]", "a mapping", "Compute nodes"),
    "a mapping for a list": ({"users": {"alice": 2001}}, "users", "{alice: 2001}", "a list", "People"),
    "a platform that is none": ({"platform": "lokal"}, "platform", "lokal", "local", "write local"),
    "a user without uid": ({"users": [{"name": "bob"}]}, "users[0].uid", "nothing", "User number", "add `uid:`"),
}
