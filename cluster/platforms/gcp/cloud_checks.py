"""The questions to Google Cloud before `up`, a row of CHECKS for each kind. Nothing here sends a request
(components/gcp/cloud_checks.py does).

Source of paths and fields: Google's discovery documents in google-api-python-client 2.202.0, which
tests/lab/google/discovery.json has in part.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cluster.cloud_checks import CloudCheck, Seen
from cluster.findings import listing
from cluster.platforms.gcp import cloud_places
from cluster.platforms.gcp.cloud_billing import billing_info, budget
from cluster.platforms.gcp.cloud_names import names
from cluster.platforms.gcp.cloud_network import network
from cluster.platforms.gcp.cloud_packages import packages
from cluster.platforms.gcp.cloud_quotas import quotas
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, compute, own_permissions
from cluster.platforms.gcp.image import bakes
from cluster.platforms.gcp.names import account_id, host_project
from cluster.platforms.gcp.permissions import (
    FIRST_SERVICE,
    reconcile_permissions,
    repair_permissions,
    roles,
    services,
)
from cluster.platforms.gcp.request import builder_request, elastic_requests, machine_requests
from cluster.slurm.power_saving import elastic_nodesets, repaired_nodesets

SERVICES_AT_ONCE = 30
"""Most services of one request (serviceusage.v1, services.batchGet, names)."""


def _services(stack: AskedStack) -> Iterator[CloudCheck]:
    """The one service that has to be enabled before `up`, and the others, which `up` enables."""
    project = stack.project
    asked = [f"projects/{project}/services/{name}" for name in services(stack.config)]
    request = CloudRequest(
        service="serviceusage",
        path=f"v1/projects/{project}/services:batchGet",
        query=tuple(("names", name) for name in asked[:SERVICES_AT_ONCE]),
        permission="serviceusage.services.get",
    )

    def read(answer: Answer) -> Seen:
        if answer is None:
            return _no_project(project)
        states = {row["name"].rpartition("/")[2]: row["state"] for row in answer["services"]}
        off = [name for name, state in states.items() if state != "ENABLED"]
        if FIRST_SERVICE in off:
            command = f"gcloud services enable {FIRST_SERVICE} --project {project}"
            return Seen(text=f"{FIRST_SERVICE} is not enabled, which enables the others", todo=command)
        text = f"{len(states) - len(off)} of {len(states)} enabled"
        return Seen(text=f"{text}; `up` enables {listing(off)}" if off else text)

    yield CloudCheck(id="services", asks=f"services of {project}", requests=(request,), read=read)


def _no_project(project: str) -> Seen:
    return Seen(text=f"there is no project {project}", todo="correct gcp:project: gcloud projects list")


def _billing(stack: AskedStack) -> Iterator[CloudCheck]:
    """The billing account, without which Compute Engine creates nothing."""
    project = stack.project

    def read(answer: Answer) -> Seen:
        if answer is None:
            return _no_project(project)
        # proto3 leaves a false value out.
        if answer.get("billingEnabled"):
            return Seen(text="linked to an open billing account")
        command = f"gcloud billing projects link {project} --billing-account ACCOUNT"
        return Seen(text="no open billing account pays for the project", todo=command)

    yield CloudCheck(id="billing", asks=f"billing account of {project}", requests=(billing_info(project),), read=read)


PROBES: Mapping[str, tuple[str, ...]] = {
    "roles/compute.admin": (
        "compute.addresses.createInternal",
        "compute.disks.create",
        "compute.firewalls.create",
        "compute.images.create",
        "compute.instanceTemplates.create",
        "compute.instances.create",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
        "compute.networks.create",
        "compute.resourcePolicies.create",
        "compute.routers.create",
        "compute.subnetworks.create",
    ),
    "roles/compute.networkAdmin": ("servicenetworking.services.addPeering",),
    "roles/file.editor": ("file.instances.create",),
    "roles/iam.roleAdmin": ("iam.roles.create",),
    "roles/iam.serviceAccountAdmin": ("iam.serviceAccounts.create", "iam.serviceAccounts.setIamPolicy"),
    "roles/iam.serviceAccountUser": ("iam.serviceAccounts.actAs",),
    "roles/iap.tunnelResourceAccessor": ("iap.tunnelInstances.accessViaIAP",),
    "roles/lustre.admin": ("lustre.instances.create",),
    "roles/resourcemanager.projectIamAdmin": ("resourcemanager.projects.setIamPolicy",),
    "roles/runtimeconfig.admin": ("runtimeconfig.configs.create",),
    "roles/secretmanager.admin": ("secretmanager.secrets.create", "secretmanager.versions.add"),
    "roles/serviceusage.serviceUsageAdmin": ("serviceusage.services.enable",),
    "roles/storage.admin": ("storage.buckets.create",),
}
"""Permissions by which a role on the project is recognized (iann0036/iam-dataset 2073fa5, gcp/roles). Another role with
the same permissions does as well."""
SHARED: Mapping[str, tuple[str, ...]] = {
    "roles/compute.networkUser": ("compute.subnetworks.use",),
    "roles/compute.securityAdmin": ("compute.firewalls.create", "compute.networks.updatePolicy"),
}
"""Permissions on the host project of a Shared VPC, which has the firewall rules, and the subnetwork of machines."""
ELSEWHERE = {"compute.subnetworks.use", "iap.tunnelInstances.accessViaIAP"}
"""Permissions that a role on a subnetwork or on the project's tunnels gives too, which Google does not say of the
project (hashicorp/terraform-provider-google, google_compute_subnetwork_iam and google_iap_tunnel_iam)."""


def _permissions(stack: AskedStack) -> Iterator[CloudCheck]:
    """The caller's permissions: a row for each role that the documentation lists, and one for each other project."""
    config, project = stack.config, stack.project
    for role in roles(config):
        yield _permission_check(project, PROBES[role], role)
    if host := host_project(config):
        for role, permissions in SHARED.items():
            yield _permission_check(host, permissions, role)
    # Machines of another project's reservation take no permission there (iann0036/iam-dataset 2073fa5, gcp/map.json,
    # compute.instances.insert): it has to be shared, which its own row has.
    for name in (config.image.name or "", cloud_places.servers_image(config)):
        owner, image = _image_elsewhere(stack, name)
        if image:
            yield _permission_check(owner, ("compute.images.useReadOnly",), "roles/compute.imageUser", image)
    # Google answers with an error for a permission that a project does not have, as to a custom role with it.
    created = reconcile_permissions(config) if elastic_nodesets(config) else ()
    if custom := sorted({*created, *(repair_permissions(config) if repaired_nodesets(config) else ())}):
        request = own_permissions(project, tuple(custom))
        text = f"Google has its {len(custom)} permissions, which `up` grants"
        yield CloudCheck(
            id="permissions",
            asks=f"custom role of the controller in {project}",
            requests=(request,),
            read=lambda answer: _no_project(project) if answer is None else Seen(text=text),
        )
    made = [role for role, is_made in {"controller": bool(custom), "builder": bakes(config)}.items() if is_made]
    if made and stack.before is None:
        text = "`up` creates them and grants their roles, and Google tests permissions of its caller alone"
        seen = Seen(text=text, unclear=True)
        asks = f"service accounts of {' and '.join(made)} in {project}"
        yield CloudCheck(id="permissions", asks=asks, requests=(), read=lambda: seen)
    if elastic_nodesets(config):
        yield from _grants_elsewhere(stack)


