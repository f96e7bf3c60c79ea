"""A place of their own for tests that make real machines, beside whatever else runs on this host."""

import ipaddress
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.local.host import bridge
from components.local.host.images import ensure_image, recipe
from components.local.host.paths import images_root
from tests.places import own_root


@pytest.fixture(scope="session")
def real_root() -> Iterator[Path]:
    """A root for stacks."""
    with own_root("local") as root:
        yield root


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
