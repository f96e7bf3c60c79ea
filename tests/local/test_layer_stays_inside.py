"""Files are written into a machine as the machine sees its paths: a link in its root never leads out to the host."""

import os
import stat
from pathlib import Path

import pytest

from components.local.host.errors import HostError
from components.local.host.machines.layer import File, Layer

ME = f"{os.getuid()}:{os.getgid()}"


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    base, top = tmp_path / "base", tmp_path / "top"
    (base / "etc").mkdir(parents=True)
    (base / "usr/bin").mkdir(parents=True)
    (base / "bin").symlink_to("usr/bin")
    (base / "outside").symlink_to("/etc")
    (base / "up").symlink_to("../../../../..")
    (base / "loop").symlink_to("loop")
    (base / "etc/motd").write_text("base")
    (base / "private").mkdir(mode=0o700)
    top.mkdir()
    return Layer(top, base)


def test_an_absolute_link_is_followed_inside_the_root(layer: Layer) -> None:
    layer.write("/outside/hostname", File(content="m", owner=ME))
    assert (layer.top / "etc/hostname").read_text() == "m"


def test_a_link_upwards_ends_at_the_root(layer: Layer) -> None:
    layer.write("/up/usr/file", File(content="m", owner=ME))
    assert (layer.top / "usr/file").read_text() == "m"


def test_a_relative_link_of_the_base_is_followed(layer: Layer) -> None:
    layer.write("/bin/tool", File(content="m", mode=0o755, owner=ME))
    written = layer.top / "usr/bin/tool"
    assert written.read_text() == "m"
    assert stat.S_IMODE(written.stat().st_mode) == 0o755
    assert not (layer.top / "bin").exists()


def test_links_in_a_circle_end(layer: Layer) -> None:
    with pytest.raises(HostError, match=r"files\[/loop/a\]: too many links"):
        layer.write("/loop/a", File(owner=ME))


@pytest.mark.parametrize("path", ["relative", "/etc/../../host", "/"])
def test_paths_that_are_no_place_for_a_file_are_refused(layer: Layer, path: str) -> None:
    with pytest.raises(HostError, match="must be an absolute path"):
        layer.write(path, File(owner=ME))


def test_folders_of_the_base_keep_their_mode(layer: Layer) -> None:
    layer.write("/private/key", File(content="k", mode=0o400, owner=ME))
    assert stat.S_IMODE((layer.top / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((layer.top / "private/key").stat().st_mode) == 0o400


def test_a_link_in_the_files_own_place_is_replaced_not_followed(layer: Layer) -> None:
    layer.write("/etc/a", File(link="/etc/motd"))
    layer.write("/etc/a", File(content="own", owner=ME))
    assert not (layer.top / "etc/a").is_symlink()
    assert (layer.base or Path()).joinpath("etc/motd").read_text() == "base"


def test_a_folder_is_not_replaced_by_a_file(layer: Layer) -> None:
    (layer.top / "etc/d").mkdir(parents=True)
    with pytest.raises(HostError, match=r"files\[/etc/d\]: is a folder"):
        layer.write("/etc/d", File(owner=ME))
    assert list((layer.top / "etc").iterdir()) == [layer.top / "etc/d"]


def test_a_removed_file_of_the_base_is_out_of_sight(layer: Layer) -> None:
    layer.write("/etc/motd", File(content="ours", owner=ME))
    layer.remove("/etc/motd")
    whiteout = (layer.top / "etc/motd").stat()
    assert stat.S_ISCHR(whiteout.st_mode)
    assert whiteout.st_rdev == 0
    layer.remove("/etc/never-was")
    assert not (layer.top / "etc/never-was").exists()


def test_owners_are_the_machines_not_the_hosts(layer: Layer) -> None:
    layer.write("/etc/passwd", File(content=f"munge:x:{os.getuid()}:0::/:\n", owner=ME))
    layer.write("/etc/group", File(content=f"munge:x:{os.getgid()}:\n", owner=ME))
    layer.write("/etc/key", File(content="k", owner="munge"))
    with pytest.raises(HostError, match=r"files\[/etc/x\]: the machine has no 'root' in /etc/passwd"):
        layer.write("/etc/x", File(owner="root:root"))
