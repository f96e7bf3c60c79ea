"""A place of their own for tests that make real machines, beside whatever else runs on this host."""

import ipaddress
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.local.host import bridge, stacks
from components.local.host.image import ensure_image
from components.local.host.locks import locked, remove_empty
from components.local.host.paths import images_root
from components.local.host.recipe import recipe

# Not pytest's own folder: what a killed test run leaves must be found again, and layers must lie on a disk.
PLACE = Path("/var/tmp/hpc-tests")  # noqa: S108 - root's own folder in it, made below


@pytest.fixture(scope="session")
def real_root() -> Iterator[Path]:
    """A root for stacks; everything that killed test runs left of theirs is removed first, and of this at the end."""
    PLACE.mkdir(mode=0o700, exist_ok=True)
    for left in PLACE.glob("*/"):
        with locked(PLACE / f"{left.name}.lock", wait=False) as dead:
            if dead:
                _clear(left)
    root = PLACE / f"run-{os.getpid()}"
    with locked(PLACE / f"{root.name}.lock"):
        root.mkdir()
        yield root
        _clear(root)
    remove_empty(PLACE)


@pytest.fixture(scope="session")
def real_images() -> Path:
    """The host's own cache of base images, with the image in it."""
    images = images_root()
    ensure_image("debian-12", images, print)
    return images


@pytest.fixture(scope="session")
def digest(real_images: Path) -> str:
    """Name of the base image."""
    return recipe("debian-12").digest


@pytest.fixture(scope="session")
def free_networks() -> Iterator[ipaddress.IPv4Network]:
    """Networks that nobody on this host uses, each handed out once."""
    start = 200 + os.getpid() % 50
    candidates = (
        ipaddress.IPv4Network(f"10.{200 + (start + n) % 50}.{os.getpid() % 250}.0/24") for n in itertools.count()
    )
    return (network for network in candidates if bridge.taken_by(network, but="") is None)


def _clear(root: Path) -> None:
    for stack in stacks.stacks(root):
        stacks.sweep(root, stack)
    shutil.rmtree(root, ignore_errors=True)
    (PLACE / f"{root.name}.lock").unlink(missing_ok=True)
