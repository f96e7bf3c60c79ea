"""Locks of root's programs: no other user can hold one, and an error names the holder."""

import fcntl
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from system import locks
from system.host import SetupError, hold_lock
from system.locks import describe_holders, holders, open_lock, take_lock


@contextmanager
def held_by(path: Path, user: int = 0) -> Iterator[int]:
    """A process of a user that holds the lock of a file which it could open; its pid."""
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = subprocess.Popen(["sleep", "1000"], pass_fds=[file.fileno()], user=user)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_root_can_open_a_lock(tmp_path: Path):
    os.umask(0o022)
    path = tmp_path / "run" / "a.lock"
    open_lock(path).close()
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    path.parent.chmod(0o755)
    open_lock(path).close()
    assert mode(path.parent) == 0o700


def test_a_lock_does_not_follow_a_link(tmp_path: Path):
    (tmp_path / "a.lock").symlink_to(tmp_path / "b")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock(tmp_path / "a.lock")


def test_the_error_names_pid_user_and_command_of_the_holder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.lock"
    open_lock(path).close()
    with held_by(path) as pid:
        with pytest.raises(SetupError) as error, hold_lock(path, "another set-up", seconds=0.2):
            raise AssertionError
        who = f"pid {pid} of root (sleep 1000)"
        assert str(error.value).startswith(f"another set-up has not ended in 0 s: {who} holds {path}. ")
        assert capsys.readouterr().out == f"another set-up is under way on this machine: waiting for {who}\n"
    with hold_lock(path, "another set-up", seconds=0):
        pass


def test_a_process_that_only_waits_is_no_holder(tmp_path: Path):
    with open_lock(tmp_path / "a.lock") as mine, open_lock(tmp_path / "a.lock") as other:
        assert describe_holders(other) == "a process that this machine does not show"
        assert take_lock(mine)
        assert not take_lock(other)
        assert [pid for pid, _, _ in holders(other)] == [os.getpid()]


class TestOlderSetUp:
    """Its files could be opened by anybody, and a machine that is up has them."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "setup.lock"
        path.touch(mode=0o644)
        path.chmod(0o644)
        return path

    def test_a_users_process_that_holds_one_stops_nobody(self, path: Path):
        with held_by(path, user=65534), hold_lock(path, "another set-up", seconds=0):
            assert mode(path) == 0o600

    def test_a_process_of_root_that_holds_one_is_waited_for(self, path: Path):
        with (
            held_by(path) as pid,
            pytest.raises(SetupError, match=f"pid {pid} of root"),
            hold_lock(path, "another set-up", seconds=0),
        ):
            raise AssertionError
        with hold_lock(path, "another set-up", seconds=0):
            assert mode(path) == 0o600

    def test_one_that_a_user_still_has_open_is_replaced(self, path: Path):
        with path.open() as users:
            with hold_lock(path, "another set-up", seconds=0):
                pass
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with hold_lock(path, "another set-up", seconds=0):
                pass


def test_the_longest_wait_is_over_an_hour_at_most():
    assert 0 < locks.LONGEST_SECONDS <= 3600
