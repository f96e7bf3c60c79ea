"""`run` and `ssh`: the right machine, the right user, a pinned key, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import interrupts
from cli.access.remote import run as run_remote
from cli.cluster.cluster import from_outputs
from cli.errors import CliError
from tests.cli.conftest import Hpc, stand_for_state

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"
OUTPUTS: dict[str, Any] = {
    "cluster": "dev",
    "targets": {
        "dev-controller": {
            "method": "ssh",
            "address": "10.77.0.2",
            "roles": ["controller"],
            "host_key": "ssh-ed25519 AAA1\n",
        },
        "dev-login-0": {"method": "ssh", "address": "10.77.0.3", "roles": ["login"], "host_key": "ssh-ed25519 AAA2"},
        "dev-cpu-0": {"method": "ssh", "address": "10.77.2.0", "roles": ["node"], "host_key": "ssh-ed25519 AAA3"},
    },
    "admin_key": KEY,
    "users": ["alice", "bob"],
    "login": "dev-login-0",
}
FAKE_SSH = """\
{
    printf 'word %s\\n' "$@"
    sed 's/^ */option /' "$2"
    key=$(sed -n 's/^ *IdentityFile //p' "$2")
    printf 'mode %s\\n' "$(stat -Lc %a "$key")" "$(stat -c %a "${2%/*}")"
    sed 's/^/key /' "$key"
    sed 's/^/known /' "$(sed -n 's/^ *UserKnownHostsFile //p' "$2")"
    sed 's/^/input /'
} >"$LOG"
exit 7
"""


@pytest.fixture
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stack `dev` is up, as far as its outputs tell."""
    stand_for_state(monkeypatch, OUTPUTS)


@pytest.fixture
def log(tool: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an `ssh` that ends with exit code 7 was given."""
    tool("ssh", FAKE_SSH)
    path = tmp_path / "log"
    monkeypatch.setenv("LOG", str(path))
    return path


def said(log: Path, kind: str) -> list[str]:
    return [line.removeprefix(f"{kind} ") for line in log.read_text().splitlines() if line.startswith(f"{kind} ")]


@pytest.mark.usefixtures("up")
class TestCommands:
    def test_run_is_the_first_user_on_the_login_machine(self, hpc: Hpc, log: Path) -> None:
        ended = hpc("run", "dev", "--", "srun", "-N2", "-l", "echo", "a b")
        assert ended.code == 7
        words = said(log, "word")
        assert words[-2:] == ["dev-login-0", """exec runuser -l alice -c 'srun -N2 -l echo '"'"'a b'"'"''"""]
        assert "-T" in words

    def test_another_user_and_machine(self, hpc: Hpc, log: Path) -> None:
        hpc("run", "dev", "--as", "bob", "--login", "controller", "--", "id")
        assert said(log, "word")[-2:] == ["dev-controller", "exec runuser -l bob -c id"]

    def test_ssh_is_root_on_the_named_machine(self, hpc: Hpc, log: Path) -> None:
        hpc("ssh", "dev", "cpu-0", "--", "journalctl", "-u", "slurmd")
        assert said(log, "word")[-2:] == ["dev-cpu-0", "journalctl -u slurmd"]

    def test_ssh_alone_is_a_shell_on_the_login_machine(self, hpc: Hpc, log: Path) -> None:
        hpc("ssh", "dev")
        assert said(log, "word")[-1] == "dev-login-0"

    def test_ssh_takes_a_command_for_the_login_machine_too(self, hpc: Hpc, log: Path) -> None:
        hpc("ssh", "dev", "--", "sh", "-c", "a; b", "--")
        assert said(log, "word")[-2:] == ["dev-login-0", "sh -c 'a; b' --"]
        hpc("ssh", "dev", "cpu-0", "--as", "bob", "uptime", "--", "-p")
        assert said(log, "word")[-2:] == ["dev-cpu-0", "exec runuser -l bob -c 'uptime -p'"]

    def test_the_host_key_is_pinned_and_the_private_key_private(self, hpc: Hpc, log: Path) -> None:
        hpc("ssh", "dev", "controller")
        options = said(log, "option")
        assert {"StrictHostKeyChecking yes", "HostKeyAlias dev-controller", "HostName 10.77.0.2"} <= set(options)
        assert said(log, "known") == ["dev-controller ssh-ed25519 AAA1"]
        assert "\n".join(said(log, "key")) + "\n" == KEY
        assert said(log, "mode") == ["600", "700"]

    def test_a_machine_that_does_not_answer_is_named(
        self, hpc: Hpc, tool: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(_address: tuple[str, int], **_options: object) -> None:
            raise ConnectionRefusedError

        tool("ssh", "exit 255")
        monkeypatch.setattr("socket.create_connection", refused)
        ended = hpc("ssh", "dev", "controller")
        assert ended.code == 255
        assert ended.err.startswith("dev-controller (10.77.0.2) does not answer.")

    def test_an_unknown_machine_or_user_is_named_with_the_nearest(self, hpc: Hpc, log: Path) -> None:
        ended = hpc("ssh", "dev", "contoller")
        assert ended.code == 1
        assert "no machine 'contoller'. Did you mean dev-controller?" in ended.err
        ended = hpc("run", "dev", "--as", "carol", "--", "id")
        assert ended.err == "error: cluster dev has no user 'carol'. There are: alice, bob, root.\n"
        assert not log.exists()

    def test_no_key_stays_behind_where_files_in_memory_are_unknown(
        self, hpc: Hpc, log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr("engine.private.PARENT", tmp_path)
        before = set(tmp_path.iterdir())
        hpc("ssh", "dev", "controller")
        assert "\n".join(said(log, "key")) + "\n" == KEY
        assert said(log, "mode") == ["600", "700"]
        assert set(tmp_path.iterdir()) - before == {log}


class TestNames:
    @pytest.mark.parametrize("given", ["dev-cpu-0", "cpu-0", "cpu"])
    def test_with_or_without_the_clusters(self, given: str) -> None:
        assert from_outputs("dev", OUTPUTS).target(given).name == "dev-cpu-0"

    def test_a_stack_that_is_down_says_how_to_bring_it_up(self) -> None:
        with pytest.raises(CliError, match=r"^stack dev is not up\. Bring it up with: \./hpc up dev$"):
            from_outputs("dev", {})

    def test_a_half_made_stack_says_what_is_missing(self) -> None:
        with pytest.raises(CliError, match="no output admin_key"):
            from_outputs("dev", {key: value for key, value in OUTPUTS.items() if key != "admin_key"})

    def test_a_cluster_without_users_can_be_entered_as_root_only(self) -> None:
        cluster = from_outputs("dev", OUTPUTS | {"users": []})
        assert cluster.user("root") == "root"
        with pytest.raises(CliError, match="use --as root"):
            cluster.user(None)


class TestStreams:
    def test_input_passes_through(self, log: Path, tmp_path: Path) -> None:
        with child("dev-login-0", stdin=subprocess.PIPE) as process:
            process.communicate(b"#!/bin/sh\nsrun hostname\n", timeout=60)
            assert process.returncode == 7
        assert said(log, "input") == ["#!/bin/sh", "srun hostname"]

    def test_termination_ends_ssh_too(self, tool: Callable[[str, str], Path], tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        tool("ssh", f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 60")
        with child("dev-login-0", stdin=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not pid.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)

    def test_termination_ends_what_is_just_being_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        started: list[subprocess.Popen[bytes]] = []

        def start(command: list[str], *, stderr: int | None) -> "subprocess.Popen[bytes]":
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr))
            signal.raise_signal(signal.SIGTERM)  # nobody but us has seen it yet
            return started[0]

        monkeypatch.setattr("cli.interrupts.subprocess", SimpleNamespace(Popen=start))
        with pytest.raises(SystemExit) as ended, interrupts.unwound(), interrupts.child(["sleep", "60"]):
            pytest.fail("it went on")
        assert ended.value.code == 128 + signal.SIGTERM
        assert started[0].returncode == -signal.SIGTERM


def child(machine: str, *, stdin: int) -> "subprocess.Popen[bytes]":
    """A process that runs a command there as `./hpc run` does."""
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from cli.cluster.cluster import from_outputs; from cli.access.remote import run\n"
        "cluster = from_outputs('dev', json.loads(sys.argv[2]))\n"
        "sys.exit(run(cluster.target(sys.argv[3]), cluster.admin_key, 'alice', ['sbatch']))\n"
    )
    root = str(Path(__file__).parents[2])
    return subprocess.Popen([sys.executable, "-c", program, root, json.dumps(OUTPUTS), machine], stdin=stdin)


def test_without_ssh_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = from_outputs("dev", OUTPUTS)
    with pytest.raises(CliError, match="openssh-client"):
        run_remote(cluster.target(None), cluster.admin_key, "alice", ["id"])
