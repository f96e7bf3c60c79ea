"""`iam-dataset=CHECKOUT`: roles and permissions that this program asks for, beside those that Google documents, as
iann0036/iam-dataset has collected them (gcp/map.json from the reference page of each method, gcp/roles)."""

import json
from pathlib import Path

from cluster.platforms.gcp.permissions import FLEX, PLACED, RECONCILE, roles
from components.gcp.identity import PROJECT_ROLES
from tests.cluster import stacks
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
