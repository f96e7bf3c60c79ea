"""nvcrlogin stores a key for enroot and apptainer where only its owner can read it, and keeps all other logins."""

import base64
import contextlib
import json
import os
import pty
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from system import nvcrlogin

PROGRAM = Path(str(nvcrlogin.__file__))
KEY = "nvapi-" + "a1_-" * 16
OTHER_KEY = base64.b64encode(b"k" * 62).decode()  # as keys of the older kind look
HUB = "machine registry-1.docker.io login me password secret\n"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home, in a folder that others can't write to as pytest's own may be."""
    with tempfile.TemporaryDirectory(prefix="hpc-nvcrlogin-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def run(home: Path) -> Run:
    """Run the program with this home and this standard input."""

    def call(
        *arguments: str, typed: str | bytes = "", python: Sequence[str] = ("-I",), **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        command, env = [sys.executable, *python, str(PROGRAM), *arguments], {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        stdin = typed if isinstance(typed, bytes) else typed.encode()
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, umask=0o002, env=env | variables)
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def enroot(home: Path) -> Path:
    return home / ".config" / "enroot" / ".credentials"


def apptainer(home: Path) -> Path:
    return home / ".apptainer" / "docker-config.json"


def test_a_key_is_stored_for_enroot_and_apptainer(run: Run, home: Path):
    done = run(typed=f"{KEY}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"written: {enroot(home)}\nwritten: {apptainer(home)}\n"
    # What enroot's own search for credentials wants: docker::_authenticate in src/docker.sh.
    assert enroot(home).read_text() == (
        f"machine nvcr.io login $oauthtoken password {KEY}\nmachine authn.nvidia.com login $oauthtoken password {KEY}\n"
    )
    login = json.loads(apptainer(home).read_text())["auths"]["nvcr.io"]["auth"]
    assert base64.b64decode(login).decode() == f"$oauthtoken:{KEY}"
    for path in (enroot(home), apptainer(home)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    once = enroot(home).read_text()
    assert run(typed=KEY).returncode == run("--check").returncode == 0
    assert enroot(home).read_text() == once


def test_other_logins_are_kept_in_any_locale(run: Run, home: Path):
    enroot(home).parent.mkdir(parents=True, mode=0o700)
    enroot(home).write_text(f"# für mich\n{HUB}", encoding="utf-8")
    enroot(home).chmod(0o600)
    done = run(typed=KEY, python=("-X", "utf8=0"), LC_ALL="C", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert enroot(home).read_text(encoding="utf-8").endswith(f"# für mich\n{HUB}")


def test_input_that_is_not_utf8_is_refused(run: Run, home: Path):
    done = run(typed=b"\xff\xfe" * 40)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nvcrlogin: ")
    assert "Traceback" not in done.stderr
    assert list(home.iterdir()) == []


def test_the_key_is_never_printed(run: Run):
    assert KEY not in run(typed=KEY).stdout + run("--check").stdout + run("--remove").stdout
    wrong = run(KEY)
    assert wrong.returncode == 1
    assert KEY not in wrong.stderr
    assert "history" in wrong.stderr
    for arguments in (["--key", KEY], [f"--key={KEY}"], ["--check", "--remove"], ["--che"]):
        done = run(*arguments)
        assert done.returncode == 1
        assert KEY not in done.stderr


def test_a_new_key_replaces_the_old_one_and_other_logins_stay(run: Run, home: Path):
    enroot(home).parent.mkdir(parents=True, mode=0o700)
    old = f"# mine\n{HUB}machine nvcr.io\n  login $oauthtoken\n  password old\n\ndefault login x password y\n"
    enroot(home).write_text(old)
    apptainer(home).parent.mkdir(mode=0o700)
    apptainer(home).write_text(json.dumps({"auths": {"ghcr.io": {"auth": "eA=="}}, "credsStore": "pass"}))
    for key in (OTHER_KEY, KEY):
        assert run(typed=key).returncode == 0
        assert run("--check").returncode == 0
    text = enroot(home).read_text()
    assert text.count("machine nvcr.io ") == text.count(KEY) - 1 == 1
    assert "old" not in text
    assert OTHER_KEY not in text
    assert text.endswith(f"# mine\n{HUB}\ndefault login x password y\n")
    config = json.loads(apptainer(home).read_text())
    assert sorted(config["auths"]) == ["ghcr.io", "nvcr.io"]
    assert config["credsStore"] == "pass"
    assert run("--remove").returncode == 0
    assert enroot(home).read_text() == f"# mine\n{HUB}\ndefault login x password y\n"
    assert list(json.loads(apptainer(home).read_text())["auths"]) == ["ghcr.io"]


def test_a_removed_key_is_in_no_file(run: Run, home: Path):
    assert run("--check").returncode == 1
    assert list(home.iterdir()) == []
    run(typed=KEY)
    assert run("--remove").returncode == 0
    assert enroot(home).read_text() == ""
    assert json.loads(apptainer(home).read_text()) == {"auths": {}}
    assert run("--check").stdout == "no key of NGC is stored: run nvcrlogin\n"


@pytest.mark.parametrize(
    "typed", ["", "short", KEY + " " + KEY, f"{KEY}\n{KEY}", "$(touch /tmp/x)" + "a" * 40, "x" * 3000]
)
def test_an_invalid_key_is_refused_and_not_printed(run: Run, home: Path, typed: str):
    done = run(typed=typed)
    assert done.returncode == 1
    assert "a key has 32 to 512" in done.stderr
    assert not typed or typed not in done.stderr
    assert list(home.iterdir()) == []


def test_a_file_that_others_can_read_is_made_private(run: Run, home: Path):
    run(typed=KEY)
    enroot(home).chmod(0o644)
    run(typed=KEY)
    assert stat.S_IMODE(enroot(home).stat().st_mode) == 0o600


def test_what_others_can_write_to_and_what_is_no_file_is_refused(run: Run, home: Path):
    enroot(home).parent.mkdir(parents=True, mode=0o700)
    os.mkfifo(enroot(home))
    assert str(enroot(home)) in run(typed=KEY).stderr
    enroot(home).unlink()
    apptainer(home).parent.mkdir(mode=0o700)
    for text in ("no json", "[]", '{"auths": []}'):
        apptainer(home).write_text(text)
        assert f"{apptainer(home)} is no JSON of logins" in run(typed=KEY).stderr
        assert not enroot(home).exists(), "checked before the first is written"
    apptainer(home).unlink()
    for folder in (enroot(home).parent, home):
        folder.chmod(0o770)
        done = run(typed=KEY)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{folder} is not yours alone to write to" in done.stderr
        folder.chmod(0o700)


def test_a_link_to_a_file_stays_a_link(run: Run, home: Path):
    kept = home / "dotfiles"
    kept.mkdir(mode=0o700)
    enroot(home).parent.mkdir(parents=True, mode=0o700)
    enroot(home).symlink_to(kept / "credentials")
    assert run(typed=KEY).returncode == 0
    assert enroot(home).is_symlink()
    assert KEY in (kept / "credentials").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_a_home_of_another_user_is_refused(run: Run, home: Path):
    os.chown(home, 61001, 61001)
    done = run(typed=KEY)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{home} is not yours alone to write to" in done.stderr


def test_the_path_is_that_of_enroots_settings(run: Run, home: Path):
    done = run(typed=KEY, ENROOT_CONFIG_PATH=f"{home}/.enroot")
    assert done.returncode == 0
    assert (home / ".enroot" / ".credentials").exists()


def test_the_first_setting_of_enroot_counts(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("ENROOT_CONFIG_PATH", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert nvcrlogin.credentials(tmp_path) == enroot(home)
    folder = tmp_path / "enroot.conf.d"
    folder.mkdir()
    (folder / "10-hpc.conf").write_text("ENROOT_CONFIG_PATH ${HOME}/.enroot\n")  # as the image has it
    (folder / "20-site.conf").write_text("ENROOT_CONFIG_PATH=/site\n")
    assert nvcrlogin.credentials(tmp_path) == home / ".enroot" / ".credentials"
    (tmp_path / "enroot.conf").write_text('#ENROOT_CONFIG_PATH /no\n ENROOT_CONFIG_PATH = "$HOME/e"\n')
    assert nvcrlogin.credentials(tmp_path) == home / "e" / ".credentials"


@pytest.fixture
def terminal(home: Path) -> tuple[int, int]:
    """It asks for a key at a terminal: its process, and our end of the terminal."""
    child, ours = pty.fork()
    if child == 0:
        os.execve(sys.executable, [sys.executable, "-I", str(PROGRAM)], {"HOME": str(home)})  # noqa: S606
    shown = b""
    while b"(not shown)" not in shown:
        shown += os.read(ours, 1000)
    return child, ours


def test_a_terminal_does_not_show_the_key(terminal: tuple[int, int], home: Path):
    child, ours = terminal
    os.write(ours, f"{KEY}\n".encode())
    shown = b""
    with contextlib.suppress(OSError):  # how Linux ends a terminal
        while more := os.read(ours, 1000):
            shown += more
    assert os.waitpid(child, 0)[1] == 0
    assert KEY.encode() not in shown
    assert KEY in enroot(home).read_text()


def test_an_interrupt_changes_nothing(terminal: tuple[int, int], home: Path):
    child, ours = terminal
    os.write(ours, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    os.close(ours)
    assert list(home.iterdir()) == []
