"""What users run, on a real cluster."""

import pytest

from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.e2e


def test_packages_of_the_stack_are_on_every_machine(lab: Cluster):
    look = "import mpi4py, torch; print(mpi4py.__version__, torch.__version__)"
    found = lab.run("srun", "-N8", "python3", "-c", look, user="alice").splitlines()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert lab.run("python3", "-c", look, user="alice") == found[0]
