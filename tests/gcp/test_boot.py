"""What instances are told: enough to join by themselves, nothing that is secret, and the same for a whole nodeset."""

import json

import pulumi
import pytest

from cluster.config import ClusterConfig
from cluster.load import parse
from cluster.roster import MachineSpec, machines
from components.gcp.boot import FIXED, BootArgs, StoredObject, archive, metadata
from components.slurm import payload
from components.slurm.keys import ClusterKeys
from tests.harness import FAKE_SECRETS, deploy

CLUSTER = {
    "platform": "gcp",
    "name": "small",
    "login": {"count": 1},
    "nodesets": {"cpu": {"machine_type": "n2-standard-2", "count": 2}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}
VERSION = "projects/p/secrets/small-munge/versions/1"


def config() -> ClusterConfig:
    """A cluster with one machine of each role, and a node more."""
    return parse({"gcp:project": "my-project", "gcp:zone": "us-central1-a", "hpc:cluster": CLUSTER})


def told(spec: MachineSpec, *, install: bool = False) -> dict[str, str]:
    """Metadata of a machine, as the provider gets it."""
    seen: dict[str, str] = {}

    def program() -> None:
        keys = ClusterKeys("small")
        stored = StoredObject(url=pulumi.Output.from_input("gs://b/setup.json"), sha256="ab" * 32)
        args = BootArgs(
            admin_key=keys.admin.public_key_openssh,
            cluster_key=pulumi.Output.from_input("ssh-ed25519 controllers-own\n"),
            secrets={"/etc/hpc/munge.key": pulumi.Output.from_input(VERSION)},
            setup=stored,
            install=stored if install else None,
            mounts=[
                {
                    "source": pulumi.Output.concat("small-controller", ":/home"),
                    "target": "/home",
                    "fs_type": "nfs",
                    "options": "hard",
                }
            ],
        )
        pulumi.Output.all(**metadata(config(), spec, args)).apply(seen.update)

    deploy(program)
    return seen


@pytest.fixture(scope="module")
def node() -> MachineSpec:
    return next(spec for spec in machines(config()) if spec.roles == ("node",))


def test_metadata_of_a_node_has_what_it_needs_to_join(node):
    boot = json.loads(told(node)["hpc-boot"])
    assert boot["secrets"] == {"/etc/hpc/munge.key": VERSION}
    assert boot["setup"] == {"url": "gs://b/setup.json", "sha256": "ab" * 32}
    assert boot["node"]["conf_server"] == "small-controller:6817"
    assert boot["node"]["mounts"][0]["source"] == "small-controller:/home"
    assert boot["install"] is None
    keys = boot["files"]["/root/.ssh/authorized_keys"]
    assert (keys["mode"], keys["content"].count("\n")) == ("0600", 2)
    assert keys["content"].endswith("ssh-ed25519 controllers-own\n")


def test_metadata_of_other_machines_has_the_admin_key_only():
    for spec in machines(config())[:2]:
        boot = json.loads(told(spec, install=True)["hpc-boot"])
        assert (boot["setup"], boot["node"]) == (None, None)
        assert boot["install"]["url"] == "gs://b/setup.json"
        assert boot["files"]["/root/.ssh/authorized_keys"]["content"].count("\n") == 1


def test_metadata_has_no_secrets(node):
    for spec in (*machines(config())[:2], node):
        text = json.dumps(told(spec))
        assert not [secret for secret in FAKE_SECRETS if secret in text]


def test_nodes_of_a_nodeset_have_the_same_metadata(node):
    other = next(spec for spec in machines(config()) if spec.roles == ("node",) and spec != node)
    assert told(node) == told(other)


def test_os_login_and_project_keys_are_off(node):
    found = told(node)
    assert (found["enable-oslogin"], found["block-project-ssh-keys"]) == ("FALSE", "TRUE")
    assert FIXED.items() <= found.items()
    assert len(found["hpc-boot"]) < 4096


class TestArchive:
    def test_the_archive_has_the_files_of_the_set_up(self):
        content, sha256 = archive()
        assert {name: "\n".join(lines) + "\n" for name, lines in json.loads(content).items()} == payload.setup_files()
        assert len(sha256) == 64
