"""The controller's daemons: the files that slurmctld runs with, slurmrestd, job_submit.lua and mail."""

import ctypes.util
import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from accounting import database
from slurm import slurmctld
from system import host
from system.host import SetupError

from cluster.checks.settings import NOT_EXECUTED
from cluster.slurm.files import digest
from components.slurm.payload import PASSWORD_MARK, slurm_files
from tests import programs
from tests.cluster.stacks import cluster


@pytest.fixture
def controller(tmp_path, monkeypatch):
    """The files of a controller, as `configure` leaves them."""
    files = slurm_files(cluster(nodesets={"cpu": {}, "more": {}}), {})
    for name in ("ETC", "APPLIED"):
        monkeypatch.setattr(slurmctld, name, tmp_path / name.lower())
    monkeypatch.setattr(database, "PASSWORD", tmp_path / "password")
    (tmp_path / "password").write_text("s3cret\n")
    slurmctld.ETC.mkdir()
    for name, text in files.items():
        (slurmctld.ETC / name).write_text(text.replace(PASSWORD_MARK, "s3cret"))
    slurmctld.APPLIED.write_text(json.dumps({n: t for n, t in files.items() if n != "slurmdbd.conf"}))
    return files


def test_the_hash_of_the_files_is_the_stacks(controller):
    assert slurmctld.digest() == digest(controller)


@pytest.mark.parametrize("name", ["slurm.conf", "slurmdbd.conf", "gres.conf"])
def test_a_changed_file_has_another_hash(controller, name):
    (slurmctld.ETC / name).write_text("# by hand\n")
    assert slurmctld.digest() != digest(controller)


def test_another_clusters_name_is_refused_by_all_but_a_new_controller(controller):
    slurmctld.refuse_other_name("dev")
    with pytest.raises(SetupError, match="runs cluster dev, the stack says prod"):
        slurmctld.refuse_other_name("prod")
    slurmctld.APPLIED.unlink()
    slurmctld.refuse_other_name("prod")


class TestReconfigure:
    """A slurmctld that hangs in a reconfigure is restarted; one that refuses its files is not."""

    HANGS = "slurm_reconfigure error: Socket timed out on send/recv operation"
    """What scontrol 24.11.5 printed of a slurmctld that hung."""

    @pytest.fixture
    def began(self, monkeypatch):
        """What was started and asked, with an answer to each reconfigure: an error's text, or nothing."""
        began: list[str] = []
        self.answers: list[str] = []

        def run(*command: str) -> str:
            began.append(command[1])
            if text := self.answers.pop(0):
                raise SetupError(f"`scontrol reconfigure` failed with exit code 1:\n{text}")
            return ""

        monkeypatch.setattr(slurmctld, "run", run)
        monkeypatch.setattr(slurmctld, "wait_for_slurmctld", lambda: began.append("answers"))
        monkeypatch.setattr(slurmctld, "service", lambda name, **_: began.append(name))
        monkeypatch.setattr(slurmctld, "forget", lambda name: began.append(f"forget {name}"))
        return began

    def test_one_that_hangs_is_restarted_and_asked_again(self, began):
        self.answers = [self.HANGS, ""]
        slurmctld.reconfigure()
        assert began == ["reconfigure", "forget slurmctld", "slurmctld", "answers", "reconfigure"]

    @pytest.mark.parametrize("answers", [["", "not asked"], ["nonsense"], [HANGS, HANGS]])
    def test_refusals_and_a_second_silence_are_errors(self, began, answers):
        self.answers = [*answers]
        if answers[0]:
            with pytest.raises(SetupError, match=answers[-1]):
                slurmctld.reconfigure()
        else:
            slurmctld.reconfigure()
        assert began.count("reconfigure") == 1 + (answers[0] == self.HANGS)
        assert began.count("slurmctld") == (answers[0] == self.HANGS)


