"""A site for each test, with a Kubernetes API of its own: what a destroyed stack left would meet the next one."""

import pytest

from components.nebius.rehearsal import binaries
from components.nebius.rehearsal.apiserver import ApiServer
from components.nebius.rehearsal.operator import CONTROLLERS
from tests.nebius.deploy.site import Site


@pytest.fixture(scope="session")
def programs():
    return binaries.ensure()


@pytest.fixture
def site(tmp_path, programs, monkeypatch):
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "site"
    folder.mkdir()
    with (
        ApiServer(tmp_path / "k", programs, controllers=CONTROLLERS, bound=True).running() as access,
        Site(folder, access, programs) as found,
    ):
        yield found
