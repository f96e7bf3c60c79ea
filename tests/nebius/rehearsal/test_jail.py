"""What the jail shares is written to machines alone, whatever has become of the numbers of their processes."""

import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from components.local.host.layer import Layer
from components.local.host.paths import HostError
from components.local.host.process import Process
from lab.soperator import jail


def place(root):
    return Path(f"/proc/self/fd/{root.top}").resolve()


@pytest.fixture
def written(monkeypatch):
    """The roots that something is written to; nothing is."""
    found = []
    monkeypatch.setattr(jail, "_dress", lambda root: found.append(place(root)))
    monkeypatch.setattr(jail, "_copy", lambda _source, target: found.append(place(target)))
    monkeypatch.setattr(jail, "_add_keys", lambda root, _keys: found.append(place(root)))
    monkeypatch.setattr(jail, "_listen", lambda _process, root, _port: found.append(place(root)))
    monkeypatch.setattr(jail.Accounts, "_watch", lambda _self: None)
    return found


def test_the_root_of_a_process_that_runs_is_written_to_once(written):
    process = Process.of(os.getpid())
    assert process is not None
    accounts = jail.Accounts()
    accounts.share({"worker-0": process}, ["key"], 0)
    assert set(written) == {Path("/")}
    written.clear()
    accounts.share({"worker-0": process}, ["key"], 0)
    assert written == []


@pytest.mark.parametrize("names", [("login-0",), ("worker-0",), ("login-0", "login-1", "worker-0")])
def test_a_number_that_another_process_has_by_now_is_left_alone(written, names):
    process = Process.of(os.getpid())
    assert process is not None
    # What is on record started before: its number is that of a process of this host now.
    gone = replace(process, started=process.started - 1)
    jail.Accounts().share(dict.fromkeys(names, gone), ["key"], 0)
    assert written == []


POPULATED = ".populated"
FILES = (
    "etc/passwd",
    "etc/shadow",
    "root/.ssh/authorized_keys",
    "etc/ssh/sshd_config.d/30-node-port.conf",
    POPULATED,
)


@pytest.fixture
def machine(tmp_path):
    """Roots of two machines beside a folder of the host, which has the same files."""
    for folder in ("host", "first", "machine"):
        for name in ("etc/ssh/sshd_config.d", "root/.ssh", "mnt"):
            (tmp_path / folder / name).mkdir(parents=True)
        for name in ("passwd", "shadow"):
            (tmp_path / folder / "etc" / name).write_text(f"{folder}\n")
    (tmp_path / "host" / POPULATED).write_text("host\n")
    with opened(tmp_path / "machine") as root, opened(tmp_path / "first") as first:
        yield root, first


@contextmanager
def opened(folder):
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Layer(handle)
    finally:
        os.close(handle)


def attempt(root, first):
    """All that is written to a machine, as far as it goes."""
    process = Process.of(os.getpid())
    assert process is not None
    for act in (
        lambda: jail._dress(root),
        lambda: jail._copy(first, root),
        lambda: jail._add_keys(root, ["ssh-ed25519 AAAA key"]),
        lambda: jail._listen(replace(process, started=0), root, 30022),
    ):
        with suppress(OSError, HostError):
            act()


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_shared_files_are_written_to_machines(machine, tmp_path):
    attempt(*machine)
    assert (tmp_path / "machine/etc/passwd").read_text() == "first\n"
    assert "AAAA" in (tmp_path / "machine/root/.ssh/authorized_keys").read_text()
    assert "30022" in (tmp_path / "machine/etc/ssh/sshd_config.d/30-node-port.conf").read_text()
    assert (tmp_path / "machine" / POPULATED).exists()
    assert (tmp_path / "machine/mnt/jail").readlink() == Path("/")


@pytest.mark.parametrize("name", [*FILES, "etc", "etc/ssh", "etc/ssh/sshd_config.d", "root", "root/.ssh", "mnt"])
def test_a_link_in_a_machine_leads_nowhere(machine, tmp_path, name):
    there = tmp_path / "machine" / name
    shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)
    there.symlink_to(tmp_path / "host" / name)
    before = content(tmp_path / "host")
    attempt(*machine)
    assert content(tmp_path / "host") == before


@pytest.mark.parametrize("name", ["etc/passwd", "etc"])
def test_links_in_a_machine_are_not_followed_by_reads(machine, tmp_path, name):
    there = tmp_path / "first" / name
    shutil.rmtree(there) if there.is_dir() else there.unlink()
    there.symlink_to(tmp_path / "host" / name)
    attempt(*machine)
    assert (tmp_path / "machine/etc/passwd").read_text() == "machine\n"


def test_a_pipe_is_not_waited_for(machine, tmp_path):
    (tmp_path / "first/etc/passwd").unlink()
    os.mkfifo(tmp_path / "first/etc/passwd")
    attempt(*machine)
    assert (tmp_path / "machine/etc/passwd").read_text() == "machine\n"
