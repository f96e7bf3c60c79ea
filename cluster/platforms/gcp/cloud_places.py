"""Checks of the place where a stack is to be created: accelerators, disk types and file systems of the zone,
reservations, images, policies of the organization, the bucket of the state.

Source of fields: Compute's discovery document, revision 20261106, and that of the Organization Policy API, 20260723.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from cluster.catalog.machine_families import ACCELERATORS
from cluster.cloud_checks import CloudCheck, Seen
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, compute
from cluster.platforms.gcp.disks import state_disk, state_zones
from cluster.platforms.gcp.filesystems.registry import file_systems, servers
from cluster.platforms.gcp.image import bakes, boots_from, recipe
from cluster.platforms.gcp.permissions import POLICIES, policies
from cluster.platforms.gcp.request import LOCAL_SSD, disks, elastic_disks, elastic_requests, machine_requests
from cluster.roster import machines, nodeset_type

ZONES = "A3 Mega, T4 and P4 exist in the zones of the catalog, as Google has a price for them there."


def accelerators(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each GPU type that is attached to machines."""
    asked = (*machine_requests(stack.config), *elastic_requests(stack.config))
    for kind in dict.fromkeys(request.gpu.type for request in asked if request.gpu):
        if row := ACCELERATORS.get(kind):
            yield _of_zone(stack, stack.zone, "acceleratorTypes", row.name)


