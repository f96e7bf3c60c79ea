"""A site for each test: the Kubernetes API is shared, and empty again after each."""

import pytest

from components.nebius.rehearsal import binaries
from components.nebius.rehearsal.apiserver import ApiServer
from components.nebius.rehearsal.operator import CONTROLLERS
from tests.nebius.deploy.site import Site


@pytest.fixture(scope="session")
def programs():
    return binaries.ensure()


@pytest.fixture(scope="session")
def server(tmp_path_factory, programs):
    folder = tmp_path_factory.mktemp("api") / "k"
    with ApiServer(folder, programs, controllers=CONTROLLERS, bound=True).running() as access:
        yield access


@pytest.fixture
def site(tmp_path, server, programs, monkeypatch):
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with Site(tmp_path, server, programs) as found:
        yield found
