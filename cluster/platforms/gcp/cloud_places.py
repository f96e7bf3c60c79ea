"""Checks of the place where a stack is to be created: accelerators, disk types and file systems of the zone,
reservations, images, a network that exists, policies of the organization, the bucket of the state.

Source of fields: Compute's discovery document, revision 20261106, and that of the Organization Policy API, 20260723.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterator

from cluster.catalog.machine_families import ACCELERATORS
from cluster.cloud_checks import CloudCheck, Seen
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, compute
from cluster.platforms.gcp.disks import state_zones
from cluster.platforms.gcp.filesystems.registry import file_systems, peered
from cluster.platforms.gcp.image import recipe
from cluster.platforms.gcp.names import host_project
from cluster.platforms.gcp.permissions import POLICIES, policies
from cluster.platforms.gcp.request import LOCAL_SSD, disks, elastic_disks, elastic_requests, machine_requests
from cluster.roster import nodeset_type

ZONES = "A3 Mega, T4 and P4 exist in the zones of the catalog, as Google has a price for them there."


def accelerators(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each GPU type that is attached to machines."""
    asked = (*machine_requests(stack.config), *elastic_requests(stack.config))
    for kind in dict.fromkeys(request.gpu.type for request in asked if request.gpu):
        if row := ACCELERATORS.get(kind):
            yield _of_zone(stack, stack.zone, "acceleratorTypes", row.name)


