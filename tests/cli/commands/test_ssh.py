"""`run` and `ssh`: the machine, the user, pinned host keys, private keys, and signals."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.access.remote import run as run_remote
from cli.cluster.cluster import from_outputs
from cli.errors import CliError
from cli.interrupts import exit_on_termination, run_child
from tests.cli.conftest import FAKE_SSH, KEY, OUTPUTS, Hpc, Tool, recorded
from tests.waiting import PATIENCE, lives, wait_for


@pytest.fixture
def log(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of an `ssh` that ends with exit code 7."""
    tool("ssh", FAKE_SSH)
    path = tmp_path / "log"
    monkeypatch.setenv("LOG", str(path))
    return path


@pytest.mark.usefixtures("up")
class TestCommands:
    def test_run_is_as_the_first_user_on_the_login_machine(self, hpc: Hpc, log: Path) -> None:
        ended = hpc("run", "dev", "--", "srun", "-N2", "-l", "echo", "a b")
        assert ended.code == 7
        words = recorded(log, "word")
        assert words[-2:] == ["dev-login-0", """exec runuser -l alice -c 'srun -N2 -l echo '"'"'a b'"'"''"""]
        assert "-T" in words

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("run dev --as bob --login controller -- id", ["dev-controller", "exec runuser -l bob -c id"]),
            ("ssh dev cpu-0 -- journalctl -u slurmd", ["dev-cpu-0", "journalctl -u slurmd"]),
            ("ssh dev", ["dev-login-0"]),
            ("ssh dev -- sh -c 'a; b' --", ["dev-login-0", "sh -c 'a; b' --"]),
            ("ssh dev cpu-0 --as bob uptime -- -p", ["dev-cpu-0", "exec runuser -l bob -c 'uptime -p'"]),
        ],
    )
    def test_machine_user_and_command_are_read_from_the_command_line(
        self, hpc: Hpc, log: Path, line: str, words: list[str]
    ) -> None:
        hpc(*shlex.split(line))
        assert recorded(log, "word")[-len(words) :] == words

    def test_the_host_key_is_pinned_and_the_admin_key_is_private(self, hpc: Hpc, log: Path) -> None:
        hpc("ssh", "dev", "controller")
        options = recorded(log, "option")
        assert {"StrictHostKeyChecking yes", "HostKeyAlias dev-controller", "HostName 10.77.0.2"} <= set(options)
        assert recorded(log, "known") == ["dev-controller ssh-ed25519 AAA1"]
        assert "\n".join(recorded(log, "key")) + "\n" == KEY
        assert recorded(log, "mode") == ["600", "700"]

    def test_a_machine_that_does_not_answer_is_named_with_its_address(
        self, hpc: Hpc, tool: Tool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(_address: tuple[str, int], **_options: object) -> None:
            raise ConnectionRefusedError

        tool("ssh", "exit 255")
        monkeypatch.setattr("socket.create_connection", refused)
        ended = hpc("ssh", "dev", "controller")
        assert ended.code == 255
        assert ended.err.startswith("dev-controller (10.77.0.2) does not answer.")

    def test_an_unknown_machine_or_user_is_refused(self, hpc: Hpc, log: Path) -> None:
        assert "no machine 'contoller'. Did you mean dev-controller?" in hpc("ssh", "dev", "contoller").error
        ended = hpc("run", "dev", "--as", "carol", "--", "id")
        assert ended.err == "error: cluster dev has no user 'carol'. There are: alice, bob, root.\n"
        assert not log.exists()

    def test_no_key_stays_on_disk_without_memfd(
        self, hpc: Hpc, log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr("scripts.hostfiles.PARENT", tmp_path)
        before = set(tmp_path.iterdir())
        hpc("ssh", "dev", "controller")
        assert "\n".join(recorded(log, "key")) + "\n" == KEY
        assert recorded(log, "mode") == ["600", "700"]
        assert set(tmp_path.iterdir()) - before == {log}


class TestStreams:
    def test_standard_input_is_passed_to_the_command(self, log: Path, tmp_path: Path) -> None:
        with start_run("dev-login-0", stdin=subprocess.PIPE) as process:
            process.communicate(b"#!/bin/sh\nsrun hostname\n", timeout=300)
            assert process.returncode == 7
        assert recorded(log, "input") == ["#!/bin/sh", "srun hostname"]

    def test_sigterm_ends_ssh(self, tool: Tool, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        tool("ssh", f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 60")
        with start_run("dev-login-0", stdin=subprocess.DEVNULL) as process:
            wait_for(pid.exists)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        assert not lives(int(pid.read_text()))

    def test_sigterm_ends_a_child_that_has_just_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        started: list[subprocess.Popen[bytes]] = []

        def start(command: list[str], *, stderr: int | None) -> "subprocess.Popen[bytes]":
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr))
            signal.raise_signal(signal.SIGTERM)  # before `run_child` has the process
            return started[0]

        monkeypatch.setattr("cli.interrupts.subprocess", SimpleNamespace(Popen=start))
        with (
            pytest.raises(SystemExit) as ended,
            exit_on_termination(),
            run_child(["sleep", "60"]),
        ):
            pytest.fail("the signal was ignored")
        assert ended.value.code == 128 + signal.SIGTERM
        assert started[0].returncode == -signal.SIGTERM


def start_run(machine: str, *, stdin: int) -> "subprocess.Popen[bytes]":
    """Start a process that runs a command on a machine as `./hpc run` does."""
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from cli.cluster.cluster import from_outputs; from cli.access.remote import run\n"
        "cluster = from_outputs('dev', json.loads(sys.argv[2]))\n"
        "sys.exit(run(cluster.target(sys.argv[3]), cluster.admin_key, 'alice', ['sbatch']))\n"
    )
    root = str(Path(__file__).parents[3])
    return subprocess.Popen([sys.executable, "-c", program, root, json.dumps(OUTPUTS), machine], stdin=stdin)


def test_without_ssh_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = from_outputs("dev", OUTPUTS)
    with pytest.raises(CliError, match="openssh-client"):
        run_remote(cluster.target(None), cluster.admin_key, "alice", ["id"])