class TestRestoreOnFailure:
    """Files with which slurmctld does not come up give way to those before them."""

    @pytest.fixture
    def machine(self, controller, monkeypatch):
        """The controller with a slurmctld that comes up with every slurm.conf but a bad one; what was started."""
        began: list[str] = []

        def answer() -> None:
            if "nonsense" in (slurmctld.ETC / "slurm.conf").read_text():
                raise SetupError("slurmctld ends as soon as it has started")

        monkeypatch.setattr(slurmctld, "wait_for_slurmctld", answer)
        monkeypatch.setattr(slurmctld, "write", lambda path, text, **_: path.write_text(text))
        monkeypatch.setattr(slurmctld, "service", lambda name, **_: began.append(name))
        monkeypatch.setattr(slurmctld, "forget", lambda name: began.append(f"forget {name}"))
        monkeypatch.setattr(slurmctld, "wait", lambda *_, **__: None)
        monkeypatch.setattr(slurmctld, "run", lambda *_, **__: "")
        return began

    def change(self, files):
        with slurmctld.restore_on_failure(files):
            slurmctld.write_files(files)
            slurmctld.wait_for_slurmctld()

    def test_the_files_of_before_are_restored(self, controller, machine):
        before = {path.name: path.read_text() for path in slurmctld.ETC.iterdir()}
        files = {**slurmctld.applied(), "slurm.conf": "PriorityType=priority/nonsense\n", "gres.conf": "new\n"}
        with pytest.raises(SetupError, match=r"(?s)ends as soon as.*The edit did not take effect"):
            self.change(files)
        assert {path.name: path.read_text() for path in slurmctld.ETC.iterdir()} == before
        assert machine == ["slurmdbd", "forget slurmctld", "slurmctld"]

    def test_files_that_work_stay(self, controller, machine):
        self.change({**slurmctld.applied(), "slurm.conf": "KillWait=31\n"})
        assert (slurmctld.ETC / "slurm.conf").read_text() == "KillWait=31\n"
        assert machine == []

    @pytest.mark.parametrize(
        ("before", "error", "started"),
        [
            ("new=nonsense\n", "^slurmctld ends as soon as it has started$", []),  # nothing was changed
            ("", "^slurmctld ends as soon as it has started$", []),  # a new controller
            (
                "also=nonsense\n",
                r"(?s)ends as soon as.*before it does not come up either",
                ["slurmdbd", "forget slurmctld", "slurmctld"],
            ),
        ],
    )
    def test_without_files_that_work_the_errors_are_raised(self, controller, machine, before, error, *, started):
        files = {**slurmctld.applied(), "slurm.conf": before} if before else {}
        if files:
            slurmctld.APPLIED.write_text(json.dumps(files))
        else:
            slurmctld.APPLIED.unlink()
        with pytest.raises(SetupError, match=error):
            self.change({**files, "slurm.conf": "new=nonsense\n"})
        assert machine == started


def test_a_damaged_record_is_replaced_by_the_last_input(controller, monkeypatch):
    last_input = {"files": {"slurm.conf": ["ClusterName=dev"], "slurmdbd.conf": ["DbdHost=x"]}}
    monkeypatch.setattr(slurmctld.phase_state, "last_input", lambda _: last_input)
    slurmctld.APPLIED.write_text('{"slurm.conf": "Clus')
    assert slurmctld.applied() == {"slurm.conf": "ClusterName=dev\n"}


def test_stack_files_may_not_name_programs_in_folders_that_the_unit_does_not_execute():
    rows = dict(line.split("=", 1) for line in slurmctld.CONFINED.splitlines())
    folders = {path.lstrip("-") for name in ("NoExecPaths", "InaccessiblePaths") for path in rows[name].split()}
    assert rows["ProtectHome"] == "yes"  # systemd.exec(5): these three
    folders |= {"/home", "/root", "/run/user"}
    assert set(NOT_EXECUTED) == folders - {"/etc/slurm/slurmdbd.conf"}


