"""Sites, each with a Kubernetes API of its own: what a destroyed stack left would meet the next one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.kubernetes.apiserver import ApiServer
from lab.soperator import CONTROLLERS
from tests.nebius.deploy.site import Site


@contextmanager
def in_folder(parent: Path, programs) -> Iterator[Site]:
    folder = parent / "site"
    folder.mkdir()
    with (
        ApiServer(parent / "k", programs, controllers=CONTROLLERS, bound=True).running() as access,
        Site(folder, access, programs) as found,
    ):
        yield found


@pytest.fixture
def site(tmp_path, programs):
    """A site for one test."""
    with in_folder(tmp_path, programs) as found:
        yield found


@pytest.fixture(scope="module")
def lasting(tmp_path_factory, programs):
    """A site for tests that follow each other: each takes the stack as the one before left it."""
    with in_folder(tmp_path_factory.mktemp("lasting"), programs) as found:
        yield found
