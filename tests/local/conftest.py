"""A place of their own for tests that make real machines, beside whatever else runs on this host."""

import ipaddress
import itertools
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from components.local.host import bridge
from components.local.host.images import ensure_image, recipe
from components.local.host.paths import images_root
from tests.local.real import RealStack
from tests.places import add_logs, own_root


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A red test prints the logs that explain it."""
    report = yield
    add_logs(report)
    return report


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


@pytest.fixture(scope="session")
def new_stack(
    real_root: Path, real_images: Path, digest: str, free_networks: Iterator[ipaddress.IPv4Network]
) -> Callable[..., RealStack]:
    """A function that gives a stack its root, image, network and key; nothing is made yet."""
    key = RealStack.keygen(real_root)

    def stack(name: str, kind: type[RealStack] = RealStack) -> RealStack:
        return kind(real_root, real_images, digest, name, next(free_networks), key)

    return stack
