"""Service accounts, secrets and the set-up's bucket: who may do what, and that nothing secret is seen by others."""

import hashlib
import json
from typing import Any

import pulumi
import pytest

from cluster.platforms.gcp.image import bake_script
from cluster.roster import machines
from components.gcp.machines.boot import HOST_KEY, archive
from components.gcp.machines.identity import Identity, roles
from components.slurm.keys import ClusterKeys
from tests.clouds import google
from tests.harness import FAKE_SECRETS, Recording, deploy

ACCOUNT = "gcp:serviceaccount/account:Account"
SECRET, VERSION = "gcp:secretmanager/secret:Secret", "gcp:secretmanager/secretVersion:SecretVersion"
ON_PROJECT, ON_SECRET = "gcp:projects/iAMMember:IAMMember", "gcp:secretmanager/secretIamMember:SecretIamMember"
ON_BUCKET, OBJECT = "gcp:storage/bucketIAMMember:BucketIAMMember", "gcp:storage/bucketObject:BucketObject"

# What each role may do, and where; written from what its machines do, not from what grants it.
MAY = {
    "ctl": {
        "my-project": {"roles/logging.logWriter", "roles/monitoring.metricWriter"},
        "cloud-munge": {"roles/secretmanager.secretAccessor"},
        "cloud-database": {"roles/secretmanager.secretAccessor"},
        "cloud-controller-host-key": {"roles/secretmanager.secretAccessor"},
        "my-project-cloud-setup": {"roles/storage.objectViewer"},
    },
    "login": {
        "my-project": {"roles/logging.logWriter", "roles/monitoring.metricWriter"},
        "cloud-munge": {"roles/secretmanager.secretAccessor"},
        "cloud-login-0-host-key": {"roles/secretmanager.secretAccessor"},
        "my-project-cloud-setup": {"roles/storage.objectViewer"},
    },
    "node": {
        "my-project": {"roles/logging.logWriter", "roles/monitoring.metricWriter"},
        "cloud-munge": {"roles/secretmanager.secretAccessor"},
        "my-project-cloud-setup": {"roles/storage.objectViewer"},
    },
    "bake": {"my-project": {"roles/logging.logWriter", "roles/monitoring.metricWriter"}},
}
PLAIN = {"image": {"base": "ubuntu-2404"}}


def made(**changes: Any) -> Recording:
    unknown = changes.pop("unknown", False)
    config = google(**changes)

    def program() -> None:
        identity = Identity("cloud-identity", config, ClusterKeys("cloud"))
        pulumi.export("emails", {role: identity.email(role) for role in roles(config)})
        pulumi.export("versions", {one.name: identity.versions(one) for one in machines(config)})
        pulumi.export("objects", {name: [one.url, one.sha256] for name, one in identity.objects.items()})
        pulumi.export("ready", {role: len(identity.ready(role)) for role in roles(config)})
        pulumi.export(
            "host_keys",
            {
                one.name: identity.host_key(one.name).public_key_openssh
                for one in machines(config)
                if one.roles != ("node",)
            },
        )

    return deploy(program, unknown=unknown)


def granted(recording: Recording) -> dict[str, dict[str, set[str]]]:
    """What each service account may do, by its ending and by where."""
    secrets = {f"{one.name}-id": one.inputs["secretId"] for one in recording.all(SECRET)}
    found: dict[str, dict[str, set[str]]] = {}
    for kind in (ON_PROJECT, ON_SECRET, ON_BUCKET):
        for one in recording.all(kind):
            given = one.inputs
            where = given.get("project") or given.get("bucket") or secrets[given["secretId"]]
            who = given["member"].removeprefix("serviceAccount:").partition("@")[0].removeprefix("cloud-")
            found.setdefault(who, {}).setdefault(where, set()).add(given["role"])
    return found


