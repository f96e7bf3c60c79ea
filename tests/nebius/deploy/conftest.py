"""A site with a Kubernetes API of its own."""

import pytest

from lab.kubernetes.apiserver import ApiServer
from lab.soperator import CONTROLLERS
from tests.nebius.deploy.site import Site


@pytest.fixture(scope="module")
def lasting(tmp_path_factory, programs):
    """A site for tests that follow each other: each takes the stack as the one before left it."""
    parent = tmp_path_factory.mktemp("lasting")
    folder = parent / "site"
    folder.mkdir()
    with (
        ApiServer(parent / "k", programs, controllers=CONTROLLERS, bound=True).running() as access,
        Site(folder, access, programs) as found,
    ):
        yield found