def disk_types(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each disk type, in the zones of the state disk too."""
    kinds = {*disks(stack.config), *elastic_disks(stack.config)} - {LOCAL_SSD}
    for zone in state_zones(stack.config):
        for kind in sorted(kinds):
            yield _of_zone(stack, zone, "diskTypes", kind)


_NOUNS = {"acceleratorTypes": "accelerator", "diskTypes": "disk type"}
_COMMANDS = {"acceleratorTypes": "accelerator-types", "diskTypes": "disk-types"}


def _of_zone(stack: AskedStack, zone: str, folder: str, name: str) -> CloudCheck:
    def read(answer: Answer) -> Seen:
        if answer is not None:
            return Seen(text="there is one")
        listed = f"gcloud compute {_COMMANDS[folder]} list --filter name={name} --project {stack.project}"
        return Seen(text=f"{zone} has no {name}", todo=f"choose a zone of: {listed}")

    noun = _NOUNS[folder]
    return CloudCheck(
        id=noun.replace(" ", "-"),
        asks=f"{noun} {name} in {zone}",
        requests=(compute(stack.project, f"zones/{zone}/{folder}/{name}", f"compute.{folder}.get"),),
        read=read,
        assumptions=(ZONES,) if folder == "acceleratorTypes" else (),
    )


def reservations(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each reservation: it exists, is specific, has the machine type and enough free machines."""
    before = _from_reservations(stack.before) if stack.before else Counter()
    for (name, machine_type), count in _from_reservations(stack.config).items():
        project = name.split("/")[1] if "/" in name else stack.project
        short, more = name.rpartition("/")[2], count - before[name, machine_type]
        where = f"{short} --project {project} --zone {stack.zone}"
        todo = f"compare it with the stack file: gcloud compute reservations describe {where}"

        def read(answer: Answer, machine_type: str = machine_type, more: int = more, todo: str = todo) -> Seen:
            if answer is None:
                return Seen(text=f"there is none of this name in {stack.zone}", todo=todo)
            sku = answer["specificReservation"]
            free = int(sku["count"]) - int(sku.get("inUseCount", 0))
            kind = sku["instanceProperties"]["machineType"].rpartition("/")[2]
            wrong = [
                text
                for text, is_wrong in {
                    f"its status is {answer['status']}": answer["status"] != "READY",
                    # A machine that names any other is refused (cluster-toolkit v1.95.0,
                    # schedmd-slurm-gcp-v6-nodeset/main.tf: specific_reservation_required).
                    "it is not specific": not answer.get("specificReservationRequired"),
                    f"it is of {kind}, not {machine_type}": kind != machine_type,
                    f"{more} machines are needed": free < more,
                }.items()
                if is_wrong
            ]
            end = f", deleted at {answer['deleteAtTime']}" if answer.get("deleteAtTime") else ""
            text = f"{free} of {sku['count']} {kind} are free{end}"
            return Seen(text="; ".join((text, *wrong)), todo=todo if wrong else "")

        request = compute(project, f"zones/{stack.zone}/reservations/{short}", "compute.reservations.get")
        yield CloudCheck(id="reservation", asks=f"reservation {short} in {project}", requests=(request,), read=read)


def _from_reservations(config: ClusterConfig) -> Counter[tuple[str, str]]:
    """Return the machines that come from each reservation, by its name without a block, and machine type."""
    found = Counter[tuple[str, str]]()
    for section in config.nodesets.values():
        named = [way.reservation.name for way in section.ways if way.reservation]
        for name in dict.fromkeys(name.partition("/reservationBlocks/")[0] for name in named):
            # Where a later way may give them, only static nodes need the reservation.
            count = section.most if len(section.ways) == 1 else section.static
            found[name, nodeset_type(config, section).name] += count
    return found


def images(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check of the image that machines, or the image's builder, boot from."""
    name = stack.config.image.name or recipe(stack.config).image
    project = name.split("/")[1] if name.startswith("projects/") else stack.project
    short = name.rpartition("/")[2]

    def read(answer: Answer) -> Seen:
        if answer is None:
            todo = "set image.name to an image that exists, or report this: the recipe names an image that is gone"
            return Seen(text=f"{project} has no image {short}", todo=todo)
        state = answer.get("deprecated", {}).get("state", "ACTIVE")
        text = f"{answer['status']}, created {answer['creationTimestamp'][:10]}, {state}"
        # Machines can be created from a deprecated image, and not from an obsolete or deleted one.
        usable = answer["status"] == "READY" and state in ("ACTIVE", "DEPRECATED")
        return Seen(text=text, todo="" if usable else "set image.name, or image.recipe, to one that is in use")

    request = compute(project, f"global/images/{short}", "compute.images.get")
    yield CloudCheck(id="image", asks=f"image {short} of {project}", requests=(request,), read=read)


PEERING = "servicenetworking-googleapis-com"
"""Name of the peering of private service access (hashicorp/terraform-provider-google,
resource_service_networking_connection.go)."""


def network(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield checks of a network that exists: it and its subnetwork, the range, private service access."""
    existing, config = stack.config.network.existing, stack.config
    if existing is None:
        return
    project = host_project(config) or stack.project
    vpc, subnetwork = existing.network.rpartition("/")[2], existing.subnetwork.rpartition("/")[2]

    def read_network(answer: Answer) -> Seen:
        if answer is None:
            return Seen(text="there is none", todo=f"correct network.existing: {_list('networks', project)}")
        active = {row["name"] for row in answer.get("peerings", ()) if row.get("state") == "ACTIVE"}
        if peered(config) and PEERING not in active:
            todo = f"gcloud services vpc-peerings connect --service servicenetworking.googleapis.com --network {vpc}"
            return Seen(text="it has no private service access", todo=f"{todo} --project {project} --ranges RANGE")
        return Seen(text=f"MTU {answer.get('mtu', 1460)}" + (", with private service access" if peered(config) else ""))

    def read_subnetwork(answer: Answer) -> Seen:
        if answer is None:
            return Seen(text="there is none", todo=f"correct network.existing: {_list('networks subnets', project)}")
        ours, theirs = ipaddress.ip_network(str(config.network.cidr)), ipaddress.ip_network(answer["ipCidrRange"])
        wrong = ours != theirs
        text = f"range {theirs}" + (f", and network.cidr is {ours}" if wrong else "")
        return Seen(text=text, todo=f"write network.cidr: {theirs}" if wrong else "")

    of_network = compute(project, f"global/networks/{vpc}", "compute.networks.get")
    path = f"regions/{stack.region}/subnetworks/{subnetwork}"
    of_subnetwork = compute(project, path, "compute.subnetworks.get")
    yield CloudCheck(id="network", asks=f"network {vpc} of {project}", requests=(of_network,), read=read_network)
    yield CloudCheck(
        id="network", asks=f"subnetwork {subnetwork} of {project}", requests=(of_subnetwork,), read=read_subnetwork
    )


def file_system_locations(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check of the zone or region of each file system that Google runs.

    Source of the path, for both services: google.cloud.location.Locations in file.v1's discovery document, 20260819,
    and in googleapis/googleapis 6c345ac, google/cloud/lustre/v1/lustre_v1.yaml.
    """
    for file_system in file_systems(stack.config):
        if where := file_system.location:
            service = next(iter(file_system.needs.values())).services[0]

            def read(answer: Answer, where: str = where, service: str = service) -> Seen:
                if answer is not None:
                    return Seen(text="there is one")
                command = {"file": "filestore zones list", "lustre": "lustre locations list"}[service]
                todo = f"choose a zone of: gcloud {command} --project {stack.project}"
                return Seen(text=f"{where} has no {service}.googleapis.com", todo=todo)

            request = CloudRequest(
                service=service,
                path=f"v1/projects/{stack.project}/locations/{where}",
                permission=f"{service}.locations.get",
            )
            asks = f"{service}.googleapis.com in {where}"
            yield CloudCheck(id="file-system", asks=asks, requests=(request,), read=read)


def state_bucket(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check of the bucket that the stack's state is in, if it is in Cloud Storage."""
    if not stack.state.startswith("gs://"):
        return
    bucket = stack.state.removeprefix("gs://").partition("/")[0].partition("?")[0]

    def read(answer: Answer) -> Seen:
        if answer is None:
            return Seen(
                text="there is none", todo=f"./hpc backend init gcs --bucket {bucket}, or pulumi login elsewhere"
            )
        if not answer.get("versioning", {}).get("enabled"):
            command = f"gcloud storage buckets update gs://{bucket} --versioning"
            return Seen(text="it keeps no old versions of the state", todo=command)
        return Seen(text=f"in {answer['location']}, with versions")

    request = CloudRequest(
        service="storage",
        path=f"storage/v1/b/{bucket}",
        permission="storage.buckets.get",
        role="roles/storage.bucketViewer",
    )
    yield CloudCheck(id="state", asks=f"state bucket {bucket}", requests=(request,), read=read)


def _list(what: str, project: str) -> str:
    return f"gcloud compute {what} list --project {project}"


def organization_policies(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each constraint that would refuse the stack if it were in force."""
    for name in policies(stack.config):
        todo = POLICIES[name].todo

        def read(answer: Answer, todo: str = todo) -> Seen:
            rules = (answer or {}).get("spec", {}).get("rules", ())
            if any(rule.get("enforce") or rule.get("denyAll") for rule in rules):
                return Seen(text="in force", todo=todo)
            allowed = [value for rule in rules for value in rule.get("values", {}).get("allowedValues", ())]
            denied = [value for rule in rules for value in rule.get("values", {}).get("deniedValues", ())]
            if allowed or denied:
                text = "; ".join(
                    f"{word} {', '.join(values)}"
                    for word, values in (("allows", allowed), ("denies", denied))
                    if values
                )
                return Seen(text=text, todo=f"compare: {todo}", unclear=True)
            return Seen(text="not in force")

        # The method's page names orgpolicy.policies.get, which no role has (iann0036/iam-dataset 2073fa5, gcp/roles).
        request = CloudRequest(
            service="orgpolicy",
            path=f"v2/projects/{stack.project}/policies/{name}:getEffectivePolicy",
            permission="orgpolicy.policy.get",
        )
        yield CloudCheck(id="policy", asks=f"organization policy {name}", requests=(request,), read=read)
