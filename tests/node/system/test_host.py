"""Files are changed only where they differ and never seen half-written; units start once; shared folders are root's."""

import errno
import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from jobs import prologs
from system import cluster_state, host
from system.host import SetupError

ME = pwd.getpwuid(os.geteuid()).pw_name


class TestWrite:
    def test_returns_whether_it_changed_anything(self, tmp_path):
        path = tmp_path / "a" / "file"
        assert host.write(path, "x\n", owner=ME)
        before = path.stat().st_ino
        assert not host.write(path, "x\n", owner=ME)
        assert path.stat().st_ino == before
        assert host.write(path, "x\n", mode=0o600, owner=ME)
        assert path.stat().st_mode & 0o777 == 0o600

    def test_leaves_no_temporary_file(self, tmp_path):
        host.write(tmp_path / "file", b"\x00", owner=ME)
        host.write(tmp_path / "file", b"\x01", owner=ME)
        assert [p.name for p in tmp_path.iterdir()] == ["file"]

    def test_replaces_a_link_and_not_its_target(self, tmp_path):
        (tmp_path / "target").write_text("kept")
        (tmp_path / "file").symlink_to("target")
        host.write(tmp_path / "file", "new", owner=ME)
        assert (tmp_path / "target").read_text() == "kept"
        assert (tmp_path / "file").read_text() == "new"


class TestLink:
    def test_is_created_changed_and_left_alone(self, tmp_path):
        path = tmp_path / "link"
        assert host.link(path, "one")
        assert not host.link(path, "one")
        assert host.link(path, "two")
        assert str(path.readlink()) == "two"


class TestRun:
    def test_a_failure_has_the_command_and_the_end_of_its_output(self):
        with pytest.raises(SetupError, match=r"`sh -c .*` failed with exit code 3:\nsaid why"):
            host.run("sh", "-c", "echo said why >&2; exit 3")

    def test_a_missing_program_is_named(self):
        with pytest.raises(SetupError, match="`no-such-program` is not installed"):
            host.run("no-such-program")

    def test_it_has_a_timeout(self):
        with pytest.raises(SetupError, match="did not end within 0 s"):
            host.run("sleep", "5", timeout=0.05)


class TestWait:
    def test_an_error_has_the_subject_and_the_hint(self):
        with pytest.raises(SetupError, match="the moon did not come within 0 s; look up"):
            host.wait("the moon", lambda: False, seconds=0.05, interval=0.01, hint="look up")


class TestDescribeOsError:
    def test_a_read_only_file_system_is_described(self, tmp_path, monkeypatch):
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "slurm.conf"))

        monkeypatch.setattr(tempfile, "mkstemp", refuse)
        with pytest.raises(OSError, match="Read-only") as caught:
            host.write(tmp_path / "slurm.conf", "")
        assert host.describe_os_error(caught.value).startswith(
            f"{tmp_path}/slurm.conf: Read-only file system; mount its file system for writing"
        )

    def test_other_errors_have_no_description(self):
        assert host.describe_os_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) == ""


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A systemd with the state of every unit, which the test sets, and its requests."""
    asked: list[tuple[str, ...]] = []
    state = {"ActiveState": "inactive", "UnitFileState": "enabled"}

    def run(*command: str, **_: object) -> str:
        if command[1] != "show":
            asked.append((command[1], *command[2:][-1:]))
        return "".join(f"{key}={value}\n" for key, value in state.items())

    monkeypatch.setattr(host, "STARTED", tmp_path / "started")
    monkeypatch.setattr(host, "run", run)
    return state, asked


@pytest.mark.parametrize(
    ("now", "wanted", "asked"),
    [
        ("disabled", True, [("enable", "slurmd")]),
        ("enabled", False, [("disable", "slurmd")]),
        ("static", True, []),
        ("disabled", False, []),
    ],
)
def test_units_are_enabled_and_disabled(now, wanted, asked, systemd):
    systemd[0]["UnitFileState"] = now
    assert host.service("slurmd", settings="", enabled=wanted)
    assert systemd[1] == [*asked, ("start", "slurmd")]
    systemd[1].clear()
    host.reload_units()
    assert systemd[1] == []
    host.reload_units(links=True)
    assert systemd[1] == [("daemon-reload",)] * len(asked)


@pytest.mark.parametrize(
    ("state", "verbs"),
    [
        ("inactive", ["start"]),
        ("activating", ["reset-failed", "restart"]),  # it may have read its settings before they were written
        ("failed", ["reset-failed", "start"]),
        ("active", ["restart"]),
    ],
)
def test_a_unit_is_started_once_per_settings(state, verbs, systemd):
    systemd[0]["ActiveState"] = state
    assert host.service("munge", settings="key")
    systemd[0]["ActiveState"] = "active"
    assert not host.service("munge", settings="key")
    assert [verb for verb, *_ in systemd[1]] == verbs


def test_unit_files_are_reloaded_once_before_a_start_and_after_a_kill(systemd, tmp_path, monkeypatch):
    for _ in range(2):
        host.write_unit(tmp_path / "first", "[Unit]\n")
        host.write_unit(tmp_path / "second", "[Unit]\n")
        host.service("munge", settings="key")
        systemd[0]["ActiveState"] = "active"
    assert [verb for verb, *_ in systemd[1]] == ["daemon-reload", "start"]
    with monkeypatch.context() as killed:
        killed.setattr(host, "write", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            host.write_unit(tmp_path / "second", "[Service]\n")
    host.reload_units()
    assert [verb for verb, *_ in systemd[1]] == ["daemon-reload", "start", "daemon-reload"]


ALICE = 61001


@pytest.fixture
def root() -> None:
    if os.geteuid():
        pytest.skip("gives folders to users")


@pytest.fixture
def shared(root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared folder, in a place of the test's."""
    found = tmp_path / "apps"
    found.mkdir()
    monkeypatch.setattr(host, "SHARED", found)
    return found


