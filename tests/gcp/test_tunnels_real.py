"""Tunnels of the program for real: through a gcloud that relays, to SSH servers on the loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest

from cluster.platforms.gcp import iap
from components.gcp import access
from engine import Workspace
from tests.gcp.servers import Cloud, answers, free_port
from tests.waiting import PATIENCE, wait_for

ROOT = Path(__file__).parents[2]
INSTANCE = iap.Instance(name="small-controller", project="my-project", zone="us-central1-a")
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
reach = access.reach(
    spec, address="172.16.0.2", public=None, instance_id=identity, name=spec.name, host_key=key,
)
machine = Machine(
    spec=spec, address="172.16.0.2", instance_id=identity, boot_id=identity, resource=None, host_key=key, access=reach,
)
done = remote.Command("c", connection=machine.connection(KEY), create="echo $SSHD >>LOG; tail -n 1 LOG")
pulumi.export("out", done.stdout)
"""

pytestmark = pytest.mark.e2e


class TestTunnels:
    @pytest.fixture
    def port(self, servers: dict, cloud: Cloud) -> int:
        """Where a tunnel to the target shall begin."""
        cloud.tell(ports={INSTANCE.name: servers["target"].at})
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
        told = json.loads(cloud.file.read_text())
        cloud.tell(**{**told, "mood": "booting", "boots": 1})
        access.keep_open(INSTANCE, port, seconds=300)
        assert len(cloud.calls) == 2
        access.end_all()
        cloud.tell(mood="booting", boots=100)
        with pytest.raises(pulumi.RunError, match=r"does not reach its SSH server\."):
            access.keep_open(INSTANCE, free_port(), seconds=0.3)

    @pytest.mark.parametrize(("mood", "todo"), [("login", "gcloud auth login"), ("denied", iap.ROLE)])
    def test_permanent_errors_are_reported_at_once(self, cloud: Cloud, port: int, mood: str, todo: str) -> None:
        cloud.tell(mood=mood)
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
