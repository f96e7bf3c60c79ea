"""A whole stack: up, changes, refresh, destroy; with the API, a real Kubernetes API and real Helm."""

import pytest

pytestmark = pytest.mark.slow


def test_up_again_and_destroy(site):
    site.write()
    site.run("up")
    outputs = site.outputs()
    assert outputs["login"] == "login-0"
    assert site.run("preview") == {}
    site.run("destroy")
    assert site.owned() == []
