"""The questions to Nebius before `up`, a row of CHECKS for each kind. Nothing here sends a request
(components/nebius/cloud_checks.py does).

Fields: nebius/api 5101002, iam/v1, capacity/v1/capacity_block_group.proto, storage/v1/bucket.proto. Roles of groups:
docs.nebius.com/iam/authorization/roles; GPUs of capacity block groups: docs.nebius.com/overview/limits (2026).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from cluster.cloud_checks import CloudCheck, Seen
from cluster.findings import listing
from cluster.platforms.nebius.cloud_offers import fabrics, machine_types, offers
from cluster.platforms.nebius.cloud_request import UNKNOWN_USAGE, NebiusStack, question
from cluster.platforms.nebius.names import OTHER_NAME, OWNER_LABEL, shortened
from cluster.platforms.nebius.node_groups import filesystems, node_groups
from cluster.platforms.nebius.releases import DEFAULT_REGISTRY, CloudFacts, charts_of, images, releases
from cluster.platforms.nebius.stack_file_fields import backs_up, name_at_nebius, settings_of

Rows = Sequence[Mapping[str, Any]]
"""Objects as the API's JSON has them."""


def _project(stack: NebiusStack) -> Iterator[CloudCheck]:
    """The project, in its tenant and region."""
    settings = stack.settings
    todo = f"correct nebius.project: nebius iam project list --parent-id {settings.tenant}"

    def read(row: Mapping[str, Any] | None) -> Seen:
        if row is None:
            return Seen(text="there is none", todo=todo)
        tenant = row["metadata"]["parent_id"]
        region = row.get("status", {}).get("region", "")
        if tenant != settings.tenant:
            return Seen(text=f"it is in {tenant}, not in {settings.tenant}", todo=todo)
        if region not in ("", settings.region):
            return Seen(text=f"it is in {region}", todo=f"set nebius.region: {region}, or another nebius.project")
        return Seen(text=f"in {region or 'a region that Nebius does not name'}")

    asks = f"project {settings.project} in {settings.region}"
    yield CloudCheck(id="project", asks=asks, requests=question("project", settings.project), read=read)


BASIC = {"auditor", "viewer", "editor"}
"""Roles that are known not to be an administrator's (docs.nebius.com/iam/authorization/roles)."""


def _permissions(stack: NebiusStack) -> Iterator[CloudCheck]:
    """The caller's roles: of an editor for the stack, and of an administrator for the account of its backups."""
    settings = stack.settings
    group = f"ask an administrator of {settings.tenant} to put your account into the group `editors`"
    admin = f"ask for the role admin in {settings.project}, or write nebius.backups: {{enabled: false}}"
    needs = {"editor": group, **({"admin": admin} if backs_up(settings) else {})}
    for role, todo in needs.items():

        def read(rows: Sequence[tuple[str, str]], role: str = role, todo: str = todo) -> Seen:
            own = sorted({name for name, where in rows if where in (settings.tenant, settings.project)})
            fits = bool({role, "admin"} & {*own})
            # Nebius has narrower roles too, which may suffice together.
            unclear = not fits and not {*own} <= BASIC
            return Seen(
                text=f"you have {listing(own) if own else 'no role'}", todo="" if fits else todo, unclear=unclear
            )

        asks = f"role {role} in {settings.project}"
        yield CloudCheck(id="permissions", asks=asks, requests=question("roles", settings.tenant), read=read)


SUBNET = "A project has a subnet, the first of which is used where none is given."


def _existing(stack: NebiusStack) -> Iterator[CloudCheck]:
    """Objects that the stack file names by their ids, and the subnet that is used if it names none."""
    settings = stack.settings
    named = {("Subnet", settings.subnet or "create"): "nebius.subnet"}
    for path, section in settings.filesystems.members().items():
        named["Filesystem", section.existing or "create"] = f"nebius.filesystems.{'.'.join(path)}.existing"
    for nodeset, workers in settings.workers.items():
        id_ = workers.infiniband.existing if workers.infiniband else None
        named["GpuCluster", id_ or "create"] = f"nebius.workers.{nodeset}.infiniband.existing"
    for (kind, id_), where in named.items():

        def read(exists: bool, where: str = where) -> Seen:  # noqa: FBT001 - the answer
            return Seen(text="there is one") if exists else Seen(text="there is none", todo=f"correct {where}")

        if id_ != "create":
            asks = f"{kind} {id_}"
            yield CloudCheck(id="existing", asks=asks, requests=question("exists", kind, id_), read=read)
    if settings.subnet is None:

        def read_first(rows: Rows) -> Seen:
            if not rows:
                return Seen(text="it has none", todo="set nebius.subnet: create")
            return Seen(text=f"{rows[0]['metadata'].get('name', '')} ({rows[0]['metadata']['id']}) is used")

        asks = f"first subnet of {settings.project}"
        requests = question("listed", "Subnet", settings.project)
        yield CloudCheck(id="existing", asks=asks, requests=requests, read=read_first, assumptions=(SUBNET,))


