"""Files are written into a machine as the machine sees its paths: a link in its root never leads out to the host."""

import ctypes
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from components.local.host.layer import File, Layer, stopped
from components.local.host.paths import HostError

ME = f"{os.getuid()}:{os.getgid()}"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    (base / "etc").mkdir(parents=True)
    (base / "usr/bin").mkdir(parents=True)
    (base / "bin").symlink_to("usr/bin")
    (base / "outside").symlink_to("/etc")
    (base / "up").symlink_to("../../../../..")
    (base / "loop").symlink_to("loop")
    (base / "etc/motd").write_text("base")
    (base / "private").mkdir(mode=0o700)
    return base


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "top").mkdir()
    return tmp_path / "top"


@pytest.fixture
def layer(base: Path, top: Path) -> Iterator[Layer]:
    with stopped(top, base) as layer:
        yield layer


def test_an_absolute_link_is_followed_inside_the_root(layer: Layer, top: Path) -> None:
    layer.write("/outside/hostname", File(content="m", owner=ME))
    assert (top / "etc/hostname").read_text() == "m"


def test_a_link_upwards_ends_at_the_root(layer: Layer, top: Path) -> None:
    layer.write("/up/usr/file", File(content="m", owner=ME))
    assert (top / "usr/file").read_text() == "m"


def test_a_relative_link_of_the_base_is_followed(layer: Layer, top: Path) -> None:
    layer.write("/bin/tool", File(content="m", mode=0o755, owner=ME))
    written = top / "usr/bin/tool"
    assert written.read_text() == "m"
    assert stat.S_IMODE(written.stat().st_mode) == 0o755
    assert not (top / "bin").exists()


def test_links_in_a_circle_end(layer: Layer) -> None:
    with pytest.raises(HostError, match=r"files\[/loop/a\]: too many links"):
        layer.write("/loop/a", File(owner=ME))


@pytest.mark.parametrize("path", ["relative", "/etc/../../host", "/"])
def test_invalid_paths_are_refused(layer: Layer, path: str) -> None:
    with pytest.raises(HostError, match="must be an absolute path"):
        layer.write(path, File(owner=ME))


def test_folders_of_the_base_keep_their_mode(layer: Layer, top: Path) -> None:
    layer.write("/private/key", File(content="k", mode=0o400, owner=ME))
    assert stat.S_IMODE((top / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((top / "private/key").stat().st_mode) == 0o400


def test_a_link_at_the_files_path_is_replaced_not_followed(layer: Layer, top: Path, base: Path) -> None:
    layer.write("/etc/a", File(link="/etc/motd"))
    layer.write("/etc/a", File(content="own", owner=ME))
    assert not (top / "etc/a").is_symlink()
    assert (base / "etc/motd").read_text() == "base"


def test_a_folder_is_not_replaced_by_a_file(layer: Layer, top: Path) -> None:
    (top / "etc/d").mkdir(parents=True)
    with pytest.raises(HostError, match=r"files\[/etc/d\]: is a folder"):
        layer.write("/etc/d", File(owner=ME))
    assert list((top / "etc").iterdir()) == [top / "etc/d"]


def test_a_removed_file_of_the_base_is_hidden(layer: Layer, top: Path) -> None:
    layer.write("/etc/motd", File(content="ours", owner=ME))
    layer.remove("/etc/motd")
    whiteout = (top / "etc/motd").stat()
    assert stat.S_ISCHR(whiteout.st_mode)
    assert whiteout.st_rdev == 0
    layer.remove("/etc/never-was")
    assert not (top / "etc/never-was").exists()


def test_owners_are_looked_up_in_the_machine_not_on_the_host(layer: Layer) -> None:
    layer.write("/etc/passwd", File(content=f"munge:x:{os.getuid()}:0::/:\n", owner=ME))
    layer.write("/etc/group", File(content=f"munge:x:{os.getgid()}:\n", owner=ME))
    layer.write("/etc/key", File(content="k", owner="munge"))
    with pytest.raises(HostError, match=r"files\[/etc/x\]: the machine has no 'root' in /etc/passwd"):
        layer.write("/etc/x", File(owner="root:root"))


def test_a_links_content_is_not_read(layer: Layer, top: Path) -> None:
    (top / "etc").mkdir()
    (top / "etc/passwd").symlink_to("/etc/passwd")
    assert layer.read("/etc/passwd") is None


def test_reading_a_pipe_does_not_block(layer: Layer, top: Path) -> None:
    (top / "etc").mkdir()
    os.mkfifo(top / "etc/motd")
    assert layer.read("/etc/motd") is None


def test_a_file_in_the_place_of_a_folder_is_named(layer: Layer, top: Path) -> None:
    (top / "etc").write_text("")
    with pytest.raises(HostError, match=r"files\[/etc/a/b\]: etc is in the way"):
        layer.write("/etc/a/b", File(owner=ME))


def test_a_folder_replaced_by_a_link_is_not_followed(layer: Layer, top: Path, tmp_path: Path) -> None:
    """Root of the machine swaps a folder on the way and a link to the host's, as fast as it can."""
    host = tmp_path / "host"
    for folder in (host / "deep", top / "etc/deep"):
        folder.mkdir(parents=True)
    (top / "link").symlink_to(host)
    libc, ended = ctypes.CDLL(None), threading.Event()

    def swap() -> None:
        while not ended.is_set():
            libc.renameat2(AT_FDCWD, os.fsencode(top / "etc"), AT_FDCWD, os.fsencode(top / "link"), RENAME_EXCHANGE)

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for _ in range(500):
            with suppress(OSError, HostError):
                layer.write("/etc/deep/new/file", File(content="m", owner=ME))
                layer.remove("/etc/deep/new/file")
    finally:
        ended.set()
        attacker.join()
    assert [path.name for path in host.rglob("*")] == ["deep"]
