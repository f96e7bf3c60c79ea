"""Properties of every stack on Google Cloud: made, previewed, and with all outputs unknown."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pulumi_gcp
import pytest

from cluster.config import ClusterConfig
from cluster.platforms.gcp import iap
from cluster.platforms.gcp.filesystems import registry
from cluster.platforms.gcp.filesystems.base import ServiceNeed
from cluster.platforms.gcp.image import bakes as bakes_image
from cluster.platforms.gcp.permissions import (
    CUSTOM_ROLES,
    FLEX,
    NETWORKS,
    POLICIES,
    RECONCILE,
    TUNNEL,
    policies,
    roles,
    services,
)
from cluster.platforms.gcp.request import describe_request
from cluster.roster import machines
from tests import clouds
from tests.cluster import stacks
from tests.contract.recorded import MACHINES, StackRun, modes, record, texts
from tests.harness import FAKE_SECRETS, Recording, Registered, deploy
from tests.lab.google import apis

COMPUTE = "roles/compute.admin"
_COMPUTE = ServiceNeed(services=("compute",), roles=(COMPUTE,))
_MACHINE = ServiceNeed(services=("compute", "iam"), roles=(COMPUTE, "roles/iam.serviceAccountUser"))
_SECRETS = ServiceNeed(services=("secretmanager",), roles=("roles/secretmanager.admin",))
_STORAGE = ServiceNeed(services=("storage",), roles=("roles/storage.admin",))

NEEDS = {
    # A role on the billing account, or on the project that only Owner and Editor have.
    "gcp:billing/": ServiceNeed(services=("billingbudgets",), roles=()),
    "gcp:projects/service:": ServiceNeed(services=(), roles=("roles/serviceusage.serviceUsageAdmin",)),
    "gcp:projects/iAMMember:": ServiceNeed(
        services=("cloudresourcemanager", "iam"), roles=("roles/resourcemanager.projectIamAdmin",)
    ),
    "gcp:projects/iAMCustomRole:": ServiceNeed(services=("iam",), roles=(CUSTOM_ROLES,)),
    "gcp:serviceaccount/": ServiceNeed(services=("iam",), roles=("roles/iam.serviceAccountAdmin",)),
    # A machine acts as an account; who makes it must be allowed to.
    "gcp:compute/instance:": _MACHINE,
    "gcp:compute/instanceTemplate:": _MACHINE,
    "gcp:compute/instanceFromTemplate:": _MACHINE,
    "gcp:compute/": _COMPUTE,
    "pulumi-python:dynamic/gcp:BakedImage": _MACHINE,
    "pulumi-python:dynamic/gcp:BakeLeftovers": _COMPUTE,
    "pulumi-python:dynamic/gcp:Flex": _MACHINE,
    "pulumi-python:dynamic/gcp:ElasticInstances": _COMPUTE,
    "gcp:servicenetworking/": ServiceNeed(services=("compute", "servicenetworking"), roles=(NETWORKS,)),
    "gcp:secretmanager/": _SECRETS,
    "gcp:storage/": _STORAGE,
}
"""By the beginning of a resource's type; the longest that fits. Kinds of file systems add their own."""


def need_of(type_: str) -> ServiceNeed | None:
    """Return what a resource of this type needs; None if it is not on Google Cloud, or in no table."""
    needs = {**NEEDS, **{prefix: need for kind in registry.KINDS for prefix, need in kind.needs.items()}}
    found = [prefix for prefix in needs if type_.startswith(prefix)]
    return needs[max(found, key=len)] if found else None


GCP = [name for name in stacks.STACKS if stacks.config(name).platform == "gcp"]
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
ACCOUNT = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]")
BUCKET = re.compile(r"[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]")
LABEL = re.compile(r"[a-z][-_a-z0-9]{0,62}")
VALUE = re.compile(r"[-_a-z0-9]{0,63}")
SERVICE = "gcp:projects/service:Service"
MAPPINGS = {"labels", "metadata", "triggers", "environment", "conditions", "annotations"}
"""Arguments that are mappings in the provider's own schema: their keys are ours."""


@pytest.fixture(params=[(stack, mode) for stack in GCP for mode in modes(stack)], ids="-".join)
def run(request: pytest.FixtureRequest) -> StackRun:
    return record(*request.param)


@pytest.fixture(params=GCP)
def made(request: pytest.FixtureRequest) -> StackRun:
    return record(request.param, "made")


@cache
def arguments(type_: str) -> frozenset[str]:
    """Return what the provider's class for a type takes."""
    module, name = type_.split(":")[1].split("/", maxsplit=1)[0], type_.rpartition(":")[2]
    found = getattr(getattr(pulumi_gcp, module), name)
    return frozenset(inspect.signature(found._internal_init).parameters)


