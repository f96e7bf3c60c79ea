"""Containers fit their nodes: the recipe's arithmetic, its worked example, and that no node is ever overbooked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.catalog import MACHINE_TYPES
from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.machine_types import (
    GIB,
    MUNGE,
    PLATFORMS,
    Resources,
    allocatable,
    preset_of,
    slurmd_resources,
)
from tests.cluster.nebius.clusters import H100, gpus, nebius, settings

TYPES = [f"{platform.name}/{preset.name}" for platform in PLATFORMS.values() for preset in platform.presets]


def test_sizes_of_eight_h100_are_those_of_the_recipe() -> None:
    node = allocatable(128, 1600, 512)
    assert (node.cpu, node.memory, node.disk) == (127_000, 1518 * GIB, 387 * GIB)
    slurmd = sizing.slurmd(nebius(**gpus()), "worker")
    assert slurmd.quantities == {"cpu": "124950m", "memory": "1516Gi", "ephemeralStorage": "382Gi"}
    assert MUNGE.quantities == {"cpu": "100m", "memory": "512Mi", "ephemeralStorage": "5Gi"}
    # Slurm hands out what the container has.
    assert MACHINE_TYPES[H100].real_memory == slurmd.memory == 1516 * GIB


@given(st.sampled_from(TYPES), st.integers(128, 8192))
def test_no_node_is_overbooked(machine_type: str, disk: int) -> None:
    preset = preset_of(machine_type)
    node = allocatable(preset.vcpus, preset.memory_gib, disk)
    assert 0 <= node.cpu < preset.vcpus * 1000
    assert 0 <= node.memory < preset.memory_gib * GIB
    assert 0 < node.disk < disk * GIB
    found = slurmd_resources(node)
    if preset.vcpus >= 4:
        assert found.cpu + MUNGE.cpu < node.cpu
        assert found.memory + MUNGE.memory < node.memory
        assert found.disk + MUNGE.disk <= node.disk


@given(st.integers(0, 256), st.integers(0, 4096), st.integers(0, 8192))
def test_sizes_are_never_negative(vcpus: int, memory: int, disk: int) -> None:
    for found in (allocatable(vcpus, memory, disk), slurmd_resources(allocatable(vcpus, memory, disk))):
        assert min(found.cpu, found.memory, found.disk) >= 0


def test_containers_of_services_fit_their_nodes() -> None:
    config = nebius()
    dbd, group = sizing.service(config, "accounting", sizing.MARIADB), settings(config).accounting
    node = allocatable(8, 32, group.disk_gib)
    for amount in ("cpu", "memory", "disk"):
        used = sum(getattr(item, amount) for item in (dbd, MUNGE, sizing.MARIADB))
        assert getattr(dbd, amount) > 0
        assert used <= getattr(node, amount)
    for found in (sizing.service(config, "controller"), sizing.service(config, "login")):
        assert min(found.cpu, found.memory, found.disk) > 0


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        (Resources(cpu=50, memory=GIB), {"cpu": "50m", "memory": "1Gi"}),
        (Resources(cpu=0, memory=100, disk=3 * GIB), {"cpu": "0m", "memory": "100Mi", "ephemeralStorage": "3Gi"}),
    ],
)
def test_quantities_are_as_kubernetes_writes_them(given_: Resources, text: dict[str, str]) -> None:
    assert given_.quantities == text
