"""Service accounts, secrets and the set-up's bucket: roles and grants, and no secret in clear."""

import hashlib
from typing import Any

import pulumi
import pytest

from cluster.platforms.gcp.image import bake_script
from cluster.roster import machines
from components.gcp.boot import HOST_KEY, archive
from components.gcp.identity import Identity
from components.slurm.keys import ClusterKeys
from tests.clouds import google
from tests.harness import Recording, deploy

ACCOUNT = "gcp:serviceaccount/account:Account"
SECRET, VERSION = "gcp:secretmanager/secret:Secret", "gcp:secretmanager/secretVersion:SecretVersion"
ON_PROJECT, ON_SECRET = "gcp:projects/iAMMember:IAMMember", "gcp:secretmanager/secretIamMember:SecretIamMember"
ON_BUCKET, OBJECT = "gcp:storage/bucketIAMMember:BucketIAMMember", "gcp:storage/bucketObject:BucketObject"

PLAIN = {"image": {"base": "ubuntu-2404"}}


def made(**changes: Any) -> Recording:
    config = google(**changes)

    def program() -> None:
        identity = Identity("cloud-identity", config, ClusterKeys("cloud"))
        pulumi.export("versions", {spec.name: identity.versions(spec) for spec in machines(config)})
        pulumi.export("objects", {name: [stored.url, stored.sha256] for name, stored in identity.objects.items()})

    return deploy(program)


def granted(recording: Recording) -> dict[str, dict[str, set[str]]]:
    """Return what each service account may do, by its ending and by where."""
    secrets = {f"{resource.name}-id": resource.inputs["secretId"] for resource in recording.all(SECRET)}
    found: dict[str, dict[str, set[str]]] = {}
    for kind in (ON_PROJECT, ON_SECRET, ON_BUCKET):
        for resource in recording.all(kind):
            given = resource.inputs
            where = given.get("project") or given.get("bucket") or secrets[given["secretId"]]
            who = given["member"].removeprefix("serviceAccount:").partition("@")[0].removeprefix("cloud-")
            found.setdefault(who, {}).setdefault(where, set()).add(given["role"])
    return found


def test_service_accounts_have_only_the_roles_that_their_machines_need(reviewed):
    """Roles without machines have no account; a machine of Prometheus reads what a login machine reads."""
    clusters: dict[str, dict[str, Any]] = {
        "all machines": {},
        "a machine of Prometheus": {"monitoring": {"machine": {}}},
        "a controller alone": {"login": {"on": "controller"}, "nodesets": {"cpu": {"on": "controller"}}, **PLAIN},
    }
    shown = {}
    for case, changes in clusters.items():
        recording = made(**changes)
        found = granted(recording)
        assert {resource.inputs["accountId"].removeprefix("cloud-") for resource in recording.all(ACCOUNT)} == {*found}
        rows = ((who, where, role) for who in found for where in found[who] for role in found[who][where])
        shown[case] = "\n".join(map(" ".join, sorted(rows)))
    reviewed("gcp/rights", shown)


class TestSecrets:
    def test_each_machine_fetches_its_own_secrets(self):
        versions = made(login={"count": 2}).outputs["versions"]
        paths = {name: set(found) for name, found in versions.items()}
        assert paths == {
            "cloud-controller": {"/etc/hpc/munge.key", "/etc/hpc/database-password", HOST_KEY},
            "cloud-login-0": {"/etc/hpc/munge.key", HOST_KEY},
            "cloud-login-1": {"/etc/hpc/munge.key", HOST_KEY},
            "cloud-cpu-0": {"/etc/hpc/munge.key"},
            "cloud-cpu-1": {"/etc/hpc/munge.key"},
        }
        own = [versions[name][HOST_KEY] for name in ("cloud-controller", "cloud-login-0", "cloud-login-1")]
        assert len(set(own)) == 3
        assert len({found["/etc/hpc/munge.key"] for found in versions.values()}) == 1

    def test_secrets_equal_those_sent_over_ssh(self):
        kept = {resource.inputs["secret"]: resource.inputs["secretData"] for resource in made().all(VERSION)}
        assert kept["cloud-identity-secrets-munge-id"] == "bXVuZ2Uta2V5\n"
        assert kept["cloud-identity-secrets-database-id"] == "Password123\n"


class TestBucket:
    def test_the_name_of_an_object_changes_with_its_content(self):
        (stored,) = made().all(OBJECT)
        content, sha256 = archive()
        assert hashlib.sha256(content).hexdigest() == sha256
        assert stored.inputs["name"] == f"setup-{sha256[:12]}.json"
        assert stored.inputs["source"]["text"] == content.decode()
        assert made().outputs["objects"] == {
            "setup.json": [f"gs://my-project-cloud-setup/setup-{sha256[:12]}.json", sha256]
        }

    @pytest.mark.parametrize(
        ("image", "installs"),
        [
            ({"base": "ubuntu-2204"}, False),
            ({"base": "ubuntu-2204", "bake": False}, True),
            ({"base": "ubuntu-2204", "name": "ours-0123456789ab"}, False),
            ({"base": "ubuntu-2404"}, True),
        ],
    )
    def test_the_installation_is_stored_only_for_machines_that_run_it(self, image: dict[str, Any], installs: bool):
        recording = made(image=image)
        kept = {
            resource.inputs["name"].partition("-")[0]: resource.inputs["source"]["text"]
            for resource in recording.all(OBJECT)
        }
        assert set(kept) == ({"setup", "install"} if installs else {"setup"})
        if installs:
            assert kept["install"] == bake_script(google(image=image))
