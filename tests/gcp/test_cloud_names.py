"""Names of a new stack that are taken in its project."""

from typing import Any

import pytest

from cluster.cloud_checks import CloudOutcome
from cluster.platforms.gcp.cloud_names import firewall_rules, named
from components.gcp import cloud_checks
from tests.clouds import A3, MANAGED, google
from tests.cluster import stacks
from tests.contract.recorded import MACHINES, record
from tests.gcp.test_cloud_checks import GOOGLE_STACKS, everything, wrong
from tests.lab.google.apis import GoogleApis, on

NAMED_TYPES = {
    "instances": (MACHINES, "name"),
    "disks": (("gcp:compute/disk:Disk",), "name"),
    "disks in two zones": (("gcp:compute/regionDisk:RegionDisk",), "name"),
    "networks": (("gcp:compute/network:Network",), "name"),
    "firewall rules": (("gcp:compute/firewall:Firewall",), "name"),
    "addresses": (("gcp:compute/address:Address",), "name"),
    "ranges": (("gcp:compute/globalAddress:GlobalAddress",), "name"),
    "routers": (("gcp:compute/router:Router",), "name"),
    "instances of file.googleapis.com": (("gcp:filestore/instance:Instance",), "name"),
    "instances of lustre.googleapis.com": (("gcp:lustre/instance:Instance",), "instanceId"),
    "service accounts": (("gcp:serviceaccount/account:Account",), "accountId"),
    "secrets": (("gcp:secretmanager/secret:Secret",), "secretId"),
    "buckets": (("gcp:storage/bucket:Bucket",), "name"),
}
"""Types of resources of each kind, and the input that has the name."""


@pytest.mark.parametrize("name", GOOGLE_STACKS)
def test_they_are_those_of_the_stacks_resources(name: str) -> None:
    config, recording = stacks.config(name), record(name, "made").recording
    kinds = named(config)
    assert kinds.keys() <= NAMED_TYPES.keys()
    for what, (types, key) in NAMED_TYPES.items():
        registered = {row.inputs[key] for type_ in types for row in recording.all(type_) if key in row.inputs}
        asked = kinds[what].names(config) if what in kinds else set()
        # Every role has an account's name; elastic nodes have machines without a resource.
        at_most = what in ("service accounts", "instances")
        assert registered <= asked if at_most else registered == asked, what


def test_firewall_rules_of_a_shared_network_are_in_its_project() -> None:
    """No stack of the tests has one."""
    own, shared = firewall_rules(everything()), firewall_rules(everything(), "host-project")
    assert own == {f"cloud-gpu-{index}-internal" for index in range(8)}
    assert shared == {"cloud-internal", "cloud-iap", "cloud-services"}
    assert own | shared <= firewall_rules(google(nodesets={"gpu": A3}, storage={"lustre": MANAGED}))


@pytest.mark.parametrize(
    ("method", "answer", "kind"),
    [
        ("compute.instances.list", {"items": [{"name": "cloud-controller"}]}, "instances"),
        ("compute.disks.list", {"items": [{"name": "cloud-controller-state"}]}, "disks"),
        ("compute.networks.list", {"items": [{"name": "cloud-system", "description": "theirs"}]}, "networks"),
        (
            "iam.projects.serviceAccounts.list",
            {"accounts": [{"name": "projects/p/serviceAccounts/cloud-ctl@p.iam.gserviceaccount.com"}]},
            "service accounts",
        ),
        (
            "secretmanager.projects.secrets.list",
            {"secrets": [{"name": "projects/1/secrets/cloud-munge"}]},
            "secrets",
        ),
        ("storage.buckets.list", {"items": [{"name": "my-project-cloud-setup"}]}, "buckets"),
        (
            "compute.firewalls.list",
            {"items": [{"name": "cloud-iap", "network": "global/networks/theirs", "targetTags": ["theirs"]}]},
            "firewall rules",
        ),
        ("compute.addresses.list", {"items": [{"name": "cloud-controller-address"}]}, "addresses"),
        ("compute.routers.list", {"items": [{"name": "cloud-router", "network": "global/networks/x"}]}, "routers"),
    ],
)
def test_one_that_is_taken(apis: GoogleApis, method: str, answer: dict[str, Any], kind: str) -> None:
    apis.rules.insert(0, on(method, (200, answer)))
    (seen,) = wrong(cloud_checks.check(google()))
    assert (seen.outcome, seen.asked) == (CloudOutcome.WRONG, f"names of {kind}")
    assert seen.seen.startswith("taken: ")
    assert seen.todo.startswith("choose another hpc:cluster.name")


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("compute.instances.list", {"items": [{"name": "cloud-controller", "labels": {"hpc-cluster": "cloud"}}]}),
        (
            "compute.networks.list",
            {"items": [{"name": "cloud-system", "description": "hpc: system network of cloud"}]},
        ),
        (
            "iam.projects.serviceAccounts.list",
            {"accounts": [{"name": "a/cloud-ctl@p", "displayName": "controller of the cluster cloud"}]},
        ),
        ("compute.firewalls.list", {"items": [{"name": "cloud-iap", "targetTags": ["cloud"]}]}),
        ("compute.firewalls.list", {"items": [{"name": "cloud-iap", "targetTags": ["cloud-login"]}]}),
        ("compute.routers.list", {"items": [{"name": "cloud-router", "network": "global/networks/cloud-system"}]}),
    ],
)
def test_those_of_a_run_that_stopped_do_not_stop_the_next(
    apis: GoogleApis, method: str, answer: dict[str, Any]
) -> None:
    apis.rules.insert(0, on(method, (200, answer)))
    (seen,) = wrong(cloud_checks.check(google()))
    assert seen.outcome is CloudOutcome.NOT_ASKED
    assert "which the next one continues" in seen.todo


def test_others_are_not_in_the_way_and_a_longer_list_is_not_seen_whole(apis: GoogleApis) -> None:
    other = {"items": [{"name": "cloud-2-controller"}], "nextPageToken": "more"}
    apis.rules.insert(0, on("compute.instances.list", (200, other)))
    (seen,) = wrong(cloud_checks.check(google()))
    assert (seen.outcome, seen.seen) == (CloudOutcome.NOT_ASKED, "free, among those listed")


def test_a_cluster_that_is_up_has_them(apis: GoogleApis) -> None:
    assert "names" not in {row.id for row in cloud_checks.check(google(), google())}
