"""A host that can't run machines is refused in words that say what to do, before anything is made."""

from collections.abc import Callable

import pytest

from components.local.host import process
from components.local.host.paths import HostError


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this a host that has only the given commands."""

    def make(*commands: str, root: bool = True) -> None:
        monkeypatch.setattr(process.shutil, "which", lambda name, **_: f"/usr/bin/{name}" if name in commands else None)
        monkeypatch.setattr(process.os, "geteuid", lambda: 0 if root else 1000)

    return make


def test_what_is_missing_is_named_by_package(host: Callable[..., None]) -> None:
    host("ip", "ssh-keygen", "nft")
    assert process.missing_packages() == ["systemd-container", "mmdebstrap"]


def test_without_root_it_says_so_first(host: Callable[..., None]) -> None:
    host("apt-get", root=False)
    with pytest.raises(HostError, match=r"run again as root"):
        process.require_host()
    with pytest.raises(HostError, match=r"run again as root"):
        process.install_packages(["mmdebstrap"], print)


def test_with_apt_it_names_the_command(host: Callable[..., None]) -> None:
    host("apt-get", "ip", "ssh-keygen", "systemd-nspawn", "nft")
    with pytest.raises(HostError, match=r"lacks mmdebstrap; run: apt-get install mmdebstrap$"):
        process.require_host()


def test_without_apt_it_names_commands_and_packages(host: Callable[..., None]) -> None:
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

    def test_nothing_missing_is_nothing_done(self, ran: list[str]) -> None:
        process.install_packages([], print)
        assert ran == []