def google(run: StackRun) -> list[Registered]:
    return [resource for resource in run.recording.resources if resource.type.startswith("gcp:")]


def test_there_are_some():
    assert {"a3mega", "a3mega-managed", "classic"} <= set(GCP)


BAKE = "pulumi-python:dynamic/gcp:BakedImage"
DEAR = ("gcp:compute/disk:", "gcp:filestore/", "gcp:lustre/", *MACHINES)
"""Beginnings of types that cost money as long as they exist. An address costs half a cent an hour."""


def test_a_bake_that_fails_leaves_no_file_system_and_no_disk(run):
    """They are protected, so a user who gives up would pay until he finds out how to delete them."""
    bakes, dear = run.recording.all(BAKE), [r for r in run.recording.resources if r.type.startswith(DEAR)]
    assert dear
    assert len(bakes) == bakes_image(run.config)
    for bake in bakes:
        assert [resource.name for resource in dear if not run.recording.waits_for(resource, bake)] == []


class TestLabels:
    def test_all_resources_have_labels_of_cluster_and_part(self, run):
        takers = [resource for resource in google(run) if "labels" in arguments(resource.type)]
        assert takers
        for taker in takers:
            labels = taker.inputs.get("labels") or {}
            assert labels.get("hpc-cluster") == run.config.name, f"{taker.type} {taker.name} has no labels of ours"
            assert labels.get("hpc-part")
            assert all(LABEL.fullmatch(key) and VALUE.fullmatch(value) for key, value in labels.items())

    def test_boot_disks_have_labels(self, made):
        for resource in google(made):
            boot = resource.inputs.get("bootDisk") or {}
            disks = [boot["initializeParams"]] if "initializeParams" in boot else []
            disks += resource.inputs.get("disks") or [] if "InstanceTemplate" in resource.type else []
            for disk in disks:
                assert disk["labels"]["hpc-cluster"] == made.config.name


class TestNames:
    def test_names_and_labels_are_valid(self, run):
        for resource in google(run):
            if "bucket:Bucket" in resource.type:
                assert BUCKET.fullmatch(resource.inputs["name"])
            elif (
                "name" in resource.inputs
                and resource.inputs["name"]
                and resource.type.split(":")[1].split("/")[0] == "compute"
            ):
                assert NAME.fullmatch(resource.inputs["name"]), f"{resource.type} {resource.inputs['name']}"
            if "accountId" in resource.inputs:
                assert ACCOUNT.fullmatch(resource.inputs["accountId"])
            if "secretId" in resource.inputs and "secret:Secret" in resource.type:
                assert re.fullmatch("[-_A-Za-z0-9]{1,255}", resource.inputs["secretId"])

    def test_names_are_unique(self, made):
        named = [
            (resource.type, resource.inputs["name"])
            for resource in google(made)
            if isinstance(resource.inputs.get("name"), str)
        ]
        assert sorted(set(named)) == sorted(named)

    def test_instances_have_the_names_of_their_nodes(self, made):
        called = {resource.inputs["name"] for resource in made.recording.resources if resource.type in MACHINES}
        assert {machine.name for machine in machines(made.config)} <= called


class TestNetwork:
    def test_no_port_is_open_to_the_world(self, run):
        rules = [resource for resource in google(run) if resource.type == "gcp:compute/firewall:Firewall"]
        assert rules
        for rule in rules:
            assert rule.inputs.get("direction", "INGRESS") == "INGRESS"
            sources = rule.inputs.get("sourceRanges") or []
            assert sources or rule.inputs.get("sourceTags"), f"{rule.name} is open to everybody"
            assert not {"0.0.0.0/0", "::/0"} & set(sources)

    def test_none_but_public_login_machines_has_a_public_address(self, made):
        public = {
            machine.name for machine in machines(made.config) if made.config.login.public and "login" in machine.roles
        }
        found = set()
        for resource in google(made):
            nics = resource.inputs.get("networkInterfaces") or []
            if any("accessConfigs" in nic and nic["accessConfigs"] for nic in nics):
                found.add(resource.inputs["name"])
        assert found == public

    def test_gpu_networks_exist_only_for_nodes_with_their_nics(self, made):
        networks = [resource for resource in google(made) if resource.type == "gcp:compute/network:Network"]
        fabrics = {machine.machine_type.family.fabric for machine in machines(made.config)}
        of_each = {fabric: 1 if fabric.profile else fabric.nics for fabric in fabrics}
        assert len(networks) == 1 + sum(of_each[fabric] + len(fabric.host_nics) - 1 for fabric in fabrics)

    def test_every_nic_is_in_a_network_of_its_own(self, made):
        for resource in google(made):
            nics = resource.inputs.get("networkInterfaces") or []
            places = [nic.get("subnetwork") for nic in nics]
            assert len(set(places)) == len(places)


