"""The healthy cluster that most tests break something in."""

import pytest

from cluster.observe.observation import ClusterObservation
from tests.cluster.observe.observations import healthy


@pytest.fixture
def seen() -> ClusterObservation:
    return healthy()