def _capacity_blocks(stack: NebiusStack) -> Iterator[CloudCheck]:
    """Each capacity block group of a nodeset: place, platform, state, and free GPUs."""
    groups = node_groups(stack.config, stack.settings)
    before = node_groups(stack.before, settings_of(stack.before)) if stack.before else ()
    for id_ in dict.fromkeys(group.reservation for group in groups if group.reservation):
        own = [group for group in groups if group.reservation == id_]
        held = sum(group.most * group.gpus for group in before if group.reservation == id_)
        needed = sum(group.most * group.gpus for group in own) - held
        place = {"region": stack.settings.region, "platform": own[0].platform, "state": "STATE_ACTIVE"}

        def read(
            row: Mapping[str, Any] | None,
            needed: int = needed,
            held: int = held,
            place: Mapping[str, str] = place,
            id_: str = id_,
        ) -> Seen:
            # One that has ended does not stop an edit of other things.
            known = needed <= 0 < held
            todo = f"compare it with the stack file: nebius capacity capacity-block-group get --id {id_}"
            if row is None:
                return Seen(text="there is none", todo=todo, unclear=known)
            status = row["status"]
            kind = status["resource_affinity"]["compute_v1"]
            seen = {"region": status["region"], "platform": kind["platform"], "state": status["state"]}
            if status.get("usage_state") == UNKNOWN_USAGE:
                return Seen(text="its usage is not known at present", todo="run it again", unclear=True)
            limit = int(status.get("current_limit", 0))
            free = limit - int(status.get("usage", 0))
            differ = [f"its {key} is {seen[key]}, not {value}" for key, value in place.items() if seen[key] != value]
            if free < needed:
                differ.append(f"{needed} more GPUs needed")
            end = status.get("current_continuous_interval", {}).get("end_time", "")
            text = f"{free} of {limit} GPUs are free{f', until {end[:10]}' if end else ''}"
            return Seen(text="; ".join((text, *differ)), todo=todo if differ else "", unclear=known and bool(differ))

        yield CloudCheck(id="capacity-block", asks=id_, requests=question("block", id_), read=read)


def _names(stack: NebiusStack) -> Iterator[CloudCheck]:
    """The names of objects that `up` creates: whether others have them."""
    before = _names_of(NebiusStack(config=stack.before)) if stack.before else {}
    for kind, every in _names_of(stack).items():
        names = [name for name in every if name not in before.get(kind, ())]

        def read(rows: Rows, names: Sequence[str] = names) -> Seen:
            # `up` waits until an object that is being deleted is gone.
            there = [row["metadata"] for row in rows if row.get("status", {}).get("state") != "DELETING"]
            taken = {row["name"]: OWNER_LABEL in row.get("labels", {}) for row in there if row.get("name") in names}
            others = [name for name, is_own in taken.items() if not is_own]
            if others or not taken:
                return Seen(text=f"taken: {listing(others)}" if others else "free", todo=OTHER_NAME if others else "")
            todo = "nothing if an `up` of this stack stopped, which the next one with its state goes on with; else "
            return Seen(text=f"a stack of this program has {listing([*taken])}", todo=todo + OTHER_NAME, unclear=True)

        if names:
            asks = f"names of {kind} in {stack.settings.project}: {', '.join(names)}"
            requests = question("listed", kind, stack.settings.project)
            yield CloudCheck(id="name", asks=asks, requests=requests, read=read)


def _names_of(stack: NebiusStack) -> dict[str, list[str]]:
    """Return the names of a stack's objects in its project, by kind. Those of buckets have a random part."""
    settings, name = stack.settings, name_at_nebius(stack.config, stack.settings)
    fabrics = dict.fromkeys(node["fabric"] for node in stack.place.request["nodes"] if node["fabric"])
    public = settings.login.service == "LoadBalancer" and settings.login.exposure == "public"
    found = {
        "Network": [name] if settings.subnet == "create" else [],
        "Subnet": [name] if settings.subnet == "create" else [],
        "Filesystem": [shortened(name, tag) for tag, section in filesystems(settings).items() if section.spec],
        "Allocation": [shortened(name, "static-ip")] if public else [],
        "Cluster": [name],
        "GpuCluster": [shortened(name, fabric) for fabric in fabrics],
        "ServiceAccount": [shortened(name, "backup-sa")] if backs_up(settings) else [],
    }
    return {kind: names for kind, names in found.items() if names}


