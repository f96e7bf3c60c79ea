"""Small clusters on Google Cloud for tests to vary."""

from typing import Any

from cluster.config import ClusterConfig
from cluster.load import parse, validate

A3 = {"machine_type": "a3-megagpu-8g", "count": 2}
EXASCALER = {"kind": "exascaler"}
MANAGED = {"kind": "managed", "size_gib": 36000, "throughput": 500}


def settings(**changes: Any) -> dict[str, Any]:
    """Settings of a stack, with some keys of its cluster and its zone replaced."""
    zone = changes.pop("zone", "us-central1-a")
    cluster = {
        "platform": "gcp",
        "name": "cloud",
        "nodesets": {"cpu": {"count": 2}},
        "partitions": {"main": {"nodesets": [*changes.get("nodesets", {"cpu": {}})], "default": True}},
        **changes,
    }
    return {"gcp:project": "my-project", "gcp:zone": zone, "hpc:cluster": cluster}


def google(**changes: Any) -> ClusterConfig:
    """A cluster of a controller, a login machine and two CPU nodes, with some of its keys replaced."""
    return parse(settings(**changes))


def unchecked(**changes: Any) -> ClusterConfig:
    """The same without the rules between its parts, for what is asked before they hold."""
    given = settings(**changes)
    return validate({**given["hpc:cluster"], "gcp": {"project": given["gcp:project"], "zone": given["gcp:zone"]}})