class TestRoles:
    def test_everybody_may_do_what_its_machines_do_and_no_more(self):
        assert granted(made()) == MAY

    def test_there_is_one_account_for_each_role_that_has_machines(self):
        named = {one.inputs["accountId"] for one in made().all(ACCOUNT)}
        assert named == {"cloud-ctl", "cloud-login", "cloud-node", "cloud-bake"}
        alone = made(login={"on": "controller"}, nodesets={"cpu": {"on": "controller"}}, **PLAIN)
        assert [one.inputs["accountId"] for one in alone.all(ACCOUNT)] == ["cloud-ctl"]
        assert granted(alone) == {"ctl": MAY["ctl"]}

    def test_nobody_is_given_a_role_over_a_whole_project_but_to_write_logs_and_metrics(self):
        for changes in ({}, PLAIN, {"login": {"count": 2}}):
            given = {one.inputs["role"] for one in made(**changes).all(ON_PROJECT)}
            assert given == {"roles/logging.logWriter", "roles/monitoring.metricWriter"}

    def test_machines_wait_for_all_that_they_are_granted(self):
        recording = made()
        counted = {"controller": 6, "login": 5, "node": 4, "builder": 2}
        assert recording.outputs["ready"] == counted
        short = {"controller": "ctl", "login": "login", "node": "node", "builder": "bake"}
        assert counted == {role: sum(map(len, MAY[short[role]].values())) for role in counted}

    def test_accounts_are_known_by_their_address(self):
        assert made().outputs["emails"]["controller"] == "cloud-ctl@my-project.iam.gserviceaccount.com"


class TestSecrets:
    def test_each_machine_fetches_its_own(self):
        told = made(login={"count": 2}).outputs["versions"]
        paths = {name: set(found) for name, found in told.items()}
        assert paths == {
            "cloud-controller": {"/etc/hpc/munge.key", "/etc/hpc/database-password", HOST_KEY},
            "cloud-login-0": {"/etc/hpc/munge.key", HOST_KEY},
            "cloud-login-1": {"/etc/hpc/munge.key", HOST_KEY},
            "cloud-cpu-0": {"/etc/hpc/munge.key"},
            "cloud-cpu-1": {"/etc/hpc/munge.key"},
        }
        own = [told[name][HOST_KEY] for name in ("cloud-controller", "cloud-login-0", "cloud-login-1")]
        assert len(set(own)) == 3
        assert len({found["/etc/hpc/munge.key"] for found in told.values()}) == 1

    def test_what_is_secret_is_marked(self):
        recording = made()
        assert len(recording.all(VERSION)) == 4
        for one in recording.all(VERSION):
            assert one.secret("secretData"), f"{one.name} shows what it keeps"
        texts = json.dumps([[one.type, one.name, one.shown] for one in recording.resources])
        assert [secret for secret in FAKE_SECRETS if secret in texts] == []
        shown = json.dumps(list(recording.shown_outputs.values()))
        assert [secret for secret in FAKE_SECRETS if secret in shown] == []

    def test_they_are_what_is_brought_over_ssh_to_the_byte(self):
        kept = {one.inputs["secret"]: one.inputs["secretData"] for one in made().all(VERSION)}
        assert kept["cloud-identity-secrets-munge-id"] == "bXVuZ2Uta2V5\n"
        assert kept["cloud-identity-secrets-database-id"] == "Password123\n"

    def test_every_machine_that_is_logged_in_to_has_a_host_key_of_its_own(self):
        recording = made(login={"count": 2})
        names = {"cloud-controller", "cloud-login-0", "cloud-login-1"}
        assert set(recording.outputs["host_keys"]) == names
        keys = recording.all("tls:index/privateKey:PrivateKey")
        ours = [one for one in keys if one.name.startswith("cloud-identity")]
        assert {one.name.removeprefix("cloud-identity-secrets-") for one in ours} == names
        assert {one.inputs["algorithm"] for one in ours} == {"ED25519"}


class TestBucket:
    def test_it_is_private_and_holds_nothing_that_is_to_last(self):
        (bucket,) = made().all("gcp:storage/bucket:Bucket")
        assert bucket.inputs["name"] == "my-project-cloud-setup"
        assert bucket.inputs["location"] == "us-central1"
        assert bucket.inputs["publicAccessPrevention"] == "enforced"
        assert bucket.inputs["uniformBucketLevelAccess"] is True
        assert bucket.inputs["forceDestroy"] is True
        assert not bucket.request.protect

    def test_an_objects_name_changes_with_what_is_in_it(self):
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
    def test_the_installation_is_kept_where_machines_run_it(self, image: dict[str, Any], installs: bool):
        recording = made(image=image)
        kept = {one.inputs["name"].partition("-")[0]: one.inputs["source"]["text"] for one in recording.all(OBJECT)}
        assert set(kept) == ({"setup", "install"} if installs else {"setup"})
        if installs:
            assert kept["install"] == bake_script(google(image=image))


def test_all_of_it_previews_with_nothing_known():
    assert len(made(unknown=True).resources) == len(made().resources)
