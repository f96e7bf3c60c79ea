"""The base image for real: what is in it, and that a killed build or a full disk leaves nothing of it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.catalog.base_system import INTERPRETERS, LOGIN_SHELLS, is_system_name, missing_interpreter
from cluster.config.validators import REGULAR_UIDS
from components.local.host import images as base_images
from components.local.host.paths import HostError
from components.local.host.process import Process
from scripts.hostfiles import locked
from tests.waiting import wait_for

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
BUILD = """
import sys
from pathlib import Path
from components.local.host.images import ensure_image
ensure_image("debian-12", Path(sys.argv[1]), lambda line: print(line, flush=True))
"""


def test_a_killed_build_leaves_no_process_no_mount_and_no_half_image(real_root: Path) -> None:
    images = real_root / "images"
    before = set(Path(tempfile.gettempdir()).iterdir())
    with subprocess.Popen(
        [sys.executable, "-c", BUILD, str(images)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if "downloading packages" in line:
                break
        builders = [Process.of(int(path.name)) for path in Path("/proc").glob("[0-9]*") if _mentions(path, images)]
        assert len(builders) > 2
        run.kill()
    wait_for(lambda: not any(process.alive() for process in builders if process))
    assert f"{images}/" not in Path("/proc/mounts").read_text()
    assert list(images.glob("*/image.json")) == []
    with locked(images / ".build.lock", wait=False) as free:
        assert free
        base_images.sweep_builds(images)
    assert [path.name for path in images.iterdir()] == [".build.lock"]
    assert not [path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if "mmdebstrap" in path.name]


@pytest.fixture
def small_disk(real_root: Path) -> Iterator[Path]:
    """A file system of 100 MB."""
    folder = real_root / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "hpc-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


def test_a_disk_that_becomes_full_is_named_and_cleaned(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_images, "DISK_NEEDED", 0)
    monkeypatch.setattr(base_images, "_free_memory", lambda: 0)
    with pytest.raises(HostError) as caught:
        base_images.ensure_image("debian-12", small_disk, lambda _: None)
    assert str(caught.value).startswith(f"base image: the disk of {small_disk} became full while it was made")
    assert [path.name for path in small_disk.iterdir()] == [".build.lock"]


def test_a_disk_that_is_too_small_is_refused_and_not_changed(small_disk: Path) -> None:
    with pytest.raises(HostError, match=r"base image: \S+ has \d+ MB free and making it needs \d+ MB: free some space"):
        base_images.ensure_image("debian-12", small_disk, lambda _: None)
    assert [path.name for path in small_disk.iterdir()] == [".build.lock"]


def test_packages_that_debian_does_not_have_are_named(real_root: Path) -> None:
    images = real_root / "no-such"
    images.mkdir()
    with pytest.raises(HostError) as caught:
        base_images.ensure_image("debian-13", images, lambda _: None, ["podmann", "crun", "no-such-one"])
    assert str(caught.value) == (
        "base image: image.packages: debian-13 has no package no-such-one, podmann; nothing of it was kept: "
        "correct the name (packages.debian.org finds it), or remove it"
    )
    assert [path.name for path in images.iterdir()] == [".build.lock"]


def _mentions(process: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture
def image(real_images: Path, digest: str) -> Path:
    return real_images / digest / "root"


@pytest.mark.parametrize("table", ["passwd", "group"])
def test_names_of_the_image_are_refused_for_users(image: Path, table: str) -> None:
    rows = [line.split(":") for line in (image / "etc" / table).read_text().splitlines()]
    assert len(rows) > 20
    assert [row[0] for row in rows if not is_system_name(row[0])] == []
    assert [row[0] for row in rows if any(low <= int(row[2]) <= high for low, high in REGULAR_UIDS)] == []


def test_every_shell_and_interpreter_of_the_catalog_is_installed(image: Path) -> None:
    assert [shell for shell in LOGIN_SHELLS if not there(image, Path(shell))] == []
    for name in INTERPRETERS:
        assert there(image, Path("/usr/bin") / name), name
        assert missing_interpreter(f"#!/usr/bin/{name}\n") is None


def test_shells_of_the_image_allow_logins(image: Path) -> None:
    """sshd and chsh go by /etc/shells."""
    listed = [line for line in (image / "etc/shells").read_text().splitlines() if line.startswith("/")]
    assert [shell for shell in listed if there(image, Path(shell)) and shell not in LOGIN_SHELLS] == []


def there(image: Path, path: Path) -> bool:
    """Return whether a program is in the image; its links are followed within it."""
    place = image / path.relative_to("/")
    for _ in range(5):
        if not place.parent.is_dir() or not place.is_symlink():
            break
        target = place.readlink()
        place = image / target.relative_to("/") if target.is_absolute() else place.parent / target
    return place.is_file()
