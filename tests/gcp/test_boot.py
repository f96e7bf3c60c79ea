"""The boot of machines: their metadata, and the start-up script that reads it."""

import ast
import json
import subprocess
from pathlib import Path

import pulumi
import pytest
import start
from google_apis import BootError, GoogleApis

from cluster.config import ClusterConfig
from cluster.load import parse
from cluster.roster import MachineSpec, machines
from components.gcp.boot import FIXED, HOST_KEY, BootArgs, StoredObject, archive, metadata, startup_script
from components.slurm import payload
from components.slurm.keys import ClusterKeys
from tests import programs
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
    """Return a cluster with a controller, a login machine and two nodes."""
    return parse({"gcp:project": "my-project", "gcp:zone": "us-central1-a", "hpc:cluster": CLUSTER})


def metadata_of(spec: MachineSpec, *, install: bool = False) -> dict[str, str]:
    """Return the metadata of a machine, as the provider gets it."""
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
    boot = json.loads(metadata_of(node)["hpc-boot"])
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
        boot = json.loads(metadata_of(spec, install=True)["hpc-boot"])
        assert (boot["setup"], boot["node"]) == (None, None)
        assert boot["install"]["url"] == "gs://b/setup.json"
        assert boot["files"]["/root/.ssh/authorized_keys"]["content"].count("\n") == 1


def test_metadata_has_no_secrets(node):
    for spec in (*machines(config())[:2], node):
        text = json.dumps(metadata_of(spec))
        assert not [secret for secret in FAKE_SECRETS if secret in text]


def test_nodes_of_a_nodeset_have_the_same_metadata(node):
    other = next(spec for spec in machines(config()) if spec.roles == ("node",) and spec != node)
    assert metadata_of(node) == metadata_of(other)


def test_os_login_and_project_keys_are_off(node):
    found = metadata_of(node)
    assert (found["enable-oslogin"], found["block-project-ssh-keys"]) == ("FALSE", "TRUE")
    assert FIXED.items() <= found.items()
    assert len(found["hpc-boot"]) < 4096


class TestArchive:
    def test_the_archive_has_the_files_of_the_set_up(self):
        content, sha256 = archive()
        assert {name: "\n".join(lines) + "\n" for name, lines in json.loads(content).items()} == payload.setup_files()
        assert len(sha256) == 64


SHIELD = Path(__file__).parents[2] / "scripts/gcp/shield.sh"