class TestSecrets:
    def test_metadata_contains_no_secret(self, made):
        carriers = [resource for resource in google(made) if resource.inputs.get("metadata")]
        assert carriers
        for carrier in carriers:
            assert not carrier.secret("metadata"), f"{carrier.name} carries a secret in its metadata"
            assert [t for t in texts(carrier.inputs["metadata"]) for s in FAKE_SECRETS if s in t] == []

    def test_resources_with_data_are_protected(self, made):
        kept = [resource for resource in google(made) if "secretVersion:SecretVersion" in resource.type]
        assert kept
        assert all(resource.secret("secretData") for resource in kept)


class TestOtherTenants:
    """Others of the project have what its IAM gives them, and nothing that the stack gives."""

    def test_project_wide_keys_are_blocked(self, made):
        found = [resource.inputs["metadata"] for resource in made.recording.resources if resource.type in MACHINES]
        assert found
        assert {metadata["block-project-ssh-keys"] for metadata in found} == {"TRUE"}

    def test_machines_run_as_accounts_of_the_stack(self, made):
        own = {f"{resource.inputs['accountId']}@" for resource in google(made) if resource.type.endswith(":Account")}
        found = {
            resource.inputs["serviceAccount"]["email"]
            for resource in google(made)
            if resource.inputs.get("networkInterfaces")
        }
        assert own
        assert {email[: email.index("@") + 1] for email in found} <= own

    def test_only_accounts_of_the_stack_may_read_its_secrets(self, made):
        own = {
            f"serviceAccount:{resource.inputs['accountId']}@"
            for resource in google(made)
            if resource.type.endswith(":Account")
        }
        grants = [resource for resource in google(made) if resource.type.endswith(("IAMMember", "IamMember"))]
        assert {"SecretIamMember", "BucketIAMMember"} <= {grant.type.rpartition(":")[2] for grant in grants}
        assert {member[: member.index("@") + 1] for member in (grant.inputs["member"] for grant in grants)} <= own
        assert not [
            resource for resource in google(made) if resource.type.endswith(("IAMBinding", "IAMPolicy", "IamPolicy"))
        ]
        buckets = [resource.inputs for resource in google(made) if resource.type.endswith(":Bucket")]
        assert {bucket["publicAccessPrevention"] for bucket in buckets} == {"enforced"}

    def test_firewalls_allow_only_the_stacks_networks_and_google(self, made):
        subnets = {resource.inputs["ipCidrRange"] for resource in google(made) if resource.type.endswith(":Subnetwork")}
        for resource in google(made):
            if resource.type.endswith(":Firewall") and resource.name.endswith(("-internal", "-iap")):
                assert set(resource.inputs["sourceRanges"]) <= subnets | {iap.SOURCES}


class TestServices:
    """A service is enabled once and for all; what came before it would be refused (403 SERVICE_DISABLED)."""

    def test_everything_waits_for_the_services_that_it_needs(self, run):
        by_urn = {resource.urn: resource for resource in run.recording.resources}
        enabled = {resource.urn: resource.inputs["service"] for resource in google(run) if resource.type == SERVICE}

        @cache
        def reached(urn: str) -> frozenset[str]:
            if urn in enabled:
                return frozenset({enabled[urn]})
            deps = by_urn[urn].request.dependencies if urn in by_urn else ()
            return frozenset().union(*(reached(other) for other in deps))

        for resource in run.recording.resources:
            if resource.type != SERVICE and (need := need_of(resource.type)):
                missing = {f"{name}.googleapis.com" for name in need.services} - reached(resource.urn)
                assert not missing, f"{resource.type} {resource.name} does not wait for {sorted(missing)}"

    def test_the_service_that_others_are_read_through_is_enabled_first(self, run):
        first = run.recording.one(f"{run.config.name}-services-cloudresourcemanager")
        others = [service for service in run.recording.all(SERVICE) if service is not first]
        assert len(others) > 5
        assert all(run.recording.waits_for(service, first) for service in others)

    def test_only_needed_services_are_enabled(self, made):
        needed = {
            name for resource in made.recording.resources for name in getattr(need_of(resource.type), "services", ())
        }
        named = {service.partition(".")[0] for service in services(made.config)}
        # Used while the machines run, or to reach them.
        assert named - needed <= {"iap", "logging", "monitoring"}

    def test_every_type_has_its_service_and_role(self, made):
        assert [resource.type for resource in google(made) if need_of(resource.type) is None] == []


