"""A site for each test, with a Kubernetes API of its own: what a destroyed stack left would meet the next one."""

import pytest

from lab.kubernetes.apiserver import ApiServer
from lab.soperator import CONTROLLERS
from tests.nebius.deploy.site import Site


@pytest.fixture
def site(tmp_path, programs):
    folder = tmp_path / "site"
    folder.mkdir()
    with (
        ApiServer(tmp_path / "k", programs, controllers=CONTROLLERS, bound=True).running() as access,
        Site(folder, access, programs) as found,
    ):
        yield found