class TestKills:
    """The unit runs these commands around slurmctld; `killed` has the first start after a run that did not end."""

    @pytest.fixture
    def unit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Run the unit's line of that name, as systemd does, with the result of the service."""
        monkeypatch.setattr(slurmctld, "KILLED", tmp_path / "slurmctld-killed")
        lines = slurmctld.DROP_INS["slurmctld"].replace(str(slurmctld.RUNNING.parent), str(tmp_path)).splitlines()

        def run(name: str, result: str = "success") -> None:
            commands = [
                line.partition("=")[2] for line in lines if line.startswith(f"{name}=") and "slurmctld-" in line
            ]
            for command in commands:
                words = shlex.split(command.removeprefix("-+").replace("$$", "$"))
                subprocess.run(words, env={**os.environ, "SERVICE_RESULT": result}, check=True)
            assert commands

        return run

    @pytest.mark.parametrize(
        ("result", "killed"),
        [("success", False), ("exit-code", False), ("signal", True), ("timeout", True), ("oom-kill", True)],
    )
    def test_a_kill_is_noted_at_the_next_start(self, unit, result: str, *, killed: bool):
        unit("ExecStartPre")
        assert slurmctld.killed() is None
        unit("ExecStopPost", result)
        unit("ExecStartPre")
        assert (slurmctld.killed() is not None) is killed

    def test_so_is_a_loss_of_power_after_which_no_unit_was_stopped(self, unit):
        unit("ExecStartPre")
        unit("ExecStartPre")
        assert slurmctld.killed()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with slurmrestd, a delivered key and running daemons; the commands to systemd, in order."""
    (tmp_path / "slurmrestd").touch()
    (tmp_path / "delivered").write_text("key\n")
    monkeypatch.setattr(slurmctld, "SLURMRESTD", str(tmp_path / "slurmrestd"))
    for name, file in (("TOKEN_KEY_DELIVERED", "delivered"), ("TOKEN_KEY", "key"), ("SLURMRESTD_UNIT", "unit")):
        monkeypatch.setattr(slurmctld, name, tmp_path / file)
    monkeypatch.setattr(host, "STARTED", tmp_path / "started")
    monkeypatch.setattr(slurmctld, "write", lambda path, text, **_: path.write_bytes(text))
    monkeypatch.setattr(slurmctld, "succeeds", lambda *_: True)
    commands: list[str] = []
    monkeypatch.setattr(slurmctld, "run", lambda *command: commands.append(" ".join(command[1:])))
    monkeypatch.setattr(slurmctld, "unread_units", lambda: commands.append("unread units"))
    monkeypatch.setattr(slurmctld, "stop_services", lambda name: commands.append(f"stopped {name}"))
    return commands


def test_daemons_are_stopped_for_a_new_key_only_also_after_a_kill(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as killed:
        killed.setattr(slurmctld, "write", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            slurmctld.keep_token_key()
    for _ in range(2):
        slurmctld.keep_token_key()
        assert (tmp_path / "key").read_text() == "key\n"
        assert machine == ["stop slurmctld", "stop slurmdbd"] * 2


@pytest.mark.parametrize(
    ("gone", "why"), [("slurmrestd", "there is no slurmrestd"), ("delivered", "no key for tokens")]
)
def test_without_slurmrestd_or_a_key_nothing_is_changed(machine: list[str], tmp_path: Path, gone: str, why: str):
    (tmp_path / gone).unlink()
    with pytest.raises(SetupError, match=why):
        slurmctld.keep_token_key()
    assert machine == []
    assert not (tmp_path / "key").exists()


def test_removing_slurmrestd_leaves_no_file_and_is_idempotent(machine: list[str], tmp_path: Path):
    slurmctld.keep_token_key()
    (tmp_path / "unit").write_text(slurmctld.slurmrestd_unit("10.0.0.2"))
    machine.clear()
    slurmctld.remove_slurmrestd()
    assert machine == ["stopped slurmrestd", "unread units"]
    assert [name for name in ("key", "delivered", "unit") if (tmp_path / name).exists()] == []
    slurmctld.remove_slurmrestd()
    assert machine == ["stopped slurmrestd", "unread units", "stopped slurmrestd"]


def test_slurmrestd_listens_on_one_address_and_requires_tokens():
    (line,) = [line for line in slurmctld.slurmrestd_unit("10.0.0.2").splitlines() if line.startswith("ExecStart=")]
    assert line == "ExecStart=/usr/sbin/slurmrestd -a rest_auth/jwt 10.0.0.2:6820"


def test_an_address_that_no_other_machine_reaches_is_refused(machine: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slurmctld, "has_user", lambda _: True)
    monkeypatch.setattr(slurmctld.socket, "gethostbyname", lambda _: "127.0.1.1")
    with pytest.raises(SetupError, match=r"is 127\.0\.1\.1 on this machine"):
        slurmctld.start_slurmrestd()
    assert machine == []


GOOD = "function slurm_job_submit(job, parts, uid)\n  return slurm.SUCCESS\nend\n"
LIBRARIES = [name for release in ("5.1", "5.2", "5.3", "5.4") if (name := ctypes.util.find_library(f"lua{release}"))]


def with_plugin(root: Path, library: str) -> Path:
    """A root with a plugin that names `library`, as the dynamic section of the real one does."""
    plugin = root / "usr/lib/x86_64-linux-gnu/slurm-wlm/job_submit_lua.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_bytes(b"\x7fELF\0liblua.so.no-such\0" + library.encode() + b"\0libc.so.6\0")
    return root


def test_a_machine_without_the_plugin_is_an_error(tmp_path: Path):
    with pytest.raises(SetupError, match=r"no job_submit_lua\.so"):
        slurmctld.check_job_submit(GOOD, tmp_path)


def test_without_a_lua_library_rules_are_not_checked(tmp_path: Path):
    slurmctld.check_job_submit("no lua", with_plugin(tmp_path, "liblua0.0.so.0"))


@pytest.mark.skipif(not LIBRARIES, reason="this machine has no Lua; the clusters of tests/e2e have")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_syntax_error_has_its_line(tmp_path: Path, library: str):
    root = with_plugin(tmp_path, library)
    slurmctld.check_job_submit(GOOD, root)
    with pytest.raises(SetupError, match=r"slurm.job_submit_lua: job_submit.lua:2: "):
        slurmctld.check_job_submit(GOOD.replace("return slurm", "retur slurm"), root)


SCRIPT = Path(__file__).parents[3] / "scripts/node/slurm/mail.sh"


@pytest.fixture
def send(tmp_path: Path):
    """Runs it as slurmctld does, with another mail program; that one's words."""
    given = tmp_path / "given"
    for name, text in {"mail": f'printf "%s|" "$@" >{given}; cat >>{given}', "logger": ":"}.items():
        programs.write(tmp_path / name, text)
    text = SCRIPT.read_text().replace("/usr/bin/mail", str(tmp_path / "mail"))
    (tmp_path / "hpc-mail").write_text(text.replace("timeout 5 squeue", str(tmp_path / "squeue")))

    def run(subject: str, address: str, *, comment: str = "", kind: str = "") -> str:
        programs.write(tmp_path / "squeue", f"echo '{comment}'")
        given.unlink(missing_ok=True)
        command = ["sh", tmp_path / "hpc-mail", "-s", subject, address]
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_MAIL_TYPE": kind, "SLURM_JOB_ID": "1"}
        subprocess.run(command, env=env, input="~!id", text=True, check=False)
        return given.read_text() if given.exists() else ""

    return run


