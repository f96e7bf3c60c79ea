"""Homes and authorized_keys: root follows nothing that a user has put into a home, and other users are not affected."""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from system import authorized_keys, homes
from system.text_block import BEGIN, END

ALICE, KEY = 61001, "ssh-ed25519 AAAA alice@laptop"
OURS = f"{BEGIN}\n{KEY}\n{END}\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to users")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of homes that users can reach, unlike pytest's own."""
    found = Path(tempfile.mkdtemp(prefix="hpc-homes-", dir="/var/tmp"))
    found.chmod(0o755)
    monkeypatch.setattr(homes, "HOMES", found / "home")
    (found / "home").mkdir()
    secret = found / "secret"
    secret.write_text("root's own\n")
    secret.chmod(0o600)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def alice(place: Path) -> Path:
    """Her home, as the set-up makes it."""
    assert homes.converge("alice", ALICE, ALICE, [KEY])
    return place / "home" / "alice"


def converge(keys: list[str] | None = None) -> bool:
    return homes.converge("alice", ALICE, ALICE, [KEY] if keys is None else keys)


def as_alice(script: str, home: Path) -> None:
    subprocess.run(["sh", "-euc", script], cwd=home, user=ALICE, group=ALICE, extra_groups=[], check=True)


def belongings(place: Path) -> list[Path]:
    """All that alice owns below the place, links not followed."""
    return [path for path in place.rglob("*") if path.lstat().st_uid == ALICE]


