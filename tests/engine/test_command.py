"""Resources of pulumi-command: local commands, and remote commands and copies with a real sshd on the loopback."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import events
from tests.waiting import PATIENCE

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@dataclass
class Machine:
    """An sshd of our own: where it listens, what it shows, what opens it."""

    port: int
    host_key: str
    other_host_key: str
    private_key: str
    folder: Path

    def connection(self, **more):
        """The text of a connection, for a program."""
        given = {
            "host": "127.0.0.1", "port": self.port, "user": getpass.getuser(), "private_key": self.private_key,
            "host_key": self.host_key, "dial_error_limit": 1, **more,
        }  # fmt: skip
        return f"remote.ConnectionArgs(**{given!r})"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    if not Path(SSHD).exists():
        pytest.fail("no sshd here: apt install openssh-server (it need not run)")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "other", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    # sshd wants a folder that only root may write to, and its own to be there.
    Path("/run/sshd").mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {
        "ListenAddress": f"127.0.0.1:{port}", "HostKey": folder / "host", "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none", "StrictModes": "no", "UsePAM": "no", "AcceptEnv": "WORD PULUMI_COMMAND_STDOUT",
        "PermitRootLogin": "prohibit-password", "AllowTcpForwarding": "yes",
    }  # fmt: skip
    argv = [SSHD, "-D", "-e", "-f", "/dev/null", *(w for k, v in options.items() for w in ("-o", f"{k}={v}"))]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 300
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < limit, "sshd did not start"
            time.sleep(0.02)
    keys = {name: (folder / f"{name}.pub").read_text().strip() for name in ("host", "other")}
    yield Machine(port, keys["host"], keys["other"], (folder / "user").read_text(), folder)
    process.terminate()
    process.wait()


def local(create, **options):
    args = ", ".join(f"{k}={v!r}" for k, v in {"create": create, **options}.items())
    return (
        "import pulumi\nfrom pulumi_command import local\n"
        f"c = local.Command('c', {args})\npulumi.export('out', c.stdout)\n"
    )


def remote(machine, create, connection="", **options):
    args = ", ".join(f"{k}={v!r}" for k, v in {"create": create, **options}.items())
    return (
        "import pulumi\nfrom pulumi_command import remote\n"
        f"c = remote.Command('c', connection={connection or machine.connection()}, {args})\n"
        "pulumi.export('out', [c.stdout, c.stderr])\n"
    )


class TestLocal:
    def test_runs_create_then_update_then_delete(self, bench):
        words = {
            "update": "echo up $PULUMI_COMMAND_STDOUT | tee -a log",
            "delete": "echo down $PULUMI_COMMAND_STDOUT >> log",
        }
        bench.program(local("echo made | tee -a log", **words))
        assert bench.up().outputs == {"out": "made"}
        assert bench.up().summary == "nothing to do"
        bench.program(local("echo made | tee -a log", environment={"NEW": "1"}, **words))
        assert bench.up().outputs == {"out": "up made"}
        bench.run("destroy")
        assert (bench.root / "log").read_text().splitlines() == ["made", "up made", "down up made"]

    def test_triggers_replace_and_without_update_create_runs_again(self, bench):
        bench.program(local("echo x >> log", delete="echo gone >> log", triggers=[1]))
        bench.up()
        bench.program(local("echo x >> log", delete="echo gone >> log", triggers=[2]))
        bench.up()
        assert bench.planned() == {"c": "replace"}
        bench.program(local("echo y >> log", delete="echo gone >> log", triggers=[2]))
        bench.up()
        assert bench.planned() == {"c": "update"}
        assert (bench.root / "log").read_text().split() == ["x", "x", "gone", "y"]

    def test_stdin_environment_dir_interpreter_and_logging(self, bench):
        (bench.root / "sub").mkdir()
        given = {"stdin": "typed", "environment": {"A": "b c"}, "dir": "sub", "logging": "stderr"}
        bench.program(local("cat; echo; pwd; echo $A; echo seen >&2", **given))
        assert bench.up().outputs["out"].splitlines() == ["typed", str(bench.root / "sub"), "b c"]
        assert [log.message for log in bench.events_of(events.LogLine)] == ["seen"]
        bench.program(local("print(6 * 7)", interpreter=["python3", "-c"]))
        assert bench.up().outputs["out"] == "42"

    def test_a_failed_command_has_its_status_and_output_in_the_message(self, bench):
        bench.program(local("echo on the way; echo no good >&2; exit 3"))
        result = bench.up()
        assert not result.ok
        assert "exit status 3" in result.failures[0].message
        assert "no good" in result.failures[0].message

    def test_secrets_show_neither_in_lines_nor_in_errors(self, bench):
        bench.program(
            "import pulumi\nfrom pulumi_command import local\n"
            "word = pulumi.Output.secret('hush-hush')\n"
            "local.Command('c', create='echo it is $WORD; exit 3', environment={'WORD': word})\n"
        )
        result = bench.up()
        assert "it is [secret]" in result.failures[0].message
        assert [log.message for log in bench.events_of(events.LogLine)] == ["it is [secret]"]
        assert "hush-hush" not in repr(bench.events)

    def test_of_triggers_only_the_secret_element_is_secret_as_in_the_clis_state(self, bench):
        """The provider gets and returns secrets as such (AcceptSecrets in provider.go of pulumi-go-provider v1.3.0). To
        it a list that is secret as a whole differs from one with a secret element, which is a replacement."""
        bench.program(
            "import pulumi\nfrom pulumi_command import local\n"
            "local.Command('c', create='true', triggers=['seen', pulumi.Output.secret('hush-hush')])\n"
        )
        assert bench.up().ok
        for part in ("inputs", "outputs"):
            shown, hidden = bench.resources()["c"][part]["triggers"]
            assert shown == "seen"
            assert sorted(hidden) == ["4dabf18193072939515e22adb298388d", "ciphertext"]

    def test_custom_timeouts_end_a_command(self, bench):
        bench.program(
            "import pulumi\nfrom pulumi_command import local\n"
            "o = pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create='200ms'))\n"
            "local.Command('c', create='sleep 900', opts=o)\n"
        )
        result = bench.up()
        assert "0.2 s" in result.failures[0].message
        assert result.seconds < PATIENCE

    def test_run_output_runs_in_each_run_also_in_a_preview(self, bench):
        bench.program(
            "import pulumi\nfrom pulumi_command import local\n"
            "pulumi.export('out', local.run_output(command='echo again').stdout)\n"
        )
        assert bench.preview().outputs == {"out": "again"}


@pytest.mark.e2e
class TestRemote:
    def test_runs_over_ssh_with_the_pinned_key_and_streams_its_lines(self, bench, machine):
        words = {"update": "echo was $PULUMI_COMMAND_STDOUT", "delete": "true"}
        bench.program(remote(machine, "echo made; echo aside >&2", **words))
        assert bench.up().outputs == {"out": ["made", "aside"]}
        assert {(log.severity, log.message) for log in bench.events_of(events.LogLine)} == {
            ("info", "made"),
            ("info", "aside"),
        }
        # Neither keys nor sockets outlive the run.
        assert list(Path("/tmp").glob(f"pulumi-ssh-{os.getpid()}-*")) == []  # noqa: S108
        assert bench.up().summary == "nothing to do"
        bench.program(remote(machine, "echo other", **words))
        assert bench.up().outputs["out"][0] == "was made"
        assert bench.run("destroy").ok
        text = bench.stack().file.with_name("dev.json.bak").read_text()
        assert "PRIVATE KEY" not in text
        assert "PRIVATE KEY" not in repr(bench.events)

    def test_stdin_and_accepted_environment_arrive_and_refused_environment_is_an_error(self, bench, machine):
        program = remote(machine, "cat; echo $WORD", stdin="typed\n", environment={"WORD": "a b"})
        refused = (
            f"remote.Command('d', connection={machine.connection()}, create='cat', environment={{'REFUSED': '1'}})\n"
        )
        bench.program(program + refused)
        result = bench.up()
        assert result.outputs["out"][0] == "typed\na b"
        assert "environment.REFUSED" in result.failures[0].message
        assert "AcceptEnv" in result.failures[0].message

    def test_another_host_key_is_refused_at_once(self, bench, machine):
        bad = machine.connection(host_key=machine.other_host_key, dial_error_limit=50)
        bench.program(remote(machine, "touch been-here", connection=bad))
        result = bench.up()
        assert "hostKey" in result.failures[0].message
        assert not [log for log in bench.events_of(events.LogLine) if log.message.startswith("Dial")]

    def test_an_unreachable_machine_is_an_error_after_the_allowed_attempts(self, bench, machine):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            dead = machine.connection(port=probe.getsockname()[1], dial_error_limit=2)
        bench.program(remote(machine, "true", connection=dead))
        result = bench.up()
        assert "after 3 attempts" in result.failures[0].message
        dials = [log for log in bench.events_of(events.LogLine) if log.message.startswith("Dial")]
        assert [log.ephemeral for log in dials] == [True, True]

    def test_a_machine_that_never_answers_is_waited_for_once(self, bench, machine):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            at = machine.connection(port=silent.getsockname()[1], dial_error_limit=2, per_dial_timeout=1)
            # Two that depend on nothing: the second finds that the first has waited in vain.
            more = f"remote.Command('d', connection={at}, create='true')\n"
            bench.program(remote(machine, "true", connection=at) + more)
            result = bench.up()
        said = sorted(failure.message for failure in result.failures)
        assert said[0].startswith("127.0.0.1: no SSH connection after 1 attempt: ")
        assert said[1].startswith("127.0.0.1: no SSH connection after 3 attempts: ")
        assert "timed out" in said[0]

    def test_many_commands_share_a_connection_and_none_blocks_the_others(self, bench, machine, tmp_path):
        """More than asyncio's own executor would let through at a time, and more than a connection has sessions: each
        ends when as many as that have begun."""
        until = "for n in $(seq 600); do set -- at-*; [ $# -ge 8 ] && exec echo ME; sleep 0.2; done"
        meet = f"cd {tmp_path}; touch at-ME; {until}"
        bench.program(
            "import pulumi\nfrom pulumi_command import remote\n"
            f"at = {machine.connection()}\n"
            f"meet = {meet!r}\n"
            "made = [remote.Command(f'c{i}', connection=at, create=meet.replace('ME', f'{i}')) for i in range(10)]\n"
            "pulumi.export('n', [command.stdout for command in made])\n"
        )
        assert bench.up().outputs["n"] == [str(i) for i in range(10)]

    def test_a_proxy_is_used(self, bench, machine):
        proxy = {
            "host": "127.0.0.1",
            "port": machine.port,
            "user": getpass.getuser(),
            "private_key": machine.private_key,
        }
        through = machine.connection(proxy={**proxy, "host_key": machine.host_key})
        bench.program(remote(machine, "echo $SSH_CONNECTION | cut -d' ' -f1", connection=through))
        assert bench.up().outputs["out"][0] == "127.0.0.1"

    def test_another_host_key_of_the_proxy_is_refused(self, bench, machine):
        proxy = {
            "host": "127.0.0.1", "port": machine.port, "user": getpass.getuser(), "private_key": machine.private_key,
            "host_key": machine.other_host_key,
        }  # fmt: skip
        through = machine.connection(proxy=proxy, dial_error_limit=1)
        been = bench.root / "been-here"
        bench.program(remote(machine, f"touch {been}", connection=through))
        assert "no SSH connection" in bench.up().failures[0].message
        bench.program(remote(machine, f"touch {been}", connection=through.replace(proxy["host_key"], machine.host_key)))
        assert not been.exists()
        assert bench.up().ok


@pytest.mark.e2e
class TestCopy:
    def program(self, machine, source, target, **options):
        args = "".join(f", {k}={v!r}" for k, v in options.items())
        return (
            "import pulumi\nfrom pulumi_command import remote\n"
            f"at = {machine.connection()}\n"
            f"remote.CopyToRemote('c', connection=at, source={source}, remote_path={str(target)!r}{args})\n"
        )

    def test_texts_files_and_folders_are_copied(self, bench, machine):
        away = machine.folder / "away"
        folder = bench.root / "stuff"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_bytes(b"\x00\xff")
        (away / "2").mkdir(parents=True)
        bench.program(
            "import pulumi\nfrom pulumi_command import remote\n"
            f"at = {machine.connection()}\n"
            "def copy(name, source, target):\n"
            "    remote.CopyToRemote(name, connection=at, source=source, remote_path=target)\n"
            f"copy('text', pulumi.StringAsset('words'), {str(away / 'deep' / 'text')!r})\n"
            f"copy('folder', pulumi.FileArchive('stuff'), {str(away / '1')!r})\n"
            f"copy('content', pulumi.FileArchive('stuff/'), {str(away / '2')!r})\n"
            f"copy('into', pulumi.FileAsset('stuff/inner/file'), {str(away / '2')!r})\n"
            f"copy('many', pulumi.AssetArchive({{'x/y': pulumi.StringAsset('z')}}), {str(away / '3')!r})\n"
        )
        assert bench.up().ok
        for expected in ("1/stuff/inner/file", "2/inner/file", "2/file"):
            assert (away / expected).read_bytes() == b"\x00\xff"
        assert (away / "3" / "x" / "y").read_text() == "z"
        assert (away / "deep" / "text").read_text() == "words"

    def test_only_a_changed_content_is_copied_again(self, bench, machine):
        target = machine.folder / "once"
        (bench.root / "file").write_text("one")
        bench.program(self.program(machine, "pulumi.FileAsset('file')", target))
        bench.up()
        target.write_text("changed there")
        assert bench.up().summary == "nothing to do"
        assert target.read_text() == "changed there"
        (bench.root / "file").write_text("two")
        bench.up()
        assert bench.planned() == {"c": "update"}
        assert target.read_text() == "two"
        bench.program(self.program(machine, "pulumi.FileAsset('file')", target, triggers=["x"]))
        bench.up()
        assert bench.planned() == {"c": "replace"}


WITH_DELETE = """\
import pulumi
from living import Living
from pulumi_command import local

