"""`./hpc test` gets an emulator for the tests that need one, and goes on where it can't be had."""

from pathlib import Path

import pytest

from cli.checks import host

INSTALL = "install --yes --quiet --no-install-recommends qemu-system-x86 e2fsprogs"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a stand-in for apt-get was asked; it can't install before its lists are fresh."""
    (tmp_path / "apt-get").write_text(
        '#!/bin/sh\ncd "${0%/*}"\necho "$@" >>asked\n'
        'case $1 in update) test ! -e offline && : >fresh;; *) echo "E: no such version"; test -e fresh;; esac\n'
    )
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setattr(host, "_PATH", str(tmp_path))
    return tmp_path / "asked"


def test_old_lists_are_refreshed_once(asked: Path, capfd: pytest.CaptureFixture[str]) -> None:
    host._install_emulator()
    assert asked.read_text().splitlines() == [INSTALL, "update --quiet", INSTALL]
    assert "left out" not in "".join(capfd.readouterr())


def test_without_it_the_tests_go_on_and_say_what_is_left_out(asked: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked.with_name("offline").touch()
    host._install_emulator()
    assert "The tests of an emulated machine are left out" in "".join(capfd.readouterr())


def test_what_is_there_is_not_installed(asked: Path) -> None:
    for command in ("qemu-system-x86_64", "mke2fs"):
        asked.with_name(command).touch(mode=0o755)
    host._install_emulator()
    assert not asked.exists()
