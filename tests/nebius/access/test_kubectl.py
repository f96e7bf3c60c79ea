"""`run` and `ssh` through kubectl exec: where, as whom, with which words, and how it ends."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from cli.access.kubectl import KubectlDriver, jail_command
from cli.access.remote import UNREACHED, gather
from cli.access.ssh import shell_line
from cli.cluster.cluster import from_outputs
from tests.cli.access.test_shell_line import WORDS, machine
from tests.nebius.access.conftest import OUTPUTS, TOKEN, Hpc, calls

__all__ = ["machine"]
Made = Callable[[str], Path]
INSIDE = ["env", "-i", "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash"]


def executed(log: Path) -> tuple[list[str], list[str]]:
    """Options and command of the only call."""
    (words,) = calls(log)
    return words[: words.index("--")], words[words.index("--") + 1 :]


@pytest.mark.usefixtures("up")
class TestWhere:
    def test_run_is_the_first_user_in_the_jail_of_the_login_pod(self, hpc: Hpc, kubectl: Made) -> None:
        log = kubectl("exit 0")
        assert hpc("run", "nebius", "--", "srun", "-N2", "-l", "echo", "a b").code == 0
        options, command = executed(log)
        assert options == ["exec", "login-0", "--namespace", "soperator", "--container", "sshd", "--stdin"]
        assert command[:8] == ["chroot", "/mnt/jail", *INSIDE]
        line = "exec runuser -l alice -c " + shlex.quote("srun -N2 -l echo 'a b'")
        assert command[-3:] == ["/bin/bash", "-c", f"cd 2>/dev/null; {line}"]

    def test_the_controller_is_its_container_itself(self, hpc: Hpc, kubectl: Made) -> None:
        for name in ("controller", "controller-0"):
            log = kubectl("exit 0")
            hpc("ssh", "nebius", name, "--", "scontrol", "ping")
            options, command = executed(log)
            assert options[1:6:4] == ["controller-0", "slurmctld"]
            assert command[:6] == INSIDE
            assert command[-1] == "cd 2>/dev/null; scontrol ping"
            log.unlink()

    def test_a_worker_without_a_command_is_roots_login_shell(self, hpc: Hpc, kubectl: Made) -> None:
        log = kubectl("exit 0")
        hpc("ssh", "nebius", "worker-1")
        options, command = executed(log)
        assert (options[1], command[-1]) == ("worker-1", "cd 2>/dev/null; exec /bin/bash -l")

    def test_the_kubeconfig_is_private_and_gone_afterwards(self, hpc: Hpc, kubectl: Made, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        kubectl(f'stat -c "%a %n" "$config" "${{config%/*}}" >{kept}; cat "$config" >>{kept}')
        assert hpc("run", "nebius", "--", "true").code == 0
        file, folder, *text = kept.read_text().splitlines()
        assert (file.split()[0], folder.split()[0]) == ("600", "700")
        assert not Path(folder.split()[1]).exists()
        document = json.loads("\n".join(text))
        assert document["clusters"][0]["cluster"]["server"] == "https://203.0.113.7:443"
        exec_ = document["users"][0]["user"]["exec"]
        assert [exec_["command"], *exec_["args"]] == TOKEN


@pytest.mark.usefixtures("up")
class TestEnds:
    @pytest.mark.parametrize("code", [0, 1, 2, 7, 137])
    def test_the_exit_code_and_the_errors_are_the_commands_own(self, hpc: Hpc, kubectl: Made, code: int) -> None:
        end = f"echo 'command terminated with exit code {code}' >&2; exit {code}" if code else ""
        kubectl(f"echo out; echo 'error: its own' >&2; {end}")
        ended = hpc("run", "nebius", "--", "job")
        assert (ended.code, ended.out, ended.err) == (code, "out\n", "error: its own\n")

    def test_a_command_that_prints_the_same_line_is_not_taken_for_it(self, hpc: Hpc, kubectl: Made) -> None:
        line = "command terminated with exit code 3"
        kubectl(f"echo '{line}' >&2; echo '{line}' >&2; exit 3")
        ended = hpc("run", "nebius", "--", "job")
        assert (ended.code, ended.err) == (3, f"{line}\n")

    @pytest.mark.parametrize("code", [1, 3])
    @pytest.mark.parametrize("pause", ["", "sleep 0.2; "])
    def test_last_words_without_a_line_break_are_the_commands_own(
        self, hpc: Hpc, kubectl: Made, code: int, pause: str
    ) -> None:
        kubectl(
            f"printf 'error: a\\nName? ' >&2; {pause}echo 'command terminated with exit code {code}' >&2; exit {code}"
        )
        ended = hpc("run", "nebius", "--", "job")
        assert (ended.code, ended.err) == (code, "error: a\nName? ")
        answers = gather(from_outputs("nebius", OUTPUTS).targets.values(), "", "job", seconds=300)
        assert {(done.code, done.err) for done in answers.values()} == {(code, "error: a\nName? ")}

    def test_an_unreached_pod_is_255_with_the_reason(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl("echo 'Error from server (NotFound): pods \"login-0\" not found' >&2; exit 1")
        ended = hpc("run", "nebius", "--", "job")
        assert (ended.code, ended.out) == (UNREACHED, "")
        assert ended.err == "login-0 does not answer: there is no pod login-0\n"

    def test_255_of_the_commands_own_is_passed_on_in_silence(self, hpc: Hpc, kubectl: Made) -> None:
        # The second call is the question whether the pod answers.
        kubectl('case "$*" in *"; true") exit 0;; *) echo "command terminated with exit code 255" >&2; exit 255;; esac')
        ended = hpc("run", "nebius", "--", "job")
        assert (ended.code, ended.err) == (255, "")

    def test_progress_without_a_line_break_is_printed_as_it_comes(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl("printf 'half a line' >&2; printf ' and more\\rover' >&2; exit 0")
        assert hpc("run", "nebius", "--", "job").err == "half a line and more\rover"

    def test_input_goes_through(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl("cat; exit 0")
        answers = gather(from_outputs("nebius", OUTPUTS).targets.values(), "", "cat", stdin="given", seconds=300)
        assert {name: done.out for name, done in answers.items()} == dict.fromkeys(OUTPUTS["targets"], "given")

    def test_one_that_hangs_is_given_up_and_the_others_are_heard(
        self, kubectl: Made, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cli.access.kubectl._START_SECONDS", 0)
        kubectl('case "$2" in worker-1) exec sleep 600;; *) echo here;; esac')
        answers = gather(from_outputs("nebius", OUTPUTS).targets.values(), "", "true", seconds=6)
        assert [name for name, done in answers.items() if not done.reached] == ["worker-1"]
        assert answers["worker-0"].out == "here\n"


@pytest.mark.usefixtures("up")
class TestMissing:
    def test_no_kubectl(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        ended = hpc("run", "nebius", "--", "true")
        assert ended.code == 1
        assert ended.err.startswith("error: there is no kubectl on PATH, which reaches the pods of a cluster.")

    def test_outputs_without_an_api_server(self, hpc: Hpc, kubectl: Made, up: dict[str, Any]) -> None:
        kubectl("exit 0")
        up["kubernetes"] = {"server": "x", "command": "nebius"}
        assert "has no certificate_authority, context, namespace, command" in hpc("run", "nebius", "--", "true").err


CLOSED = "127.0.0.1:1"
CREDENTIAL = json.dumps(
    {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "t"}}
)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            ["nebius", "mk8s"],
            "nebius is not on PATH, which gives kubectl its credential. Install it (https://docs.nebius.",
        ),
        (["/bin/sh", "-c", "echo expired >&2; exit 3"], "exit 3'` failed with exit code 3: expired"),
        (["/bin/echo", CREDENTIAL], f"The connection to the server {CLOSED} was refused"),
        (["/bin/echo", "no credential"], "getting credentials: decoding stdout"),
    ],
    ids=["no program", "failing program", "no server", "no credential"],
)
def test_the_real_kubectl_fails_in_words(
    hpc: Hpc, up: dict[str, Any], command: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    up["kubernetes"] |= {"server": CLOSED, "command": command, "namespace": "n"}
    certificate = Path("/etc/ssl/certs/ca-certificates.crt").read_text().split("-----END CERTIFICATE-----")[0]
    up["kubernetes"]["certificate_authority"] = f"{certificate}-----END CERTIFICATE-----\n"
    ended = hpc("run", "nebius", "--", "true")
    assert (ended.code, ended.out) == (UNREACHED, "")
    line = ended.err.splitlines()[-1]
    assert line.startswith("login-0 does not answer: "), ended.err
    assert reason in line


def test_an_expired_login_names_the_command_that_logs_in() -> None:
    target = from_outputs("nebius", OUTPUTS).target(None)
    for stderr in (
        "error: You must be logged in to the server (Unauthorized)\n",
        "Unable to connect to the server: getting credentials: exec: executable nebius failed with exit code 1\n",
    ):
        assert KubectlDriver.explain(target, stderr).endswith(". Log in with: nebius iam whoami")


@pytest.mark.parametrize("user", ["a user", "root"])
@settings(max_examples=40, deadline=None)
@given(words=WORDS)
def test_words_arrive_as_given_through_the_container(machine: Path, user: str, words: list[str]) -> None:
    line = shell_line(user, ["words", *words], terminal=False)
    command = jail_command("", line, terminal=False)
    command[command.index("/bin/bash") - 1] = f"PATH={machine}:{os.defpath}"
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


def test_only_a_terminal_has_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "TERM=xterm-256color" in jail_command("", "", terminal=True)
    assert not any(word.startswith("TERM") for word in jail_command("", "", terminal=False))
    monkeypatch.setenv("TERM", "x; rm -rf /")
    assert not any(word.startswith("TERM") for word in jail_command("", "", terminal=True))
