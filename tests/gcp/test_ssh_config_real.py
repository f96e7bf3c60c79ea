"""The ssh_config that users get, with their programs: ssh, scp and rsync through a jump host, and keys that changed."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.cluster import user_config
from cli.cluster.cluster import Cluster, from_outputs
from tests.gcp.servers import SshServer

pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster(folder: Path, servers: dict[str, SshServer]) -> Cluster:
    """A controller behind a login machine."""
    rows = {
        name: {
            "method": "ssh", "roles": [role], "address": door.address, "port": door.port, "host_key": door.host_key,
            "jump": jump,
        }
        for name, role, door, jump in (
            ("small-login-0", "login", servers["jump"], None),
            ("small-controller", "controller", servers["target"], "small-login-0"),
        )
    }  # fmt: skip
    key = (folder / "user").read_text()
    return from_outputs("small", {"targets": rows, "admin_key": key, "login": "small-login-0"})


@pytest.fixture
def written(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Writes the ssh_config with the admin key; in a folder whose path is short enough for a shared connection."""
    with tempfile.TemporaryDirectory(prefix="hpc-test-", dir="/tmp") as home:
        monkeypatch.setenv("HPC_HOME", home)
        files = user_config.Files("small")

        def write(of: Cluster = cluster) -> Path:
            text, left_out = user_config.render(of, files, user="root", admin=True, nodes=False)
            assert left_out == {}
            user_config.write(files.config, text)
            return files.config

        yield write
        for name in cluster.targets:
            subprocess.run(["ssh", "-F", files.config, "-O", "exit", name], capture_output=True, check=False)


def ssh(config: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["ssh", "-F", str(config), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_machines_answer_by_their_names_and_the_stacks(written: Callable[..., Path]) -> None:
    config = written()
    assert [ssh(config, name, "echo $SSHD").stdout for name in ("small", "small-controller")] == ["jump\n", "target\n"]


def test_scp_and_rsync_go_through_the_jump_host(written: Callable[..., Path], tmp_path: Path) -> None:
    config, given = written(), tmp_path / "a file"
    given.write_text("some text")
    copy = ["scp", "-q", "-F", str(config), str(given), f"small-controller:{tmp_path}/copied"]
    subprocess.run(copy, check=True, capture_output=True)
    assert (tmp_path / "copied").read_text() == "some text"
    if shutil.which("rsync"):
        sync = ["rsync", "-e", f"ssh -F {config}", str(given), f"small-controller:{tmp_path}/synced"]
        subprocess.run(sync, check=True, capture_output=True)
        assert (tmp_path / "synced").read_text() == "some text"


@pytest.mark.parametrize("changed", ["small-login-0", "small-controller"])
def test_a_changed_host_key_is_refused(written: Callable[..., Path], folder: Path, changed: str) -> None:
    config = written()
    pinned = config.with_suffix(".known_hosts")
    other = (folder / "node.pub").read_text().split()[1]
    lines = [line.split() for line in pinned.read_text().splitlines()]
    pinned.write_text("".join(f"{name} {kind} {other if name == changed else key}\n" for name, kind, key in lines))
    done = ssh(config, "small-controller", "echo $SSHD")
    assert (done.returncode, done.stdout) == (255, "")
    assert "Host key verification failed" in done.stderr