class TestRoles:
    """Who runs `up` is told by the stack file which roles that takes; here what is made says it."""

    def test_the_roles_are_those_of_all_resources(self, made):
        assert roles(made.config) == wanted(made.recording, made.config)

    @pytest.mark.parametrize(
        "changes",
        [
            {"network": {"existing": {"network": "net", "subnetwork": "sub"}}},
            {"storage": {"lustre": clouds.MANAGED}, "network": {"existing": {"network": "net", "subnetwork": "sub"}}},
            {"storage": {"filestore": {"tier": "BASIC_SSD", "size_gb": 2560}}},
            {"storage": {"lustre": clouds.EXASCALER, "filestore": {}}},
            {"nodesets": {"cpu": {"count": {"min": 0, "max": 4}, "capacity": ["spot", "on_demand"]}}},
            {"budget": {"month": 20000.0, "billing_account": apis.ACCOUNT}},
        ],
        ids=["existing", "existing-managed", "basic", "both", "elastic", "budget"],
    )
    def test_the_roles_of_other_stacks_are_complete(self, changes):
        assert roles(clouds.google(**changes)) == wanted(deploy(clouds.settings(**changes)), clouds.google(**changes))

    def test_the_page_and_the_preview_have_the_roles_of_each_stack(self):
        page = (stacks.ROOT / "docs/reference/google-cloud.md").read_text()
        shipped = [name for name in GCP if not name.startswith("example-")]
        found = {name: roles(stacks.config(name)) for name in shipped}
        for role in set().union(*found.values()):
            having = [name for name in shipped if role in found[name]]
            whose = "every stack" if having == shipped else ", ".join(f"`{name}`" for name in having)
            assert re.search(rf"^\| `{re.escape(role)}` \| [^|]+ \| {re.escape(whose)} \|$", page, re.MULTILINE), role
        for name in shipped:
            text = "\n".join(describe_request(stacks.config(name)))
            assert all(role in text for role in found[name])

    def test_the_page_has_the_permissions_of_elastic_nodes(self):
        page = (stacks.ROOT / "docs/reference/google-cloud.md").read_text()
        for method, permissions in {**RECONCILE, **FLEX}.items():
            row = ", ".join(f"`{permission.removeprefix('compute.')}`" for permission in permissions)
            assert f"| `{method}` | {row} |" in page

    def test_the_page_names_every_policy_that_would_refuse_a_stack(self):
        page = (stacks.ROOT / "docs/reference/google-cloud.md").read_text()
        for name, policy in POLICIES.items():
            assert f"| `{name}` | {policy.why} | {policy.todo} |" in page
        for stack in GCP:
            assert set(policies(stacks.config(stack))) <= POLICIES.keys()
        met = [set(policies(stacks.config(stack))) for stack in GCP]
        assert set().union(*met) == POLICIES.keys(), "each has a stack that it would refuse"


def wanted(recording: Recording, config: ClusterConfig) -> tuple[str, ...]:
    """Roles that making all this takes; reaching machines by Identity-Aware Proxy takes one more."""
    found = {role for resource in recording.resources if (need := need_of(resource.type)) for role in need.roles}
    return tuple(sorted(found | (set() if config.login.public else {TUNNEL})))


class TestMachines:
    def test_a_command_expects_the_host_key_of_the_machine_that_it_is_for(self, made):
        keys = {resource.urn: resource for resource in made.recording.all("tls:index/privateKey:PrivateKey")}
        for command in made.commands():
            expected = {keys[u].name for u in command.request.propertyDependencies["connection"].urns if u in keys}
            assert any(name.endswith(made.machine_of(command).name) for name in expected)

    def test_each_has_an_account_of_its_role_and_no_other(self, made):
        for resource in google(made):
            if "metadata" in resource.inputs and "serviceAccount" in resource.inputs:
                assert made.config.name in resource.inputs["serviceAccount"]["email"]

    def test_the_state_disk_does_not_depend_on_the_machine(self, made):
        controller = made.machine(f"{made.config.name}-controller")
        kinds = ("gcp:compute/disk:Disk", "gcp:compute/regionDisk:RegionDisk")
        (disk,) = [resource for resource in google(made) if resource.type in kinds and resource.name.endswith("-state")]
        assert made.recording.waits_for(controller, disk)
        assert not made.recording.waits_for(disk, controller)
        assert not disk.request.deletedWith


def test_nested_arguments_are_the_providers_classes():
    """A misspelt property of a class is an error at once; of a mapping, one that Google tells after minutes."""
    files = sorted((stacks.ROOT / "components" / "gcp").rglob("*.py"))
    assert files
    assert [found for file in files for found in mappings(file)] == []


def mappings(file: Path) -> list[str]:
    """Calls of the provider's classes that are given a mapping where it has a class."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "pulumi_gcp"
        for name in node.names
    }
    return [
        f"{file.name}:{call.lineno} {keyword.arg}"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in modules
        for keyword in call.keywords
        if keyword.arg not in MAPPINGS
        and any(isinstance(inner, ast.Dict) for inner in (keyword.value, *getattr(keyword.value, "elts", [])))
    ]