def _state_bucket(stack: NebiusStack) -> Iterator[CloudCheck]:
    """The bucket that the stack's state is in, if it is in Nebius's Object Storage."""
    if not stack.state.startswith("s3://") or ".nebius.cloud" not in stack.state:
        return
    bucket, project = urlsplit(stack.state).netloc, stack.settings.project

    def read(rows: Rows) -> Seen:
        row = next((row for row in rows if row["metadata"].get("name") == bucket), None)
        if row is None:
            return Seen(text=f"{project} has none of this name; other projects were not asked", unclear=True)
        if row.get("status", {}).get("state") == "SCHEDULED_FOR_DELETION":
            return Seen(text="it was deleted", todo=f"nebius storage bucket undelete --id {row['metadata']['id']}")
        if row.get("spec", {}).get("versioning_policy") != "ENABLED":
            command = f"nebius storage bucket update --id {row['metadata']['id']} --versioning-policy enabled"
            return Seen(text="it keeps no old versions of the state", todo=command, unclear=True)
        return Seen(text="with versions")

    requests = question("listed", "Bucket", project)
    yield CloudCheck(id="state", asks=f"state bucket {bucket}", requests=requests, read=read)


JAIL_IMAGES = (
    "Soperator 4.1 has images of the jail and of checks for CUDA 12.9.0 and 13.0.2; the charts slurm-cluster and "
    "soperator-activechecks choose them by cudaVersion."
)


def _programs(stack: NebiusStack) -> Iterator[CloudCheck]:
    """The programs that `up` runs on this machine."""

    def read(reasons: Sequence[str]) -> Seen:
        todo = "install or correct it, then run again" if reasons else ""
        return Seen(text="; ".join(reasons) or "kubectl is there, and the command prints a credential", todo=todo)

    requests = question("programs", *stack.settings.token_command)
    yield CloudCheck(id="program", asks="kubectl and the credential command", requests=requests, read=read)


def _charts_and_images(stack: NebiusStack) -> Iterator[CloudCheck]:
    """Each chart in its registry or repository, with the keys that `nebius.values` gives, and each image of Soperator
    that the Slurm cluster has."""
    backups = {"name": "", "endpoint": ""} if backs_up(stack.settings) else {}
    planned = releases(stack.config, CloudFacts(stack="", root_keys=(), backups=backups))
    for row in charts_of(planned, stack.settings.values):
        yield _artifact("chart", "{chart} {version} of {repo}".format(**row), row)
    for place, name, tag in images(stack.settings):
        row = {"repo": f"oci://{place}", "chart": name, "version": tag}
        settled = (JAIL_IMAGES,) if name == "populate_jail" else ()
        yield _artifact("image", f"{name}:{tag}", row, settled, mirrored=place != DEFAULT_REGISTRY)


def _artifact(
    id_: str, asked: str, row: Mapping[str, Any], settled: tuple[str, ...] = (), *, mirrored: bool = False
) -> CloudCheck:
    """Return the check of a chart or an image. `up` reads charts without a login, and nodes may pull images with one,
    without which a mirror may show nothing."""

    def read(found: tuple[Sequence[str], Sequence[str], str]) -> Seen:
        errors, lines, digest = found
        if not errors and not lines:
            return Seen(text=f"there is one {digest}".rstrip())
        text, _, todo = " ".join("; ".join(errors or lines).split()).partition(" to do: ")
        if not errors:
            todo = "check the network and the proxy, then run again"
        elif mirrored:
            todo = "nothing if the cluster's nodes can pull it; otherwise push it there"
        return Seen(text=text, todo=todo or "correct nebius.soperator", unclear=mirrored or not errors)

    requests = question("artifact", json.dumps(row, sort_keys=True))
    return CloudCheck(id=id_, asks=f"{id_} {asked}", requests=requests, read=read, assumptions=settled)


CHECKS: tuple[Callable[[NebiusStack], Iterable[CloudCheck]], ...] = (
    _project,
    _permissions,
    lambda stack: offers(stack.place, machine_types, fabrics),
    _capacity_blocks,
    _existing,
    _names,
    _state_bucket,
    _programs,
    _charts_and_images,
)
"""The kinds of checks, in the order of their rows."""


def checks(stack: NebiusStack) -> list[CloudCheck]:
    """Return the checks of a stack."""
    return [check for kind in CHECKS for check in kind(stack)]