host = Living("host", pulumi.ResourceOptions(delete_before_replace=True), generation={host})
for name in {guests}:
    guest = Living(name, pulumi.ResourceOptions(delete_before_replace=True), generation={generation})
    local.Command(
        f"{{name}}-farewell", delete=f"echo farewell {{name}} >> {log}", triggers=[guest.stamp],
        opts=pulumi.ResourceOptions(deleted_with=host),
    )
"""


class TestDelete:
    """Commands with only a `delete`, which logs `farewell`. They are deleted with a host, and depend on a guest."""

    @pytest.fixture
    def up(self, bench):
        """Create a host and guests, and return the steps and the lines of `delete`."""

        def up(*guests, generation=0, host=0):
            log = bench.root.parent / "log"
            bench.program(WITH_DELETE.format(guests=guests, generation=generation, host=host, log=log))
            assert bench.run("up").ok
            return [line for line in bench.take_log() if line.split()[0] in ("create", "update", "delete", "farewell")]

        return up

    def test_create_and_update_run_nothing(self, up):
        assert sorted(up("a")) == ["create a.0", "create host.0"]
        assert up("a") == []

    def test_delete_runs_before_its_dependency_is_replaced(self, up):
        up("a", "b")
        steps = up("a", "b", generation=1)
        for name in ("a", "b"):
            own = [step for step in steps if step.split()[1].split(".")[0] == name]
            assert own == [f"farewell {name}", f"delete {name}.0", f"create {name}.1"]

    def test_delete_runs_before_its_dependency_is_deleted(self, up):
        up("a", "b")
        assert up("a") == ["farewell b", "delete b.0"]

    def test_delete_does_not_run_if_the_host_is_deleted(self, up, bench):
        up("a", "b")
        assert bench.run("destroy").ok
        assert sorted(bench.take_log()) == [f"delete{d} {name}.0" for d in ("", "d") for name in ("a", "b", "host")]

    def test_delete_does_not_run_if_the_host_is_replaced(self, up):
        up("a")
        assert sorted(up("a", host=1)) == ["create host.1", "delete host.0"]
