"""The stand-in kubelet is built from what go.mod and go.sum pin."""

from pathlib import Path

import pytest

from lab.kubernetes import binaries

SOURCE = Path(__file__).parents[3] / "lab" / "kubelet"


@pytest.mark.slow
def test_it_builds_once():
    built = binaries.build("kubelet", SOURCE)
    assert built.exists()
    assert binaries.build("kubelet", SOURCE) == built
