"""Clusters that together have every field of the configuration, and edits of each field.

tests/golden/impact/edits.yaml has the edits, with their effects on running jobs.
"""

import copy
from functools import cache
from typing import Any, NamedTuple

import yaml

from cluster.config.impact_annotations import Effect
from cluster.impact.table import editable_patterns
from tests.cluster.stacks import ROOT, Changes

Cluster = dict[str, Any]


def script(place: str) -> Cluster:
    """Return a script for a place. It has its own name, since a name stands for one file of the whole cluster."""
    return {"name": f"10-{place}", "text": "#!/bin/sh\n"}


LAB: Cluster = {
    "platform": "local",
    "name": "lab",
    "nodesets": {
        "cpu": {"count": 3},
        "gpu": {"machine_type": "local-2c-2gpu", "scripts": [script("nodesets")]},
        "bare": {"machine_type": "local-2c", "gpus": {"type": "standin", "count": 1}},
    },
    "partitions": {
        "cpu": {"nodesets": ["cpu"], "default": True},
        "gpu": {"nodesets": ["gpu"], "scripts": [script("partitions")]},
    },
    "slurm": {"scripts": [script("slurm")]},
    "groups": {"ml": 3001},
    "users": [
        {"name": "alice", "uid": 2001, "groups": ["ml"], "account": "research"},
        {"name": "bob", "uid": 2002, "account": "research"},
    ],
    "former_users": [{"name": "carol", "uid": 2003}],
    "accounting": {
        "accounts": [{"name": "research"}, {"name": "teaching"}],
        "qos": [{"name": "urgent", "priority": 100}, {"name": "idle"}],
    },
}
_MAIL = {"to": ["ops@example.org"], "sender": "slurm@example.org", "smarthost": "smtp.example.org:587"}
MONITORED: Cluster = {**LAB, "monitoring": {"receivers": {"mail": _MAIL}, "web": {"user": "grafana"}}}
APART: Cluster = {**LAB, "monitoring": {"machine": {}}}
"""A cluster whose Prometheus has a machine of its own."""
GROWING: Cluster = {
    "platform": "local",
    "name": "lab",
    "nodesets": {"cpu": {"count": {"min": 2, "max": 4}}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}
"""A cluster with an elastic nodeset."""
CHECKED: Cluster = {**LAB, "slurm": {**LAB["slurm"], "health": {"nccl": {}, "diag": {}, "fabric": {}, "network": {}}}}
"""A cluster with all health checks."""
WARMED: Cluster = {**LAB, "slurm": {**LAB["slurm"], "warm_up": {"containers": ["alpine:3.20"]}}}
"""A cluster that has a warm-up."""
CLOUD: Cluster = {
    "platform": "gcp",
    "gcp": {"project": "my-project", "zone": "us-central1-a"},
    "name": "cloud",
    "storage": {
        "lustre": {
            "kind": "exascaler",
            "mgs": {"mgt": {"type": "pd-standard", "size_gb": 128}, "mnt": {"type": "pd-standard", "size_gb": 128}},
            "mds": {"mdt": {"type": "pd-ssd", "size_gb": 3500}},
            "oss": {"ost": {"type": "pd-ssd", "size_gb": 3500}},
        },
        "buckets": [{"name": "data-one", "mount": "/gcs"}, {"name": "data-two", "mount": "/more"}],
    },
    "image": {"provision": [{"name": "ours", "text": "#!/bin/sh\n"}]},
    "login": {"public": True},
    "network": {
        "cidr": "172.16.0.0/20",
        "gpu_cidr": "10.0.0.0/17",
        "second_cidr": "10.1.0.0/20",
        "services_cidr": "10.128.0.0/20",
        "admin_cidrs": ["203.0.113.7/32"],
        "existing": {"network": "net", "subnetwork": "sub"},
    },
    "nodesets": {"cpu": {"count": 2}, "gpu": {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}
MANAGED: Cluster = {
    **CLOUD,
    "monitoring": {"web": {"user": "grafana"}},
    "controller": {"disk": {"size_gb": 250}},
    "login": {"public": True, "disk": {"size_gb": 250}},
    "storage": {"lustre": {"kind": "managed"}, "filestore": {"mount": "/home"}},
}
CLOUD_APART: Cluster = {**CLOUD, "monitoring": {"machine": {"disk": {"size_gb": 250}}}}
"""A cluster whose Prometheus has a machine of its own."""
CLUSTERS: dict[str, Cluster] = {
    "lab": LAB,
    "growing": GROWING,
    "monitored": MONITORED,
    "apart": APART,
    "checked": CHECKED,
    "warmed": WARMED,
    "cloud": CLOUD,
    "cloud-apart": CLOUD_APART,
    "managed": MANAGED,
}
ONE_CHOICE = {pattern for pattern in editable_patterns() if pattern.startswith("slurm.rxdm")}
"""Fields of rxdm, which a rehearsal does not have."""


class Edit(NamedTuple):
    """An edit of a field: the field's pattern, what is changed by its path, and the effect on running jobs."""

    pattern: str
    changes: Changes
    effect: Effect
    reason: str = ""


@cache
def _edits() -> dict[str, list[list[Any]]]:
    return yaml.safe_load((ROOT / "tests/golden/impact/edits.yaml").read_text())


def edits_of(cluster: str) -> list[Edit]:
    """Return the edits of a cluster, by its name."""
    return [Edit(pattern, changes, Effect(effect), *reason) for pattern, changes, effect, *reason in _edits()[cluster]]


def edited(cluster: Cluster, changes: Changes) -> Cluster:
    """Return a copy of a cluster with values at dotted paths replaced; None removes one. Members of a list have names.

    Sections that are missing are added.
    """
    after = copy.deepcopy(cluster)
    for path, value in changes.items():
        *steps, last = path.split(".")
        section: Any = after
        for step in steps:
            if isinstance(section, list):
                section = next(member for member in section if member["name"] == step)
            else:
                section = section.setdefault(step, {})
        if isinstance(section, list):
            section[:] = [member for member in section if member["name"] != last] + ([] if value is None else [value])
        elif value is None:
            del section[last]
        else:
            section[last] = value
    return after
