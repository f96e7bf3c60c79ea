"""A process is recognized by more than its number; a host that lacks what machines need is refused with what to do."""

import dataclasses
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from components.local.host import process
from components.local.host.paths import HostError
from components.local.host.process import Process, run
from tests.waiting import PATIENCE


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_process_can_be_recorded_and_loaded(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    (tmp_path / "run.json").write_text(json.dumps(dataclasses.asdict(process)))
    assert Process.load(tmp_path / "run.json") == process
    assert process.alive()


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}])
def test_another_process_with_the_same_number_is_not_signalled(
    sleeper: subprocess.Popen[bytes], change: dict[str, Any]
) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    stranger = dataclasses.replace(process, **change)
    assert not stranger.alive()
    assert stranger.end(signal.SIGKILL, wait=1)
    assert sleeper.poll() is None


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    assert process.end(signal.SIGKILL, wait=PATIENCE)


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', '{"pid": "x", "started": 1, "boot": "b"}', "[]"])
def test_an_incomplete_record_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert Process.load(tmp_path / "run.json") is None


def test_the_error_of_a_failed_command_has_its_output() -> None:
    with pytest.raises(HostError, match=r"sh -c .*: no such luck"):
        run(["sh", "-c", "echo no such luck >&2; exit 3"])
    with pytest.raises(HostError, match="hpc-no-such-command: not found on this machine"):
        run(["hpc-no-such-command"])


@pytest.mark.e2e
def test_the_first_process_of_a_namespace_is_recognized(sleeper: subprocess.Popen[bytes]) -> None:
    """systemd-nspawn's helpers are its children too, and must not be taken for the machine."""
    helper = Process.of(sleeper.pid)
    assert helper is not None
    assert not helper.is_first_of_namespace()
    with subprocess.Popen(["unshare", "--fork", "--pid", "sh", "-c", "echo; exec sleep 600"], stdout=-1) as outer:
        assert outer.stdout is not None
        outer.stdout.readline()
        first = Process.of(outer.pid)
        inside = first and Process.of(first.children()[0])
        assert inside is not None
        assert inside.is_first_of_namespace()
        assert inside.end(signal.SIGKILL, wait=PATIENCE)
        outer.wait()  # it has taken leave of the process, which was a zombie until then
        assert not inside.is_first_of_namespace()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this a host that has only the given commands."""

    def make(*commands: str, root: bool = True) -> None:
        monkeypatch.setattr(process.shutil, "which", lambda name, **_: f"/usr/bin/{name}" if name in commands else None)
        monkeypatch.setattr(process.os, "geteuid", lambda: 0 if root else 1000)

    return make


def test_missing_packages_are_named(host: Callable[..., None]) -> None:
    host("ip", "ssh-keygen", "nft")
    assert process.missing_packages() == ["systemd-container", "mmdebstrap"]


def test_missing_root_is_reported_first(host: Callable[..., None]) -> None:
    host("apt-get", root=False)
    with pytest.raises(HostError, match=r"run again as root"):
        process.require_host()
    with pytest.raises(HostError, match=r"run again as root"):
        process.install_packages(["mmdebstrap"], print)


def test_with_apt_the_message_has_the_command(host: Callable[..., None]) -> None:
    host("apt-get", "ip", "ssh-keygen", "systemd-nspawn", "nft")
    with pytest.raises(HostError, match=r"lacks mmdebstrap; run: apt-get install mmdebstrap$"):
        process.require_host()


def test_without_apt_the_message_has_commands_and_packages(host: Callable[..., None]) -> None:
    host("ip", "ssh-keygen", "mmdebstrap", "nft")
    expected = r"lacks systemd-nspawn \(Debian package systemd-container\), and has no apt-get"
    with pytest.raises(HostError, match=expected):
        process.require_host()
    with pytest.raises(HostError, match=expected):
        process.install_packages(["systemd-container"], print)


class TestInstalling:
    """apt-get's lists may be missing (a fresh container) or old (a fresh virtual machine)."""

    @pytest.fixture
    def ran(self, host: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
        host("apt-get")
        ran: list[str] = []

        def run(command: list[str], **_: object) -> str:
            ran.append(command[1])
            if ran == ["install"]:
                msg = "404 Not Found"
                raise HostError(msg)
            return ""

        monkeypatch.setattr(process, "run", run)
        return ran

    def test_missing_lists_are_fetched_first(self, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "_has_lists", lambda: False)
        said: list[str] = []
        process.install_packages(["mmdebstrap"], said.append)
        assert ran == ["update", "install"]
        assert said == ["installing mmdebstrap with apt-get"]

    def test_old_lists_are_refreshed_once(self, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "_has_lists", lambda: True)
        process.install_packages(["mmdebstrap"], lambda _: None)
        assert ran == ["install", "update", "install"]

    def test_without_missing_packages_nothing_is_installed(self, ran: list[str]) -> None:
        process.install_packages([], print)
        assert ran == []
