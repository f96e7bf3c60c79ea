"""ssh-config: what it writes, for whom, and that ssh takes it as it is meant."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.access import ssh
from cli.access.target import Target
from cli.errors import CliError
from tests import programs
from tests.cli.conftest import Hpc, patch_outputs

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"
STACK: dict[str, Any] = {
    "platform": "gcp",
    "name": "small",
    "gcp": {"project": "my-project", "zone": "us-central1-a"},
    "nodesets": {"cpu": {"count": 1}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
    "users": [
        {
            "name": "alice",
            "uid": 2001,
            "keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJO5cFZx+UpuZMb2VRNzzo1BV/ZaOT/TJ/aYA3SFXWnK alice"],
        }
    ],
}
IAP = {"instance": "small-login-0", "project": "my-project", "zone": "us-central1-a"}
OUTPUTS: dict[str, Any] = {
    "cluster": "small",
    "platform": {"name": "gcp", "title": "Google Cloud", "capabilities": ["ssh"]},
    "targets": {
        "small-controller": {
            "method": "iap", "roles": ["controller"], "address": "172.16.0.2", "host_key": "ssh-ed25519 AAA1",
            **IAP, "instance": "small-controller",
        },
        "small-login-0": {
            "method": "iap", "roles": ["login"], "address": "172.16.0.3", "host_key": "ssh-ed25519 AAA2 c", **IAP,
        },
        "small-cpu-0": {
            "method": "ssh", "roles": ["node"], "address": "172.16.0.4", "host_key": "ssh-ed25519 AAA3",
            "jump": "small-controller",
        },
    },
    "admin_key": KEY,
    "users": ["alice"],
    "login": "small-login-0",
    "config": STACK,
}  # fmt: skip


@pytest.fixture
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stack `dev` is up with these outputs."""
    outputs = {**OUTPUTS, "targets": {name: dict(row) for name, row in OUTPUTS["targets"].items()}}
    patch_outputs(monkeypatch, outputs)
    return outputs


def resolved(config: Path, host: str) -> dict[str, str]:
    """The options that ssh takes for a host."""
    done = programs.run(["ssh", "-F", str(config), "-G", host], check=True)
    rows = (line.partition(" ") for line in done.stdout.splitlines())
    return {name: value for name, _, value in rows}


def files(home: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in (home / "ssh").iterdir()}


class TestUsers:
    def test_a_user_logs_in_with_their_own_key(self, hpc: Hpc, up: dict, tmp_path: Path) -> None:
        ended = hpc("ssh-config", "dev")
        config = tmp_path / "home/ssh/dev.conf"
        assert (ended.code, ended.out) == (0, f"{config}\n"), ended.err
        assert f'Include "{config}"' in ended.err
        assert files(tmp_path / "home") == {"dev.conf": 0o600, "dev.known_hosts": 0o600}
        for name in ("dev", "small-login-0"):
            options = resolved(config, name)
            assert options["user"] == "alice"
            assert options["hostkeyalias"] == "small-login-0"
            assert options["stricthostkeychecking"] == "true"
            assert options["proxycommand"].startswith("gcloud compute start-iap-tunnel small-login-0 22 --project")
        assert config.with_suffix(".known_hosts").read_text() == "small-login-0 ssh-ed25519 AAA2\n"
        assert "small-cpu-0" not in config.read_text(), "the controller, which leads there, is root's"
        assert KEY.split()[4] not in "".join(path.read_text() for path in config.parent.iterdir())

    def test_nodes_are_reached_through_the_login_machine(self, hpc: Hpc, up: dict, tmp_path: Path) -> None:
        up["config"] = {**STACK, "slurm": {"pam_slurm_adopt": True}}
        hpc("ssh-config", "dev", "-u", "alice")
        config = tmp_path / "home/ssh/dev.conf"
        assert resolved(config, "small-cpu-0")["proxyjump"] == "small-login-0"
        assert resolved(config, "small-cpu-0")["hostname"] == "172.16.0.4"
        assert "small-controller" not in config.read_text()

    def test_settings_of_other_hosts_do_not_change(self, hpc: Hpc, up: dict, tmp_path: Path) -> None:
        hpc("ssh-config", "dev")
        other = resolved(tmp_path / "home/ssh/dev.conf", "example.org")
        assert other["stricthostkeychecking"] == "ask"
        assert "hostkeyalias" not in other

    def test_printing_writes_no_ssh_config(self, hpc: Hpc, up: dict, tmp_path: Path) -> None:
        ended = hpc("ssh-config", "dev", "--print")
        assert ended.out.startswith("Host dev small-login-0\n")
        assert files(tmp_path / "home") == {"dev.known_hosts": 0o600}

    def test_a_user_without_a_key_gets_a_warning(self, hpc: Hpc, up: dict) -> None:
        up["config"] = {**STACK, "users": [{"name": "alice", "uid": 2001}]}
        assert "alice has no `keys` in the stack file" in hpc("ssh-config", "dev").err

    def test_an_unknown_user_is_refused(self, hpc: Hpc, up: dict, tmp_path: Path) -> None:
        assert "has no user 'carol'" in hpc("ssh-config", "dev", "-u", "carol").err
        assert not (tmp_path / "home/ssh").exists()