def _image_elsewhere(stack: AskedStack, name: str) -> tuple[str, str]:
    """Return project and name of an image of another project; empty texts for others. A family has no policy."""
    owner, _, image = name.removeprefix("projects/").partition("/global/images/")
    is_one = image and owner != stack.project and not image.startswith("family/")
    return (owner, image) if is_one else ("", "")


def _grants_elsewhere(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield checks of the controller's account, which creates machines of elastic nodes, in other projects: policies of
    the subnetwork and of the image name it."""
    existing, host = stack.config.network.existing, host_project(stack.config)
    account = f"{account_id(stack.config, 'controller')}@{stack.project}.iam.gserviceaccount.com"
    owner, image = _image_elsewhere(stack, stack.config.image.name or "")
    needs = []
    if existing and host:
        name, region = existing.subnetwork.rpartition("/")[2], stack.region
        path = f"regions/{region}/subnetworks/{name}"
        needs.append(("networkUser", host, path, f"networks subnets add-iam-policy-binding {name} --region {region}"))
    if image:
        needs.append(("imageUser", owner, f"global/images/{image}", f"images add-iam-policy-binding {image}"))
    for role, project, path, command in needs:
        folder, name = path.split("/")[-2:]
        options = f"--project {project} --role roles/compute.{role} --member serviceAccount:{account}"
        text, todo = "not granted on it; a role on its project does as well", f"gcloud compute {command} {options}"
        if stack.before is None:
            text, todo = "the account does not exist before `up`", f"after `up`: {todo}"
        query = (("optionsRequestedPolicyVersion", "3"),)
        yield CloudCheck(
            id="permissions",
            asks=f"roles/compute.{role} of {account} on {name} of {project}",
            requests=(compute(project, f"{path}/getIamPolicy", f"compute.{folder}.getIamPolicy", query),),
            read=partial(_read_policy, role, account, Seen(text=text, todo=todo, unclear=True)),
        )


def _read_policy(role: str, account: str, lacking: Seen, answer: Answer) -> Seen:
    granted = (
        f"serviceAccount:{account}" in row.get("members", ()) and "condition" not in row
        for row in (answer or {}).get("bindings", ())
        if row["role"] == f"roles/compute.{role}"
    )
    return Seen(text="granted") if any(granted) else lacking


def _permission_check(project: str, permissions: tuple[str, ...], role: str, image: str = "") -> CloudCheck:
    """Return the check of permissions on a project, or on an image of it."""
    path = f"compute/v1/projects/{project}/global/images/{image}/testIamPermissions"
    of_image = CloudRequest(service="compute", path=path, tests=permissions)
    command = "compute images" if image else "projects"
    options = f"{image} --project {project}" if image else project

    def read(answer: Answer) -> Seen:
        if answer is None:
            return Seen(text=f"there is no image {image}", todo="correct its name") if image else _no_project(project)
        # An answer without any permission has no key.
        missing = sorted(set(permissions) - set(answer.get("permissions", ())))
        if not missing:
            return Seen(text="you have its permissions")
        todo = f"gcloud {command} add-iam-policy-binding {options} --member user:YOU --role {role}"
        return Seen(text=f"you lack {listing(missing)}", todo=todo, unclear=ELSEWHERE.issuperset(missing))

    request = of_image if image else own_permissions(project, permissions)
    return CloudCheck(id="permissions", asks=f"{role} in {project}", requests=(request,), read=read)


SIZES = "Machine types have the sockets, cores, threads, memory and GPUs of the catalog."
"""The assumption that machineTypes.get settles, but for sockets and threads."""


def _machine_types(stack: AskedStack) -> Iterator[CloudCheck]:
    """Each machine type in the zone, beside the catalog."""
    config = stack.config
    asked = [*machine_requests(config), *elastic_requests(config), builder_request(config)]
    for row in {request.machine_type.name: request.machine_type for request in asked if request}.values():
        path = f"zones/{stack.zone}/machineTypes/{row.name}"

        def read(answer: Answer, row=row) -> Seen:  # noqa: ANN001 - bound now, and not at the end of the loop
            if answer is None:
                command = f"gcloud compute machine-types list --filter name={row.name} --project {stack.project}"
                return Seen(text=f"{stack.zone} has no {row.name}", todo=f"choose a zone of: {command}")
            gpus = sum(item["guestAcceleratorCount"] for item in answer.get("accelerators", ()))
            seen = {"vCPUs": answer["guestCpus"], "MiB": answer["memoryMb"], "GPUs": gpus}
            ours = {"vCPUs": row.cpus, "MiB": row.memory_mib, "GPUs": row.gpu.count if row.gpu else 0}
            text = ", ".join(f"{value:,} {unit}" for unit, value in seen.items())
            if seen == ours:
                return Seen(text=text)
            catalog = ", ".join(f"{value:,} {unit}" for unit, value in ours.items())
            todo = "report this: Slurm would drain a machine that has less than the catalog (machine_types.py)"
            has_more = all(seen[unit] >= ours[unit] for unit in ours)
            return Seen(text=f"{text}; the catalog has {catalog}", todo=todo, unclear=has_more)

        yield CloudCheck(
            id="machine-type",
            asks=f"machine type {row.name} in {stack.zone}",
            requests=(compute(stack.project, path, "compute.machineTypes.get"),),
            read=read,
            assumptions=(SIZES, cloud_places.ZONES) if row.family.zones else (SIZES,),
        )


CHECKS: tuple[Callable[[AskedStack], Iterator[CloudCheck]], ...] = (
    _services,
    _billing,
    budget,
    _permissions,
    names,
    quotas,
    _machine_types,
    cloud_places.accelerators,
    cloud_places.disk_types,
    cloud_places.reservations,
    cloud_places.images,
    packages,
    network,
    cloud_places.file_system_locations,
    cloud_places.organization_policies,
    cloud_places.state_bucket,
)
"""The kinds of checks, in the order of their rows."""


def checks(stack: AskedStack) -> list[CloudCheck]:
    """Return the checks of a stack."""
    return [check for kind in CHECKS for check in kind(stack)]
