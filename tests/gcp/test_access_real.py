"""Access for real: SSH servers with host keys of their own behind a login machine, and behind a gcloud that relays."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.access import remote
from cli.cluster.cluster import Cluster, from_outputs
from cluster.platforms.gcp import iap
from tests.gcp.servers import Cloud, SshServer
from tests.waiting import PATIENCE, wait_for

INSTANCE = iap.Instance(name="small-controller", project="my-project", zone="us-central1-a")
pytestmark = pytest.mark.e2e


@pytest.fixture
def entered(folder: Path, servers: dict[str, SshServer], cloud: Cloud) -> Callable[..., Cluster]:
    """Makes the cluster as its outputs describe it, with these differences in rows."""

    def make(*, proxied: bool = False, **other: dict[str, Any]) -> Cluster:
        through: dict[str, Any] = {"method": "ssh", "jump": "small-login-0"}
        if proxied:
            through = {"method": "iap", "instance": INSTANCE.name, "project": INSTANCE.project, "zone": INSTANCE.zone}
        rows = {
            "small-login-0": {"method": "ssh", "roles": ["login"], **found(servers["jump"])},
            "small-controller": {"roles": ["controller"], **found(servers["target"]), **through},
            "small-cpu-0": {
                "method": "ssh",
                "roles": ["node"],
                **found(servers["node"]),
                "host_key": "",
                "jump": "small-controller",
            },
        }
        for name, changes in other.items():
            rows[f"small-{name}"] |= changes
        key = (folder / "user").read_text()
        outputs = {"cluster": "small", "targets": rows, "admin_key": key, "users": [], "login": "small-login-0"}
        return from_outputs("small", outputs)

    return make


def found(door: SshServer) -> dict[str, Any]:
    """Return what the outputs have of where a machine is. It listens at another port than 22, which may be taken
    here."""
    return {"address": door.address, "port": door.port, "host_key": door.host_key}


def ask(cluster: Cluster, *names: str, line: str = "echo $SSHD") -> dict[str, tuple[int, str]]:
    """Exit code and words of a line on these machines."""
    asked = [cluster.targets[f"small-{name}"] for name in names]
    answers = remote.gather(asked, cluster.admin_key, line, seconds=PATIENCE, connect_seconds=PATIENCE)
    return {name.removeprefix("small-"): (done.code, done.out + done.err) for name, done in answers.items()}


def masters(pid: int) -> list[str]:
    """The connections that a process has opened to machines that lead to others."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes().decode(errors="replace"))
    return [line for line in found if f"hpc-ssh-{pid}-" in line and "ControlMaster" in line]


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, str]], None]:
    """Has the controller tell these host keys of nodes, as its set-up does."""

    def tell(keys: dict[str, str]) -> None:
        told = tmp_path / "told-keys"
        told.write_text(json.dumps(keys))
        monkeypatch.setattr("cli.access.ssh._HOST_KEYS", f"test $SSHD = target && cat {told}")

    return tell


class TestThroughALoginMachine:
    def test_each_machine_answers(self, entered: Callable[..., Cluster]) -> None:
        found = ask(entered(), "login-0", "controller")
        assert found == {"login-0": (0, "jump\n"), "controller": (0, "target\n")}

    def test_another_key_of_the_machine_is_refused(self, entered: Callable[..., Cluster], servers: dict) -> None:
        code, words = ask(entered(controller={"host_key": servers["jump"].host_key}), "controller")["controller"]
        assert code == remote.UNREACHED
        assert "Host key verification failed" in words

    def test_another_key_of_the_login_machine_is_refused(self, entered: Callable[..., Cluster], servers: dict) -> None:
        found = ask(entered(**{"login-0": {"host_key": servers["target"].host_key}}), "controller", "cpu-0")
        assert {code for code, _ in found.values()} == {remote.UNREACHED}
        assert found["controller"][1] == "jump host small-login-0: Host key verification failed."
        assert found["cpu-0"] == found["controller"]

    def test_commands_share_one_connection_which_is_closed(self, entered: Callable[..., Cluster]) -> None:
        cluster = entered()
        machine = cluster.targets["small-controller"]
        with remote.connect([machine], cluster.admin_key) as argv:
            came = [
                subprocess.Popen(
                    argv(machine, "echo $SSHD; exec cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                for _ in range(3)
            ]
            firsts = [process.stdout.readline() for process in came if process.stdout]
            for process in came:
                process.communicate()
        assert firsts == ["target\n"] * 3
        assert list(Path("/tmp").glob(f"hpc-ssh-{os.getpid()}-*")) == []  # noqa: S108

    def test_no_connection_outlives_a_killed_command(self, entered: Callable[..., Cluster]) -> None:
        cluster = entered()
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            with remote.connect([cluster.targets["small-controller"]], cluster.admin_key):
                os.write(writing, b"open")
                signal.pause()
        os.close(writing)
        try:
            assert os.read(reading, 4) == b"open"
            assert masters(pid)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(reading)
        wait_for(lambda: not masters(pid), "the end of the connection")

    def test_a_machine_that_is_down_is_distinguished_from_its_jump_host(self, entered: Callable[..., Cluster]) -> None:
        code, words = ask(entered(controller={"address": "127.85.0.9"}), "controller")["controller"]
        assert code == remote.UNREACHED
        assert words == "small-login-0 gets no connection to it at 127.85.0.9"


class TestNodes:
    def test_the_host_key_that_a_node_reported_is_pinned(
        self, entered: Callable[..., Cluster], board: Callable, servers: dict
    ) -> None:
        board({"small-cpu-0": servers["node"].host_key})
        assert ask(entered(), "cpu-0") == {"cpu-0": (0, "node\n")}
        board({"small-cpu-0": servers["jump"].host_key})
        code, words = ask(entered(), "cpu-0")["cpu-0"]
        assert code == remote.UNREACHED
        assert "Host key verification failed" in words

    def test_a_node_without_a_reported_host_key_is_refused(
        self, entered: Callable[..., Cluster], board: Callable
    ) -> None:
        board({})
        assert ask(entered(), "cpu-0")["cpu-0"] == (
            remote.UNREACHED,
            "its host key is not known: it has not published one, so it has not joined",
        )


class TestThroughGoogle:
    def test_machines_and_nodes_behind_them(
        self, entered: Callable[..., Cluster], cloud: Cloud, board: Callable, servers: dict
    ) -> None:
        cloud.tell(ports={INSTANCE.name: servers["target"].at})
        board({"small-cpu-0": servers["node"].host_key})
        found = ask(entered(proxied=True), "controller", "cpu-0")
        assert found == {"controller": (0, "target\n"), "cpu-0": (0, "node\n")}
        assert len(cloud.calls) == 2, "one for the controller itself, one for all that lie behind it"

    def test_a_failed_tunnel_is_reported_with_what_to_do(self, entered: Callable[..., Cluster], cloud: Cloud) -> None:
        cloud.tell(mood="booting", boots=9)
        code, words = ask(entered(proxied=True), "controller")["controller"]
        assert code == remote.UNREACHED
        assert iap.SOURCES in words

    def test_without_gcloud_the_message_names_it(
        self, entered: Callable[..., Cluster], cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        cluster, alone = entered(proxied=True), tmp_path / "alone"
        alone.mkdir()
        for name in ("ssh", "sh"):
            (alone / name).symlink_to(str(shutil.which(name)))
        monkeypatch.setenv("PATH", str(alone))
        code, words = ask(cluster, "controller")["controller"]
        assert code == remote.UNREACHED
        assert words.startswith("there is no gcloud here")
