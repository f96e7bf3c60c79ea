"""Connections for real: SSH servers with host keys of their own behind a login machine and behind a gcloud that relays,
the ssh_config of users, and the tunnels of the program."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulumi
import pytest

from cli.access import remote
from cli.cluster import user_config
from cli.cluster.cluster import Cluster, from_outputs
from cluster.platforms.gcp import iap
from components.gcp import access
from engine import Workspace
from tests import programs
from tests.gcp.servers import Cloud, SshServer, answers, free_port
from tests.waiting import PATIENCE, wait_for

INSTANCE = iap.InstanceName(name="small-controller", project="my-project", zone="us-central1-a")
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
        keys_file = tmp_path / "reported-keys"
        keys_file.write_text(json.dumps(keys))
        monkeypatch.setattr("cli.access.ssh._HOST_KEYS", f"test $SSHD = target && cat {keys_file}")

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
        cloud.set(ports={INSTANCE.name: servers["target"].at})
        board({"small-cpu-0": servers["node"].host_key})
        found = ask(entered(proxied=True), "controller", "cpu-0")
        assert found == {"controller": (0, "target\n"), "cpu-0": (0, "node\n")}
        assert len(cloud.calls) == 2, "one for the controller itself, one for all that lie behind it"

    def test_a_failed_tunnel_is_reported_with_what_to_do(self, entered: Callable[..., Cluster], cloud: Cloud) -> None:
        cloud.set(mood="booting", boots=9)
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
        files = user_config.StackFiles("small")

        def write(of: Cluster = cluster) -> Path:
            text, left_out = user_config.render(of, files, user="root", admin=True, nodes=False)
            assert left_out == {}
            user_config.write(files.config, text)
            return files.config

        yield write
        for name in cluster.targets:
            subprocess.run(["ssh", "-F", files.config, "-O", "exit", name], capture_output=True, check=False)


def ssh(config: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return programs.run(["ssh", "-F", str(config), *words], stdin=subprocess.DEVNULL)


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


ROOT = Path(__file__).parents[2]
PROGRAM = """
import pulumi
from pulumi_command import remote
from components.gcp.access import Access
from components.machine import Machine
from cluster.roster import machines
from cluster.load import parse

config = parse(CONFIG)
access = Access(config)
spec = machines(config)[0]
identity = pulumi.Output.from_input("1")
key = pulumi.Output.from_input(HOST_KEY)
machine_access = access.machine_access(
    spec, address="172.16.0.2", public=None, instance_id=identity, name=spec.name, host_key=key,
)
machine = Machine(
    spec=spec, address="172.16.0.2", instance_id=identity, boot_id=identity, resource=None, host_key=key,
    access=machine_access,
)
done = remote.Command("c", connection=machine.connection(KEY), create="echo $SSHD >>LOG; tail -n 1 LOG")
pulumi.export("out", done.stdout)
"""


class TestTunnels:
    @pytest.fixture
    def port(self, servers: dict, cloud: Cloud) -> int:
        """Where a tunnel to the target shall begin."""
        cloud.set(ports={INSTANCE.name: servers["target"].at})
        return free_port()

    def test_a_remote_command_runs_through_the_tunnel_once(
        self, tmp_path: Path, folder: Path, servers: dict, cloud: Cloud, port: int
    ) -> None:
        project, log = tmp_path / "project", tmp_path / "log"
        project.mkdir()
        (project / "Pulumi.yaml").write_text("name: servers\nruntime: python\n")
        settings = {
            "gcp:project": INSTANCE.project, "gcp:zone": INSTANCE.zone,
            "hpc:cluster": {
                "platform": "gcp", "name": "small", "nodesets": {"cpu": {"count": 1}},
                "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
            },
        }  # fmt: skip
        values = {
            "CONFIG": repr(settings), "HOST_KEY": repr(servers["target"].host_key), "LOG": str(log),
            "connection(KEY)": f"connection({(folder / 'user').read_text()!r})",
        }  # fmt: skip
        text = PROGRAM
        for name, value in values.items():
            text = text.replace(name, value)
        (project / "__main__.py").write_text(text)
        stack = Workspace(project, backend=f"file://{tmp_path}/state", passphrase=lambda: "x").stack("dev")
        events: list[Any] = []
        first = stack.up(events.append)
        assert first.ok, [failure.message for failure in first.failures]
        assert first.outputs == {"out": "target"}
        access.end_all()
        wait_for(lambda: not cloud.running, "the end of gcloud")
        before = len(cloud.calls)
        assert stack.preview(events.append).summary == "nothing to do"
        assert len(cloud.calls) == before, "a preview opened a tunnel"
        assert stack.up(events.append).summary == "nothing to do"
        assert log.read_text().split() == ["target"]

    def test_a_tunnel_is_opened_once_and_reopened_when_gcloud_ends(
        self, cloud: Cloud, port: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        for _ in range(2):
            access.keep_open(INSTANCE, port, seconds=300)
        assert len(cloud.calls) == 1
        os.kill(cloud.running[0], signal.SIGKILL)
        wait_for(lambda: len(cloud.calls) == 2 and answers("127.0.0.1", port), "another tunnel")
        assert f"{INSTANCE.name}: the tunnel to it ended and is opened again" in capfd.readouterr().err

    def test_a_booting_machine_is_retried(self, cloud: Cloud, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access, "_PAUSE_SECONDS", 0.1)
        behaviour = json.loads(cloud.file.read_text())
        cloud.set(**{**behaviour, "mood": "booting", "boots": 1})
        access.keep_open(INSTANCE, port, seconds=300)
        assert len(cloud.calls) == 2
        access.end_all()
        cloud.set(mood="booting", boots=100)
        with pytest.raises(pulumi.RunError, match=r"does not reach its SSH server\."):
            access.keep_open(INSTANCE, free_port(), seconds=0.3)

    @pytest.mark.parametrize(("mood", "todo"), [("login", "gcloud auth login"), ("denied", iap.ROLE)])
    def test_permanent_errors_are_reported_at_once(self, cloud: Cloud, port: int, mood: str, todo: str) -> None:
        cloud.set(mood=mood)
        with pytest.raises(pulumi.RunError, match=todo):
            access.keep_open(INSTANCE, port, seconds=300)
        assert len(cloud.calls) == 1

    def test_a_port_in_use_is_refused(self, cloud: Cloud, port: int) -> None:
        with socket.create_server(("127.0.0.1", port)), pytest.raises(pulumi.RunError, match=f"port {port} .* in use"):
            access.keep_open(INSTANCE, port, seconds=300)
        assert cloud.calls == []

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_no_process_outlives_a_killed_program(self, cloud: Cloud, port: int, number: int) -> None:
        text = (
            "import sys, time; from cluster.platforms.gcp import iap; from components.gcp import access\n"
            f"access.keep_open(iap.{INSTANCE!r}, {port}, seconds=300); print('open', flush=True); time.sleep(600)\n"
        )
        with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            assert len(cloud.running) == 1
            process.send_signal(number)
            assert process.wait(PATIENCE) == -number
        wait_for(lambda: not cloud.running and not answers("127.0.0.1", port), "the end of the tunnel")