class TestAdminKey:
    def test_the_admin_key_is_written_with_admin_and_removed_without(self, hpc: Hpc, up: dict, tmp_path: Path) -> None:
        hpc("ssh-config", "dev", "--admin-key")
        config = tmp_path / "home/ssh/dev.conf"
        assert files(tmp_path / "home") == {"dev.conf": 0o600, "dev.known_hosts": 0o600, "dev.key": 0o600}
        assert config.with_suffix(".key").read_text() == KEY
        options = resolved(config, "small-cpu-0")
        assert (options["user"], options["proxyjump"]) == ("root", "small-controller")
        assert options["identityfile"] == str(config.with_suffix(".key"))
        before = config.read_text()
        hpc("ssh-config", "dev", "--admin-key")
        assert config.read_text() == before
        hpc("ssh-config", "dev")
        assert not config.with_suffix(".key").exists()

    @pytest.mark.parametrize("words", [["--as", "root"], ["--as", "alice", "--admin-key"]], ids=" ".join)
    def test_the_admin_key_is_readable_by_its_owner_only(
        self, hpc: Hpc, up: dict, tmp_path: Path, words: list[str]
    ) -> None:
        ended = hpc("ssh-config", "dev", *words)
        assert ended.code == 1
        assert "use --admin-key" in ended.err
        assert not (tmp_path / "home/ssh").exists()


def test_destroy_removes_the_files(hpc: Hpc, up: dict, tmp_path: Path) -> None:
    hpc("ssh-config", "dev", "--admin-key")
    assert hpc("destroy", "dev", "--engine", "embedded").code == 0
    assert files(tmp_path / "home") == {}


class TestHostileOutputs:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("address", "10.0.0.1\n  ProxyCommand touch pwned"),
            ("address", "-oProxyCommand=touch pwned"),
            ("address", "a b"),
            ("instance", "x; touch pwned"),
            ("project", "$(touch pwned)"),
            ("host_key", "ssh-ed25519 AAA\nsmall-controller ssh-ed25519 BBB"),
            ("host_key", "@cert-authority * ssh-ed25519 AAA"),
        ],
    )
    def test_an_address_that_is_not_one_word_is_refused(
        self, hpc: Hpc, up: dict, tmp_path: Path, field: str, value: str
    ) -> None:
        up["targets"]["small-login-0"][field] = value
        ended = hpc("ssh-config", "dev")
        assert ended.code == 1
        assert "which is no name or address" in ended.err or "is no public SSH host key" in ended.err
        assert not (tmp_path / "home/ssh/dev.conf").exists()

    def test_a_name_that_is_not_one_word_is_refused(self) -> None:
        with pytest.raises(CliError, match="no name"):
            ssh.route_options(Target(name="x\nHost *", method="ssh", address="10.0.0.1"))

    def test_the_path_of_the_state_dir_is_quoted(
        self, hpc: Hpc, up: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = tmp_path / "my state %h #1"
        monkeypatch.setenv("HPC_HOME", str(home))
        hpc("ssh-config", "dev", "--admin-key")
        options = resolved(home / "ssh/dev.conf", "dev")
        assert options["identityfile"].replace("%%", "%") == str(home / "ssh/dev.key")
        with pytest.raises(CliError, match="can hold no quote"):
            ssh.quoted(Path('a"b'))


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh")
def test_an_unknown_connection_method_lists_the_known_ones(hpc: Hpc, up: dict) -> None:
    up["targets"]["small-login-0"]["method"] = "carrier-pigeon"
    assert (
        "is reached by 'carrier-pigeon', and this version can use ssh, iap, kubectl only"
        in hpc("ssh-config", "dev").err
    )
