"""Files are changed only where they differ, never seen half-written, and have their mode and owner."""

import errno
import os
import pwd

import pytest
from accounting import database
from slurm import slurmd
from system import host
from system.login import sshd_settings
from system.mounts import Mount, fstab_lines

ME = pwd.getpwuid(os.geteuid()).pw_name


class TestWrite:
    def test_says_whether_it_changed_anything(self, tmp_path):
        path = tmp_path / "a" / "file"
        assert host.write(path, "x\n", owner=ME)
        before = path.stat().st_ino
        assert not host.write(path, "x\n", owner=ME)
        assert path.stat().st_ino == before
        assert host.write(path, "x\n", mode=0o600, owner=ME)
        assert path.stat().st_mode & 0o777 == 0o600

    def test_leaves_no_other_file_behind(self, tmp_path):
        host.write(tmp_path / "file", b"\x00", owner=ME)
        host.write(tmp_path / "file", b"\x01", owner=ME)
        assert [p.name for p in tmp_path.iterdir()] == ["file"]

    def test_replaces_a_link_by_a_file_and_leaves_its_target(self, tmp_path):
        (tmp_path / "target").write_text("kept")
        (tmp_path / "file").symlink_to("target")
        host.write(tmp_path / "file", "new", owner=ME)
        assert (tmp_path / "target").read_text() == "kept"
        assert (tmp_path / "file").read_text() == "new"


class TestLink:
    def test_is_made_moved_and_left_alone(self, tmp_path):
        path = tmp_path / "link"
        assert host.link(path, "one")
        assert not host.link(path, "one")
        assert host.link(path, "two")
        assert str(path.readlink()) == "two"


class TestRun:
    def test_a_failure_carries_the_command_and_the_end_of_its_output(self):
        with pytest.raises(host.SetupError, match=r"`sh -c .*` failed with exit code 3:\nsaid why"):
            host.run("sh", "-c", "echo said why >&2; exit 3")

    def test_a_missing_program_is_said_plainly(self):
        with pytest.raises(host.SetupError, match="`no-such-program` is not installed"):
            host.run("no-such-program")

    def test_it_never_waits_for_ever(self):
        with pytest.raises(host.SetupError, match="did not end within 0 s"):
            host.run("sleep", "5", timeout=0.05)


class TestWait:
    def test_names_what_did_not_come_and_where_to_look(self):
        with pytest.raises(host.SetupError, match="the moon did not come within 0 s; look up"):
            host.wait("the moon", lambda: False, seconds=0.05, interval=0.01, hint="look up")


class TestDatabase:
    def test_the_buffer_pool_fits_the_machine(self):
        assert "innodb_buffer_pool_size = 4096M" in database.settings(64 << 30)
        assert "innodb_buffer_pool_size = 512M" in database.settings(4 << 30)
        assert "innodb_buffer_pool_size = 2048M" in database.settings(16 << 30)
        assert "innodb_buffer_pool_size = 512M" in database.settings(1 << 30)

    def test_a_password_that_could_end_a_statement_is_refused(self):
        with pytest.raises(host.SetupError, match="letters and digits"):
            database.statements("x'; DROP DATABASE slurm_acct_db; --")


class TestText:
    def test_a_blank_in_an_fstab_field_is_escaped(self):
        mount = Mount(source="10.0.0.1@tcp:/home", target="/my home", fs_type="lustre", options="")
        assert fstab_lines([mount]) == ["10.0.0.1@tcp:/home /my\\040home lustre defaults,nosuid,nodev 0 0"]

    def test_users_come_in_on_login_machines_only(self):
        assert "AllowUsers root" in sshd_settings(users=False)
        assert "AllowUsers" not in sshd_settings(users=True)


class TestPmix:
    def test_the_library_gets_the_name_that_the_plugin_opens(self, tmp_path):
        lib = tmp_path / "x86_64-linux-gnu" / "pmix2" / "lib"
        lib.mkdir(parents=True)
        (lib / "libpmix.so.2").write_text("the library")
        assert slurmd.link_pmix(tmp_path)
        assert not slurmd.link_pmix(tmp_path)
        assert (lib / "libpmix.so").read_text() == "the library"


class TestFileSystemsThatCannotBeWritten:
    def test_are_told_in_words_with_the_file_and_what_to_do(self, tmp_path, monkeypatch):
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "slurm.conf"))

        monkeypatch.setattr(host.tempfile, "mkstemp", refuse)
        with pytest.raises(OSError, match="Read-only") as caught:
            host.write(tmp_path / "slurm.conf", "")
        assert host.describe_os_error(caught.value).startswith(
            f"{tmp_path}/slurm.conf: Read-only file system; mount its file system for writing"
        )

    def test_other_errors_are_faults_of_ours(self):
        assert host.describe_os_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) == ""