class TestOrdinary:
    def test_a_home_has_the_skeleton_and_the_keys(self, alice: Path):
        assert (alice / ".bashrc").read_text() == Path("/etc/skel/.bashrc").read_text()
        every = [alice, *alice.rglob("*")]
        assert {(path.lstat().st_uid, path.lstat().st_gid) for path in every} == {(ALICE, ALICE)}
        file = alice / ".ssh" / "authorized_keys"
        assert [stat.S_IMODE(path.stat().st_mode) for path in (alice, file.parent, file)] == [0o700, 0o700, 0o600]
        assert file.read_text() == OURS

    def test_a_second_run_starts_no_process(self, alice: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process for nothing"))
        assert not converge()

    def test_the_users_own_keys_stay(self, alice: Path):
        as_alice("echo ssh-rsa mine >>.ssh/authorized_keys", alice)
        assert converge([])
        assert (alice / ".ssh" / "authorized_keys").read_text() == "ssh-rsa mine\n"

    def test_bytes_that_are_not_utf8_stay(self, alice: Path):
        as_alice(r"printf '# \377\376 caf\351\342\200\250x\r\n' >>.ssh/authorized_keys", alice)
        before = (alice / ".ssh" / "authorized_keys").read_bytes()
        assert not converge()
        assert converge(["ssh-ed25519 BBBB"])
        assert converge()
        assert (alice / ".ssh" / "authorized_keys").read_bytes() == before

    def test_modes_that_sshd_refuses_are_corrected(self, alice: Path):
        as_alice("chmod 777 .ssh; chmod 666 .ssh/authorized_keys", alice)
        assert converge()
        assert stat.S_IMODE((alice / ".ssh").stat().st_mode) == 0o700
        assert stat.S_IMODE((alice / ".ssh" / "authorized_keys").stat().st_mode) == 0o600

    def test_leftovers_of_a_killed_run_are_removed(self, place: Path):
        half = place / "home" / ".alice.hpc-new"
        half.mkdir()
        (half / "half").symlink_to(place / "secret")
        assert converge()
        home = place / "home" / "alice"
        assert not half.exists()
        assert not (home / "half").is_symlink()
        as_alice("echo half >.ssh/.authorized_keys.hpc-new", home)
        assert converge([])
        assert [path.name for path in (home / ".ssh").iterdir()] == ["authorized_keys"]

    def test_without_keys_no_folder_is_created(self, place: Path):
        assert converge([])
        assert not (place / "home" / "alice" / ".ssh").exists()
        assert not converge([])

    def test_a_home_may_be_a_link_of_root(self, place: Path, alice: Path):
        alice.rename(place / "moved")
        alice.symlink_to(place / "moved")
        assert converge(["ssh-ed25519 BBBB"])
        assert "BBBB" in (place / "moved" / ".ssh" / "authorized_keys").read_text()


ATTACKS = {
    "a link to a secret": ("ln -sf {secret} .ssh/authorized_keys", "authorized_keys is a symbolic link"),
    "a link to nowhere": ("ln -sf /nowhere .ssh/authorized_keys", "authorized_keys is a symbolic link"),
    "a pipe": ("rm .ssh/authorized_keys; mkfifo .ssh/authorized_keys", "authorized_keys is a pipe"),
    "a folder": ("rm .ssh/authorized_keys; mkdir .ssh/authorized_keys", "authorized_keys is a folder"),
    "a file of 2 MiB": ("head -c 2097152 /dev/zero >.ssh/authorized_keys", "has more than 1 MiB"),
    "a file that she may not read herself": ("chmod 0 .ssh/authorized_keys", ""),
    "a linked folder": ("rm -r .ssh; ln -s {folder} .ssh", ".ssh is a symbolic link"),
    "a folder linked to nowhere": ("rm -r .ssh; ln -s /nowhere .ssh", ".ssh is a symbolic link"),
    "a file for a folder": ("rm -r .ssh; echo >.ssh", ".ssh is a file"),
    "a pipe for a folder": ("rm -r .ssh; mkfifo .ssh", ".ssh is a pipe"),
    "a folder where a file is written": ("mkdir .ssh/.authorized_keys.hpc-new; echo x >>.ssh/authorized_keys", ""),
    "no right to write": ("echo >.ssh/authorized_keys; chmod 500 .ssh", ""),
    "a home that nobody enters": ("chmod 0 .", "can't be written as that user"),
}


class TestAttacks:
    @pytest.mark.parametrize("kind", ATTACKS)
    def test_files_of_root_are_neither_read_nor_changed(
        self, kind: str, place: Path, alice: Path, capsys: pytest.CaptureFixture[str]
    ):
        secret, folder = place / "secret", place / "etc"
        folder.mkdir(mode=0o700)
        (folder / "authorized_keys").write_text("root's\n")
        script, told = ATTACKS[kind]
        as_alice(script.format(secret=secret, folder=folder), alice)
        before = {path: path.stat() for path in (secret, folder, folder / "authorized_keys")}
        for keys in (["ssh-ed25519 BBBB"], [KEY]):
            homes.converge("alice", ALICE, ALICE, keys)
            assert all(path.stat() == found for path, found in before.items()), "untouched"
        assert not [p for p in belongings(place) if p.is_file() and not p.is_symlink() and b"root's" in p.read_bytes()]
        said = capsys.readouterr().out
        assert told in said
        if told:
            assert "alice: " in said
            assert "./hpc drift" in said

    def test_a_hard_link_to_a_file_of_root_is_not_copied(self, place: Path, alice: Path):
        # Where the kernel lets her make one (fs.protected_hardlinks=0).
        (alice / ".ssh" / "authorized_keys").unlink()
        os.link(place / "secret", alice / ".ssh" / "authorized_keys")
        converge(["ssh-ed25519 BBBB"])
        assert (place / "secret").read_text() == "root's own\n"
        assert (place / "secret").stat().st_uid == 0

    def test_a_home_that_is_a_link_to_roots_folder_is_left_alone(self, place: Path, capsys: pytest.CaptureFixture[str]):
        folder = place / "etc"
        folder.mkdir(mode=0o700)
        (place / "home" / "alice").symlink_to(folder)
        assert not converge()
        assert list(folder.iterdir()) == []
        assert "can't be written as that user: Permission denied" in capsys.readouterr().out

    def test_a_home_that_is_a_dangling_link_is_logged(self, place: Path, capsys: pytest.CaptureFixture[str]):
        (place / "home" / "alice").symlink_to("/nowhere")
        assert not converge()
        assert "can't be written as that user: No such file or directory" in capsys.readouterr().out

    def test_a_folder_may_change_at_any_moment(self, place: Path, alice: Path):
        """She swaps a folder of hers for a link to root's, as fast as she can."""
        folder = place / "etc"
        folder.mkdir(mode=0o700)
        (folder / "authorized_keys").write_text("root's\n")
        # Ended by a file: a shell that is killed leaves its last `mv` at work.
        stop = place / "stop"
        swap = f"ln -s {folder} .ssh; rm .ssh; mv kept .ssh; mv .ssh kept"
        script = f"mv .ssh kept; while [ ! -e {stop} ]; do {swap}; done"
        swapping = subprocess.Popen(
            ["sh", "-c", script], cwd=alice, user=ALICE, group=ALICE, extra_groups=[], stderr=subprocess.DEVNULL
        )
        try:
            for turn in range(10):
                homes.converge("alice", ALICE, ALICE, [f"ssh-ed25519 {turn}"])
        finally:
            stop.touch()
            swapping.wait(timeout=120)
        assert [path.name for path in folder.iterdir()] == ["authorized_keys"]
        assert (folder / "authorized_keys").read_text() == "root's\n"
        assert folder.stat().st_uid == (folder / "authorized_keys").stat().st_uid == 0

    def test_output_of_the_users_process_is_bounded_and_printable(
        self, alice: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.setattr(homes, "_PROGRAM", "import sys; sys.stdout.write('\\x1b[2J\\n' * 99999); sys.exit(4)")
        converge(["ssh-ed25519 BBBB"])
        said = capsys.readouterr().out
        assert "\x1b" not in said
        assert len(said) < 2000

    def test_a_process_that_does_not_end_times_out(self, alice: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(homes, "SECONDS", 0.2)
        monkeypatch.setattr(homes, "_PROGRAM", "import time; time.sleep(60)")
        assert not converge(["ssh-ed25519 BBBB"])

    def test_the_process_is_the_users_and_inherits_nothing(
        self, place: Path, alice: Path, monkeypatch: pytest.MonkeyPatch
    ):
        report = place / "report"
        report.touch()
        report.chmod(0o666)
        monkeypatch.setenv("SECRET", "x")
        program = (
            "import os; fds = len(os.listdir('/proc/self/fd')); "
            "said = os.getresuid(), os.getresgid(), os.getgroups(), 'SECRET' in os.environ, os.getcwd(), fds; "
            f"open({str(report)!r}, 'w').write(repr(said))"
        )
        monkeypatch.setattr(homes, "_PROGRAM", program)
        converge(["ssh-ed25519 BBBB"])
        # Three streams, and the descriptor of os.listdir.
        assert report.read_text() == repr(((ALICE,) * 3, (ALICE,) * 3, [], False, "/", 4))


def test_reading_follows_no_link(alice: Path, place: Path):
    assert authorized_keys.text(str(alice)) == OURS
    as_alice(f"ln -sf {place}/secret .ssh/authorized_keys", alice)
    with pytest.raises(authorized_keys.UnexpectedFileError, match="is a symbolic link"):
        authorized_keys.text(str(alice))