def disk_types(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each disk type; in the other zone of the state disk, for that of the state disk."""
    kinds = {*disks(stack.config), *elastic_disks(stack.config)} - {LOCAL_SSD}
    for zone in state_zones(stack.config):
        for kind in sorted(kinds) if zone == stack.zone else [state_disk(stack.config)[0]]:
            yield _of_zone(stack, zone, "diskTypes", kind)


_NOUNS = {"acceleratorTypes": "accelerator", "diskTypes": "disk type"}


def _of_zone(stack: AskedStack, zone: str, folder: str, name: str) -> CloudCheck:
    noun = _NOUNS[folder]
    listed = f"gcloud compute {folder.replace('Types', '-types')} list --filter name={name} --project {stack.project}"
    lacking = Seen(text=f"{zone} has no {name}", todo=f"choose a zone of: {listed}")
    return CloudCheck(
        id=noun.replace(" ", "-"),
        asks=f"{noun} {name} in {zone}",
        requests=(compute(stack.project, f"zones/{zone}/{folder}/{name}", f"compute.{folder}.get"),),
        read=partial(_exists, lacking),
        assumptions=(ZONES,) if folder == "acceleratorTypes" else (),
    )


BLOCKS, SUB_BLOCKS = "/reservationBlocks/", "/reservationSubBlocks/"


def reservations(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each reservation, and for each block that the stack file names: it exists, is specific, has the
    machine type and enough free machines."""
    for end in (BLOCKS, SUB_BLOCKS):
        counts, (before, most) = _from_reservations(stack.config, end)[0], _from_reservations(stack.before, end)
        for (path, machine_type), count in counts.items():
            if end == BLOCKS or BLOCKS in path:
                key = path, machine_type
                # Elastic nodes that become static may have their machines.
                more, least = count - before[key], count - most[key]
                # One that has ended does not stop an edit of other things.
                known = more <= 0 and key in before
                yield _reservation(stack, path, machine_type, more=more, least=least, known=known)


def _reservation(stack: AskedStack, path: str, machine_type: str, *, more: int, least: int, known: bool) -> CloudCheck:
    """Return the check of a reservation, or of its block that `path` names, from which `up` takes that many more
    machines. `known`: whether the running cluster has them all."""
    whole, _, block = path.partition(BLOCKS)
    owner, name = whole.split("/")[1] if "/" in whole else stack.project, whole.rpartition("/")[2]

    def read(answer: Answer) -> Seen:
        verb = "blocks list" if block else "describe"
        command = f"gcloud compute reservations {verb} {name} --project {owner} --zone {stack.zone}"
        todo = f"compare it with the stack file: {command}"
        if answer is None:
            return Seen(text=f"there is none of this name in {stack.zone}", todo=todo, unclear=known)
        row = answer["resource"] if block else answer["specificReservation"]
        status = (row if block else answer)["status"]
        free = int(row["count"]) - int(row.get("inUseCount", 0))
        needed = f"{more} machines are needed"
        wrong = {f"its status is {status}": status != "READY", needed: free < more}
        kind, end = "machines", ""
        if not block:
            kind = row["instanceProperties"]["machineType"].rpartition("/")[2]
            end = f", deleted at {answer['deleteAtTime']}" if answer.get("deleteAtTime") else ""
            wrong |= {
                # A machine that names any other is refused (cluster-toolkit v1.95.0,
                # schedmd-slurm-gcp-v6-nodeset/main.tf: specific_reservation_required).
                "it is not specific": not answer.get("specificReservationRequired"),
                f"it is of {kind}, not {machine_type}": kind != machine_type,
                f"it is not shared with {stack.project}": not _is_shared(answer, owner, stack.project),
            }
        found = [text for text, is_wrong in wrong.items() if is_wrong]
        text = "; ".join((f"{free} of {row['count']} {kind} are free{end}", *found))
        unclear = bool(found) and (known or (found == [needed] and free >= least))
        return Seen(text=text, todo=todo if found else "", unclear=unclear)

    where = f"zones/{stack.zone}/reservations/{name}" + (f"{BLOCKS}{block}" if block else "")
    request = compute(owner, where, f"compute.{'reservationBlocks' if block else 'reservations'}.get")
    asks = f"block {block} of {name}" if block else f"reservation {name} in {owner}"
    return CloudCheck(id="reservation", asks=asks, requests=(request,), read=read)


def _is_shared(answer: Mapping[str, Any], owner: str, user: str) -> bool:
    """Return whether machines of `user` may come from a reservation of `owner`. Keys of projectMap may be numbers of
    projects, which do not say whose they are."""
    share = answer.get("shareSettings", {})
    named = {name for key, row in share.get("projectMap", {}).items() for name in (key, row.get("projectId", ""))}
    return owner == user or share.get("shareType") == "ORGANIZATION" or user in named or any(map(str.isdigit, named))


def _from_reservations(config: ClusterConfig | None, end: str) -> tuple[Counter[tuple[str, str]], ...]:
    """Return the static machines that come from each reservation, by its name up to `end`, and machine type; and those
    with the elastic ones, which come when it has some free."""
    static, most = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    if config is None:
        return static, most
    for section in config.nodesets.values():
        # Static nodes have the first way.
        names = [way.reservation.name.partition(end)[0] if way.reservation else "" for way in section.ways]
        for name in dict.fromkeys(filter(None, names)):
            key, is_first = (name, nodeset_type(config, section).name), name == names[0]
            static[key] += section.static * is_first
            most[key] += section.most * is_first
    return static, most


def images(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield checks of the images that machines, or the image's builder, and EXAScaler's servers boot from."""
    config, before = stack.config, stack.before
    name = config.image.name or recipe(config).image
    # One that is retired does not stop an edit that bakes no other image, and boots no other machine from it.
    same = before is not None and boots_from(before) == boots_from(config)
    known = same and (bakes(config) or set(machines(config)) <= set(machines(before or config)))
    yield _image(stack, "image.name", name, known=known)
    image = servers_image(config)
    # Servers that exist do not boot from it again.
    if image and not (before and servers_image(before) == image):
        yield _image(stack, "storage.lustre.image", image)
        # Cloud Commerce's API (cloudcommerceprocurement.v1, revision 20251012) is for providers alone.
        page = f"https://console.cloud.google.com/marketplace/browse?q=EXAScaler&project={stack.project}"
        seen = Seen(text="Google answers this on a page only", todo=f"accept the terms: {page}", unclear=True)
        asks = f"terms of DDN EXAScaler Cloud in {stack.project}"
        yield CloudCheck(id="marketplace", asks=asks, requests=(), read=lambda: seen)


def servers_image(config: ClusterConfig) -> str:
    """Return the image of EXAScaler's servers; empty without any."""
    lustre = config.storage.lustre
    return lustre.image if lustre and servers(config) else ""


def _image(stack: AskedStack, at: str, name: str, *, known: bool = False) -> CloudCheck:
    project = name.split("/")[1] if name.startswith("projects/") else stack.project
    short = name.rpartition("/images/")[2]

    def read(answer: Answer) -> Seen:
        if answer is None:
            todo = f"set {at} to an image that exists, or report this: the program names an image that is gone"
            return Seen(text=f"{project} has no image {short}", todo=todo, unclear=known)
        state = answer.get("deprecated", {}).get("state", "ACTIVE")
        text = f"{answer['status']}, created {answer['creationTimestamp'][:10]}, {state}"
        # Machines can be created from a deprecated image, and not from an obsolete or deleted one.
        usable = answer["status"] == "READY" and state in ("ACTIVE", "DEPRECATED")
        todo = "" if usable else f"set {at}, or image.recipe, to one that is in use"
        return Seen(text=text, todo=todo, unclear=known and not usable)

    permission = "compute.images.getFromFamily" if short.startswith("family/") else "compute.images.get"
    request = compute(project, f"global/images/{short}", permission)
    return CloudCheck(id="image", asks=f"image {short} of {project}", requests=(request,), read=read)


def file_system_locations(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check of the zone or region of each file system that Google runs.

    Source of the path, for both services: google.cloud.location.Locations in file.v1's discovery document, 20260819,
    and in googleapis/googleapis 6c345ac, google/cloud/lustre/v1/lustre_v1.yaml.
    """
    for file_system in file_systems(stack.config):
        if where := file_system.location:
            service = file_system.service
            request = CloudRequest(
                service=service,
                path=f"v1/projects/{stack.project}/locations/{where}",
                permission=f"{service}.locations.get",
            )
            command = {"file": "filestore zones list", "lustre": "lustre locations list"}[service]
            todo = f"choose a zone of: gcloud {command} --project {stack.project}"
            lacking = Seen(text=f"{where} has no {service}.googleapis.com", todo=todo)
            asks = f"{service}.googleapis.com in {where}"
            yield CloudCheck(id="file-system", asks=asks, requests=(request,), read=partial(_exists, lacking))


def _exists(lacking: Seen, answer: Answer) -> Seen:
    return lacking if answer is None else Seen(text="there is one")


def state_bucket(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check of the bucket that the stack's state is in, if it is in Cloud Storage."""
    if not stack.state.startswith("gs://"):
        return
    bucket = stack.state.removeprefix("gs://").partition("/")[0].partition("?")[0]

    def read(answer: Answer) -> Seen:
        if answer is None:
            todo = f"./hpc backend init gcs --bucket {bucket} --project {stack.project}"
            return Seen(text="there is none", todo=todo)
        if not answer.get("versioning", {}).get("enabled"):
            command = f"gcloud storage buckets update gs://{bucket} --versioning"
            return Seen(text="it keeps no old versions of the state", todo=command, unclear=True)
        return Seen(text=f"in {answer['location']}, with versions")

    request = CloudRequest(
        service="storage",
        path=f"storage/v1/b/{bucket}",
        permission="storage.buckets.get",
        role="roles/storage.bucketViewer",
    )
    yield CloudCheck(id="state", asks=f"state bucket {bucket}", requests=(request,), read=read)


def organization_policies(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each constraint that would refuse the stack if it were in force."""
    before = policies(stack.before) if stack.before else ()
    for name in policies(stack.config):
        # The method's page names orgpolicy.policies.get, which no role has (iann0036/iam-dataset 2073fa5, gcp/roles).
        request = CloudRequest(
            service="orgpolicy",
            path=f"v2/projects/{stack.project}/policies/{name}:getEffectivePolicy",
            permission="orgpolicy.policy.get",
        )
        read = partial(_read_policy, POLICIES[name].todo, name in before)
        yield CloudCheck(id="policy", asks=f"organization policy {name}", requests=(request,), read=read)


def _read_policy(todo: str, known: bool, answer: Answer) -> Seen:  # noqa: FBT001 - bound by its place
    """`known`: whether the running cluster needs the same. One that is newly in force does not stop other edits."""
    rules = (answer or {}).get("spec", {}).get("rules", ())
    if any(rule.get("enforce") or rule.get("denyAll") for rule in rules):
        return Seen(text="in force", todo=todo, unclear=known)
    values = {
        word: [value for rule in rules for value in rule.get("values", {}).get(key, ())]
        for word, key in (("allows", "allowedValues"), ("denies", "deniedValues"))
    }
    text = "; ".join(f"{word} {', '.join(named)}" for word, named in values.items() if named)
    return Seen(text=text, todo=f"compare: {todo}", unclear=True) if text else Seen(text="not in force")