@pytest.mark.parametrize("address", ["alice", "alice@example.org", "a.b+c_d@ex-ample.org,bob", "7@x"])
def test_addresses_are_sent_to(send, address: str):
    assert send("Slurm Job_id=1 Name=a|b Ended", address) == f"-s|Slurm Job_id=1 Name=a|b Ended|--|{address}|"


@pytest.mark.parametrize(
    "address", ["", "--x", "-s", "|id", "a|id", "/etc/x", "a,/etc/x", "a,-s", "a,", "+x", "a b", "a\nb", "$(id)", "é"]
)
def test_other_addresses_get_no_mail(send, address: str):
    assert send("s", address) == ""


@pytest.mark.parametrize(
    ("kind", "comment", "body"),
    [
        ("Requeued", "hpc: requeued at 12:01 from gpu-1: gpu-lost", "hpc: requeued at 12:01 from gpu-1: gpu-lost\n"),
        ("Ended", "hpc: requeued at 12:01 from gpu-1: gpu-lost", ""),
        ("Requeued", "of a person", ""),
        ("Requeued", "", ""),
    ],
)
def test_mail_about_a_requeued_job_says_why(send, kind, comment, body):
    assert send("s", "alice", kind=kind, comment=comment) == f"-s|s|--|alice|{body}"


def test_a_subject_is_one_line(send):
    assert send("Name=x\nBcc: y", "alice") == "-s|Name=xBcc: y|--|alice|"
