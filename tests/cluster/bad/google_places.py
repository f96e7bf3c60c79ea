"""Google Cloud: project and zone, networks.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from typing import Any

from tests.clouds import A3

Changes = dict[str, Any]


def network(**keys: Any) -> Changes:
    return {"network": keys}


def managed(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "managed", **keys}}}


PLACE = {
    "no zone": ({"gcp:zone": None}, "gcp:zone", "nothing", "us-central1-a", "pulumi config set gcp:zone us-central1-a"),
    "no project": ({"gcp:project": None}, "gcp:project", "nothing", "my-project", "add `gcp:project:"),
    "a project id with a typo": (
        {"gcp:project": "My_Project"},
        "gcp:project",
        "My_Project",
        "6 to 30 of a-z, 0-9 and -",
        "gcloud projects list",
    ),
    "a project number": ({"gcp:project": 123456789012}, "gcp:project", "123456789012", "text", "write it so"),
    "a zone that is a region": ({"gcp:zone": "us-central1"}, "gcp:zone", "us-central1", "us-central1-a", "letter"),
    "a region that is not the zone's": (
        {"gcp:region": "europe-west4"},
        "gcp:region",
        "europe-west4",
        "us-central1",
        "the zone says the region",
    ),
    "project and zone within the cluster": (
        {"gcp": {"zone": "us-central1-a"}},
        "gcp",
        "us-central1-a",
        "gcp:project and gcp:zone beside hpc:cluster",
        "under `config:`",
    ),
}

NETWORKS = {
    "machines and GPUs in one network": (
        {**network(cidr="10.0.0.0/20"), "nodesets": {"a3": A3}},
        "network.cidr",
        "10.0.0.0/20",
        "10.0.0.0/17 is the GPUs' (gpu_cidr)",
        "e.g. the default 172.16.0.0/20",
    ),
    "GPUs in the machines' network": (
        {**network(gpu_cidr="172.16.0.0/17"), "nodesets": {"a3": A3}},
        "network.gpu_cidr",
        "172.16.0.0/17",
        "172.16.0.0/20 is the machines' (cidr)",
        "e.g. the default 10.0.0.0/17",
    ),
    "services in the GPUs' network": (
        {**network(services_cidr="10.0.16.0/20"), **managed(), "nodesets": {"a3": A3}},
        "network.services_cidr",
        "10.0.16.0/20",
        "10.0.0.0/17 is the GPUs'",
        "e.g. the default 10.128.0.0/20",
    ),
    "services in the machines' network": (
        {**network(services_cidr="172.16.0.0/20"), "storage": {"filestore": {}}},
        "network.services_cidr",
        "172.16.0.0/20",
        "172.16.0.0/20 is the machines'",
        "e.g. the default 10.128.0.0/20",
    ),
    "more machines than addresses": (
        {**network(cidr="172.16.0.0/26"), "nodesets": {"cpu": {"count": 200}}},
        "network.cidr",
        "172.16.0.0/26: 200 nodes, for 28 addresses",
        "e.g. 172.16.0.0/20",
        "widen it",
    ),
    "more GPU nodes than addresses": (
        {**network(gpu_cidr="10.0.0.0/26"), "nodesets": {"a3": {**A3, "count": 5}}},
        "network.gpu_cidr",
        "10.0.0.0/26",
        "whose eighth holds 5 nodes and 4 addresses of Google's",
        "widen it",
    ),
    "a network that has no eight parts": (
        network(gpu_cidr="10.0.0.0/30"),
        "network.gpu_cidr",
        "10.0.0.0/30",
        "/26 or larger",
        "widen it",
    ),
    "too few addresses for services": (
        {**network(services_cidr="10.128.0.0/26"), **managed()},
        "network.services_cidr",
        "10.128.0.0/26",
        "/22 or larger",
        "widen it",
    ),
    "the whole world": (
        {**network(admin_cidrs=["0.0.0.0/0"]), "login": {"public": True}},
        "network.admin_cidrs[0]",
        "0.0.0.0/0",
        "203.0.113.7/32",
        "SSH is never open to the world",
    ),
    "a public address for nobody": (
        {"login": {"public": True}},
        "login.public",
        "nobody in network.admin_cidrs",
        "[203.0.113.7/32]",
        "say who may reach it",
    ),
    "administrators of no public address": (
        network(admin_cidrs=["203.0.113.7/32"]),
        "network.admin_cidrs",
        "203.0.113.7/32",
        "which no machine has",
        "login: {public: true}",
    ),
    "a public login machine that is not there": (
        {**network(admin_cidrs=["203.0.113.7/32"]), "login": {"count": 0, "public": True}},
        "login.public",
        "with no login machine",
        "`on: controller`",
        "raise login.count",
    ),
    "packages without a way out": (network(nat=False), "network.nat", "false", "where machines install", "remove it"),
    "a network that is an address": (
        network(existing={"network": "https://example.org", "subnetwork": "hpc"}),
        "network.existing.network",
        "https://example.org",
        "shared-vpc",
        "gcloud compute networks list",
    ),
}

CASES = PLACE | NETWORKS
