"""Containers fit their nodes: the recipe's arithmetic, its worked example, and that no node is ever overbooked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.nebius_machine_types import (
    GIB,
    MUNGE,
    PLATFORMS,
    Preset,
    Resources,
    allocatable,
    preset_of,
    slurmd_resources,
)
from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.releases import template
from tests.cluster.nebius.clusters import H100, gpus, groups, nebius

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


def _requests(values: dict[str, Any]) -> tuple[int, int]:
    requests = values["resources"]["requests"]
    return int(requests["cpu"].removesuffix("m")), int(requests["memory"].removesuffix("Mi"))


ON_EVERY_NODE = (
    _requests(template("nodeconfigurator")["rebooter"]), _requests(template("opentelemetry-collector"))
)  # fmt: skip
"""What pods that tolerate every taint request, in milli-CPUs and MiB. Metrics and logs may be added to a cluster that
is up, so there is always room for them."""


@pytest.mark.parametrize(
    ("role", "beside"), [("controller", ()), ("login", ()), ("accounting", (sizing.MARIADB,))]
)  # fmt: skip
@pytest.mark.parametrize("preset", [preset for preset in PLATFORMS["cpu-d3"].presets if preset.vcpus >= 8])
def test_containers_of_services_fit_their_nodes_beside_daemonsets(
    role: str, beside: tuple[Resources, ...], preset: Preset
) -> None:
    machine = {"machine_type": f"cpu-d3/{preset.name}"}
    given = {"nebius": {"accounting": machine}} if role == "accounting" else {role: machine}
    config = nebius(**given)
    main = sizing.service(config, role, *beside)
    assert min(main.cpu, main.memory, main.disk) > 0
    [group] = [group for group in groups(config) if group.role == role]
    node = allocatable(preset.vcpus, preset.memory_gib, group.disk_gib)
    own = (main, MUNGE, *beside)
    # OpenKruise's daemon requests 50m and 128 MiB (values.yaml of its chart).
    assert sum(item.cpu for item in own) + 50 + sum(cpu for cpu, _ in ON_EVERY_NODE) <= node.cpu
    assert sum(item.memory for item in own) + 128 + sum(memory for _, memory in ON_EVERY_NODE) <= node.memory
    assert sum(item.disk for item in own) <= node.disk


def test_services_have_no_more_cpus_than_the_recipe_gives_them() -> None:
    # nebius-solutions-library, soperator/modules/slurm/main.tf: floor() of what is left, 14 of 15 and 30 of 31.
    config = nebius(controller={"machine_type": "cpu-d3/16vcpu-64gb"}, login={"machine_type": "cpu-d3/32vcpu-128gb"})
    assert 13_000 < sizing.service(config, "controller").cpu <= 14_000
    assert 29_000 < sizing.service(config, "login").cpu <= 30_000


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        (Resources(cpu=50, memory=GIB), {"cpu": "50m", "memory": "1Gi"}),
        (Resources(cpu=0, memory=100, disk=3 * GIB), {"cpu": "0m", "memory": "100Mi", "ephemeralStorage": "3Gi"}),
    ],
)
def test_quantities_are_as_kubernetes_writes_them(given_: Resources, text: dict[str, str]) -> None:
    assert given_.quantities == text