def test_folders_that_are_protected_are_shared():
    assert all(host.SHARED in path.parents for path in (cluster_state.FOLDER, prologs.TREE))


def test_folders_of_root_and_missing_ones_are_accepted(shared: Path, capsys: pytest.CaptureFixture[str]):
    host.protect_shared(shared / "adm" / "hpc")
    (shared / "adm" / "hpc").mkdir(parents=True)
    host.protect_shared(shared / "adm" / "hpc")
    assert capsys.readouterr().out == ""


def test_a_writable_folder_gets_the_sticky_bit(shared: Path):
    shared.chmod(0o777)
    (shared / "adm").mkdir()
    for path in shared.parents[:3]:
        path.chmod(path.stat().st_mode | 0o755)
    swap = ["mv", str(shared / "adm"), str(shared / "mine")]
    host.protect_shared(shared / "adm" / "hpc")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert subprocess.run(swap, user=ALICE, group=ALICE, extra_groups=[], check=False, capture_output=True).returncode


def theirs(path: Path) -> None:
    path.mkdir()
    os.chown(path, ALICE, ALICE)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (theirs, f"belongs to uid {ALICE}"),
        (lambda path: path.symlink_to("/etc"), "is a symbolic link to /etc"),
        (lambda path: (path.mkdir(), path.chmod(0o775)), "may be written by others (mode 0775)"),
    ],
)
@pytest.mark.parametrize("below", ["adm", "adm/hpc"])
def test_folders_of_others_are_refused(shared: Path, make, why: str, below: str):
    (shared / below).parent.mkdir(exist_ok=True)
    make(shared / below)
    for ask in (host.require_root_only, host.protect_shared):
        with pytest.raises(SetupError) as caught:
            ask(shared / "adm" / "hpc")
        assert f"{shared / below} {why}" in str(caught.value)
        assert "move it away" in str(caught.value)


@pytest.fixture
def state(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cluster state goes, which is not there yet."""
    folder = shared / "adm" / "hpc"
    for part, name in (("FOLDER", ""), ("CONFIG", "cluster.json"), ("CLIENT", "etc"), ("REPORTS", "nodes")):
        monkeypatch.setattr(cluster_state, part, folder / name)
    return folder


@pytest.mark.parametrize("name", ["etc", "nodes", "health", "jobs"])
def test_root_follows_no_link_in_the_cluster_state(shared: Path, state: Path, name: str):
    """Root of a node can make one; what is no longer published there is removed by the controller's root."""
    state.mkdir(parents=True)
    precious = shared / "precious"
    precious.mkdir()
    (precious / "passwd").touch()
    (state / name).symlink_to(precious)
    mode = precious.stat().st_mode
    with pytest.raises(SetupError, match="is a symbolic link") if name == "etc" else nullcontext():
        cluster_state.publish({}, {"slurm.conf": ""})
    assert [path.name for path in precious.iterdir()] == ["passwd"]
    assert precious.stat().st_mode == mode


@pytest.fixture
def reports(root: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where machines report, in a folder that every user reaches."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "nodes"
        Path(place).chmod(0o755)
        folder.mkdir()
        monkeypatch.setattr(cluster_state, "REPORTS", folder)
        yield folder


def test_reports_are_written_as_slurm_and_follow_no_link(reports: Path, monkeypatch: pytest.MonkeyPatch):
    """Slurm's user is `nobody` here."""
    monkeypatch.setattr(cluster_state, "OWNER", "nobody")
    precious = reports.with_name("precious")
    precious.write_text("x")
    link = reports / "n.json"
    link.symlink_to(precious)
    with pytest.raises(SetupError, match="can't be written by nobody"):
        cluster_state.write_as_slurm(link, "{}")
    cluster_state._make_folder_of_slurm(reports)
    cluster_state.write_as_slurm(link, '{"state": "configured"}')
    assert precious.read_text() == "x"
    assert not link.is_symlink()
    assert (link.owner(), link.stat().st_mode & 0o7777) == ("nobody", 0o644)
    assert [path.name for path in reports.iterdir()] == ["n.json"]


def test_reports_are_read_from_regular_files_only(reports: Path):
    (reports / "good.json").write_text('{"state": "configured"}')
    (reports / "list.json").write_text("[1]")
    (reports / "link.json").symlink_to(reports / "good.json")
    (reports / "folder.json").mkdir()
    os.mkfifo(reports / "pipe.json")
    assert cluster_state.reports() == {"good": {"state": "configured"}}


def test_a_file_in_the_place_of_the_cluster_state_is_replaced(state: Path):
    state.parent.mkdir()
    state.write_text("x")
    assert cluster_state.publish({}, {"slurm.conf": ""})
    assert (state / "etc" / "slurm.conf").exists()