class TestText:
    """What metadata carries."""

    def test_the_script_is_one_program_for_python_3_8(self):
        tree = ast.parse(startup_script(), feature_version=(3, 8))
        imported = {
            name.name if isinstance(node, ast.Import) else node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        assert not imported & {"google_apis", "system.google_api"}
        assert startup_script().startswith("#!/usr/bin/env python3\n")

    def test_the_script_contains_its_modules(self):
        defined: dict[str, object] = {"__name__": "not main"}
        exec(compile(startup_script(), "startup-script", "exec"), defined)  # noqa: S102
        assert defined["SHIELD"] == SHIELD.read_text()
        assert {"GoogleApis", "metadata", "main", "BootingMachine"} <= set(defined)

    def test_the_script_fits_into_metadata(self):
        # 256 KB a value (cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations).
        assert len(startup_script()) < 64 << 10

    def test_the_host_key_has_the_path_of_the_stack(self):
        assert str(start.HOST_KEY) == HOST_KEY


class TestWrite:
    def test_a_file_is_written_once(self, tmp_path):
        machine = start.BootingMachine()
        for _ in range(2):
            machine.write(tmp_path / "a" / "key", b"x", 0o600)
        assert machine.changed == [f"wrote {tmp_path}/a/key"]
        assert (tmp_path / "a" / "key").stat().st_mode & 0o777 == 0o600

    def test_a_wrong_mode_is_corrected(self, tmp_path):
        (tmp_path / "key").write_bytes(b"x")
        (tmp_path / "key").chmod(0o644)
        machine = start.BootingMachine()
        machine.write(tmp_path / "key", b"x", 0o600)
        assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


class TestPlace:
    """Google's name of the machine's host, for topology.conf."""

    @pytest.fixture
    def attributes(self, tmp_path, monkeypatch):
        """What metadata has of it."""
        metadata = {"attributes/physical_host": "/c/b/h\n"}
        monkeypatch.setattr(start, "metadata", metadata.__getitem__)
        monkeypatch.setattr(start, "PLACE", tmp_path / "place")
        return metadata

    def test_a_changed_host_is_written(self, attributes):
        changed = []
        for place in ("/c/b/h", "/c/b/h", "/c/b2/h"):
            attributes["attributes/physical_host"] = place
            machine = start.BootingMachine()
            start.write_place(machine)
            changed.append(len(machine.changed))
            assert start.PLACE.read_text() == f"{place}\n"
        assert changed == [1, 0, 1]

    def test_a_machine_without_a_host_name_writes_an_empty_line_at_most(self, attributes):
        machine = start.BootingMachine()
        start.write_place(machine)
        attributes.clear()
        start.write_place(machine)
        assert start.PLACE.read_text() == "\n"
        start.PLACE.unlink()
        start.write_place(machine)
        assert not start.PLACE.exists()


class TestNames:
    def test_the_resolver_caches_no_missing_names(self, tmp_path, monkeypatch):
        called: list[tuple[str, ...]] = []
        monkeypatch.setattr(start, "RESOLVER", tmp_path / "resolvectl")
        monkeypatch.setattr(start, "RESOLVED", tmp_path / "resolved.conf.d" / "hpc.conf")
        monkeypatch.setattr(start, "call", lambda *command: called.append(command))
        start.configure_resolver(start.BootingMachine())
        assert (called, start.RESOLVED.exists()) == ([], False)
        start.RESOLVER.touch()
        for _ in range(2):
            start.configure_resolver(start.BootingMachine())
        assert called == [("systemctl", "try-restart", "systemd-resolved")]
        assert "[Resolve]\nCache=no-negative\n" in start.RESOLVED.read_text()


class TestSecrets:
    @pytest.fixture
    def asked(self, tmp_path, monkeypatch) -> list[str]:
        """Versions that were asked for, by a machine of which the rest is left out."""
        asked: list[str] = []
        monkeypatch.setattr(start, "KEPT", tmp_path / "kept")
        monkeypatch.setattr(start, "HOST_KEY", tmp_path / "host")
        monkeypatch.setattr(start, "configure_sshd", lambda _: asked.append("admitted"))
        monkeypatch.setattr(GoogleApis, "secret", lambda _, version: asked.append(version) or f"{version}\n".encode())
        return asked

    def test_the_host_key_and_sshd_come_first(self, asked, tmp_path):
        wanted = {str(tmp_path / "a-key"): "a/1", str(tmp_path / "host"): "host/1"}
        start.write_secrets(start.BootingMachine(), GoogleApis({}), wanted)
        assert asked == ["host/1", "admitted", "a/1"]

    def test_a_secret_is_fetched_once_for_each_version(self, asked, tmp_path):
        key = tmp_path / "key"
        for version in ("a/1", "a/1", "a/2"):
            start.write_secrets(start.BootingMachine(), GoogleApis({}), {str(key): version})
        assert asked == ["a/1", "a/2"]
        assert key.read_text() == "a/2\n"

    def test_a_changed_file_is_fetched_again(self, asked, tmp_path):
        key = tmp_path / "key"
        start.write_secrets(start.BootingMachine(), GoogleApis({}), {str(key): "a/1"})
        key.write_text("other\n")
        start.write_secrets(start.BootingMachine(), GoogleApis({}), {str(key): "a/1"})
        assert (asked, key.read_text()) == (["a/1", "a/1"], "a/1\n")

    def test_the_record_contains_no_secret(self, asked, tmp_path):
        start.write_secrets(start.BootingMachine(), GoogleApis({}), {str(tmp_path / "key"): "a/1"})
        record = tmp_path / "kept/secrets.json"
        assert json.loads(record.read_text())[str(tmp_path / "key")][0] == "a/1"
        assert record.stat().st_mode & 0o777 == 0o600


class TestTrying:
    def test_retries_slow_down_and_print_each_error_once(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(start, "KEPT", tmp_path)
        monkeypatch.setattr(start, "publish", lambda _: None)
        pauses: list[float] = []
        monkeypatch.setattr(start.time, "sleep", pauses.append)
        left = iter([BootError("no key")] * 6 + [BootError("no set-up")] + [None])

        def attempt(*_: object, **__: object) -> None:
            if error := next(left):
                raise error

        monkeypatch.setattr(start, "attempt", attempt)
        start.retry_until_done(start.BootingMachine())
        assert pauses == [1, 2, 4, 8, 16, 32, 60]
        lines = capsys.readouterr().out.splitlines()
        assert [line.partition(": ")[2] for line in lines] == [
            "no key; it is tried again",
            "no set-up; it is tried again",
        ]
        assert (tmp_path / "state").read_text() == "failed: no set-up\n"

    def test_unexpected_errors_are_retried(self, monkeypatch):
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(start, "configure", full)
        with pytest.raises(BootError, match="No space left on device"):
            start.attempt(start.BootingMachine(), once=False)


class TestShield:
    """Users reach names and times there, and nothing else."""

    @pytest.fixture
    def shield(self, tmp_path):
        """Runs it on a machine that has the programs given, each of which records its arguments and input."""

        def run(*names: str) -> subprocess.CompletedProcess[str]:
            for name in ("sh", "id", "sed", "cat"):
                (tmp_path / name).symlink_to(f"/usr/bin/{name}")
            for name in names:
                text = f'echo "$@" >> {tmp_path}/called\n'
                programs.write(tmp_path / name, text + (f"cat >> {tmp_path}/input" if "-C" not in name else ""))
            return programs.run(["/bin/sh", str(SHIELD)], env={"PATH": str(tmp_path)}, stdin=subprocess.DEVNULL)

        return run

    def test_nftables_gets_a_table_of_its_own(self, shield, tmp_path):
        assert shield("nft", "iptables", "iptables-restore").returncode == 0
        text = (tmp_path / "input").read_text()
        assert "delete table inet hpc-metadata" in text
        apt = programs.run(["id", "-u", "_apt"]).stdout.strip()
        allowed = f"{{ 0, {apt} }}" if apt else "{ 0 }"
        assert f"ip daddr 169.254.169.254 tcp dport != 53 meta skuid != {allowed} reject" in text

    def test_iptables_is_used_without_nftables(self, shield, tmp_path):
        assert shield("iptables", "iptables-restore").returncode == 0
        assert "-A HPC-METADATA -m owner --uid-owner 0 -j RETURN" in (tmp_path / "input").read_text()
        assert "-C OUTPUT -d 169.254.169.254/32 -p tcp ! --dport 53" in (tmp_path / "called").read_text()

    def test_without_both_a_warning_is_printed(self, shield):
        done = shield()
        assert done.returncode == 1
        assert done.stderr.startswith("WARNING: every user of this machine can reach the metadata server")
