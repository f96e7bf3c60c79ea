"""Keys that only Google Cloud knows, on local.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.google_capacity import cpu

LOCAL = {"platform": "local", "gcp:project": None, "gcp:zone": None}
CASES = {
    f"{'.'.join(at)} on local": (
        {**LOCAL, **changes},
        ".".join(at),
        given,
        f"nothing on local: {at[-1]} is for Google Cloud",
        "remove it here",
    )
    for at, given, changes in (
        (("storage", "lustre"), "{kind: exascaler}", {"storage": {"lustre": {"kind": "exascaler"}}}),
        (
            ("storage", "buckets"),
            "[{name: data, mount: /a}]",
            {"storage": {"buckets": [{"name": "data", "mount": "/a"}]}},
        ),
        (("network", "admin_cidrs"), "[203.0.113.7/32]", {"network": {"admin_cidrs": ["203.0.113.7/32"]}}),
        (("network", "nat"), "false", {"network": {"nat": False}}),
        (("image", "bake"), "true", {"image": {"bake": True}}),
        (("controller", "state_disk"), "{size_gb: 500}", {"controller": {"state_disk": {"size_gb": 500}}}),
        (
            ("customize",),
            "[{type: gcp:compute/instance:Instance, set: {description: x}}]",
            {"customize": [{"type": "gcp:compute/instance:Instance", "set": {"description": "x"}}]},
        ),
        (("login", "public"), "true", {"login": {"public": True}}),
        (("nodesets", "cpu", "capacity"), "{spot: {}}", cpu({"spot": {}})),
        (("nodesets", "cpu", "disk"), "{size_gb: 300}", cpu(disk={"size_gb": 300})),
    )
}
