"""`iam-dataset=CHECKOUT`: roles and permissions that this program asks for or names, beside those of Google, as
iann0036/iam-dataset has collected them (gcp/map.json from the reference page of each method, gcp/roles)."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from cluster.platforms.gcp.cloud_billing import IN_ACCOUNT, IN_PROJECT
from cluster.platforms.gcp.cloud_checks import PROBES, SHARED, AskedStack, checks
from cluster.platforms.gcp.cloud_request import CloudRequest
from cluster.platforms.gcp.permissions import BUDGETS, FLEX, PLACED, RECONCILE, roles
from components.gcp.identity import PROJECT_ROLES
from tests.cluster import stacks
from tests.gcp.test_cloud_checks import STATE, elsewhere, everything, replicated
from tests.lab.google.discovery import extracts
from tests.outside.mutation import ROOT
from tests.outside.recorder import Recorder

ELSEWHERE = {
    "compute.instances.pscInterfaceCreate": "no NIC is Private Service Connect's",
    "compute.subnetworks.useExternalIp": "no machine that the controller creates has a public address",
    "iam.serviceAccounts.actAs": "a role on the account itself",
}
"""Permissions of methods that the tables leave out, and why."""
ON_REQUEST = "compute.instances.performMaintenance"
"""In a role only where the stack file asks for it (slurm.reconcile.maintain)."""


def test_methods_take_the_permissions_of_the_tables(artifact: Path, outside: Recorder) -> None:
    documented = json.loads((artifact / "gcp" / "map.json").read_text(encoding="utf-8"))["api"]["compute"]["methods"]
    for table in (RECONCILE, FLEX):
        for method, ours in table.items():
            rows = documented[f"compute.{method}"]["permissions"]
            theirs = {row["name"] for row in rows if not row.get("lowConfidence")} - ELSEWHERE.keys()
            for missing in sorted(theirs - set(ours)):
                outside.differs("iam-permission", f"{method} takes {missing}")
        outside.did(f"compared {len(table)} methods")
    outside.holds("google-group-permissions", "google-create-permissions")


def test_roles_and_permissions_are_there(artifact: Path, outside: Recorder) -> None:
    """A custom role with a permission that Google does not know is refused whole."""
    folder = artifact / "gcp" / "roles"
    given = {
        role for config in map(stacks.config, stacks.STACKS) if config.platform == "gcp" for role in roles(config)
    } | set(PROJECT_ROLES)
    for role in sorted(given):
        if not (folder / f"{role.removeprefix('roles/')}.json").is_file():
            outside.differs("iam-role", f"there is no {role}")
    tables = (RECONCILE, FLEX)
    wanted = {PLACED, *(permission for table in tables for row in table.values() for permission in row)}
    for file in sorted(folder.iterdir()):
        text = file.read_text(encoding="utf-8")
        wanted -= {permission for permission in wanted if f'"{permission}"' in text}
        if not wanted:
            break
    for permission in sorted(wanted):
        outside.differs("iam-unknown", f"no role has {permission}", accepted=permission == ON_REQUEST)
    outside.did(f"looked for {len(given)} roles")
    outside.holds("google-services-and-roles")


def _permissions(artifact: Path, role: str) -> set[str]:
    """The permissions of a predefined role."""
    file = artifact / "gcp" / "roles" / f"{role.removeprefix('roles/')}.json"
    return set(json.loads(file.read_text(encoding="utf-8")).get("includedPermissions", ()))


SAID: Mapping[str, tuple[str, ...]] = {
    **PROBES,
    **SHARED,
    "roles/compute.viewer": ("compute.instances.get",),
}
"""What docs and findings say that a predefined role has."""


def test_roles_have_the_permissions_by_which_check_cloud_recognizes_them(artifact: Path, outside: Recorder) -> None:
    """Owner is a role on projects, so a project can be asked for each of its permissions. Google refuses a question
    for one that the resource does not have."""
    of_projects = _permissions(artifact, "roles/owner")
    for role, named in SAID.items():
        for permission in sorted(set(named) - _permissions(artifact, role)):
            outside.differs("iam-role-permission", f"{role} has no {permission}")
        for permission in sorted(set(named) - of_projects):
            outside.differs("iam-not-of-projects", f"roles/owner has no {permission}")
    if IN_ACCOUNT not in _permissions(artifact, BUDGETS) or IN_PROJECT not in of_projects:
        outside.differs("iam-role-permission", f"{BUDGETS} has no {IN_ACCOUNT}, or roles/owner no {IN_PROJECT}")
    extra = [name for name in _permissions(artifact, "roles/compute.admin") if name.startswith("servicenetworking")]
    assert extra == []
    outside.did(f"compared {len(SAID)} roles")
    outside.holds("google-check-cloud-roles")


def test_roles_of_the_documentation_are_there(artifact: Path, outside: Recorder) -> None:
    folder = artifact / "gcp" / "roles"
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
    named = {role for text in pages for role in re.findall(r"`roles/([a-zA-Z0-9.]+)`", text)}
    for role in sorted(named):
        if not (folder / f"{role}.json").is_file():
            outside.differs("iam-role", f"there is no roles/{role}")
    outside.did(f"looked for {len(named)} roles of the documentation")
    outside.holds("google-roles-of-the-documentation")


NO_SUCH = {"orgpolicy.policies.get": "orgpolicy.policy.get"}
"""Permissions on pages of methods that no role has, and those that roles have instead."""


def test_questions_before_up_take_the_permissions_that_their_rows_name(artifact: Path, outside: Recorder) -> None:
    """Nothing documents the methods of Managed Lustre, getBillingInfo and testIamPermissions in this way."""
    documented = json.loads((artifact / "gcp" / "map.json").read_text(encoding="utf-8"))["api"]
    configs = [
        everything(),
        elsewhere(),
        replicated(),
        *(config for config in map(stacks.config, stacks.STACKS) if config.platform == "gcp"),
    ]
    requests = {
        request
        for config in configs
        for check in checks(AskedStack(config=config, state=STATE))
        for request in check.requests
        if isinstance(request, CloudRequest) and request.permission
    }
    compared = set[str]()
    for request in requests:
        if request.permission not in _permissions(artifact, request.role):
            outside.differs("iam-role-permission", f"{request.role} has no {request.permission}")
        method = extracts()[request.service].method("GET", f"/{request.path}")
        assert method, request
        name = method["id"].replace("file.", f"{request.service}.", 1)
        rows = documented.get(request.service, {"methods": {}})["methods"].get(name, {}).get("permissions", ())
        theirs = {NO_SUCH.get(row["name"], row["name"]) for row in rows}
        if theirs and request.permission not in theirs:
            outside.differs("iam-permission", f"{name} takes {', '.join(sorted(theirs))}, not {request.permission}")
        compared |= {name} if theirs else set()
    outside.did(f"compared the permissions of {len(requests)} requests; documented: {', '.join(sorted(compared))}")
    outside.holds("google-check-cloud-permissions")
