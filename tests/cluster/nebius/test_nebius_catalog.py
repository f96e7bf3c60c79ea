"""The tables of Nebius: a machine type is what its name says, and versions are known by their faults."""

from typing import Any

import pytest

from cluster.catalog import IMAGES, MACHINE_TYPES
from cluster.catalog.nebius_machine_types import (
    FABRICS,
    PLATFORMS,
    REGIONS,
    fabrics_of,
    preset_of,
)
from cluster.catalog.slurm_releases import VERSIONS
from cluster.load import find_warnings
from cluster.platforms.nebius import versions
from tests.cluster.nebius.clusters import H100, ONE_GPU, gpus, nebius

TYPES = [machine_type for machine_type in MACHINE_TYPES.values() if machine_type.platform == "nebius"]


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_a_machine_type_is_what_its_name_says(row) -> None:
    platform, preset = PLATFORMS[row.family.name], preset_of(row.name)
    assert row.name == f"{platform.name}/{preset.name}"
    assert row.cpus == preset.vcpus
    assert row.memory_mib == preset.memory_gib * 1024
    assert (row.gpu.count if row.gpu else 0) == preset.gpus
    assert bool(row.gpu) == bool(platform.gpu)


def test_the_guides_gpus_are_called_as_there() -> None:
    row = MACHINE_TYPES[H100]
    assert row.gpu
    assert (row.gpu.type, row.gpu.count, row.sockets, row.cores_per_socket, row.threads_per_core) == (
        "nvidia_h100_80gb_hbm3", 8, 2, 32, 2,
    )  # fmt: skip


def test_a_gpu_cluster_takes_nodes_with_all_gpus_of_a_host() -> None:
    clusterable = {item.name for item in TYPES if preset_of(item.name).clusterable}
    assert H100 in clusterable
    assert "gpu-h100-sxm/1gpu-16vcpu-200gb" not in clusterable
    assert not [item for item in clusterable if not MACHINE_TYPES[item].gpu]


def test_fabrics_are_of_platforms_and_regions_that_there_are() -> None:
    assert all(region in PLATFORMS[platform].regions for platform, region in FABRICS.values())
    assert fabrics_of("gpu-h100-sxm", "eu-north1") == ["fabric-2", "fabric-3", "fabric-4", "fabric-6"]
    for platform in PLATFORMS.values():
        assert set(platform.regions) <= set(REGIONS)


class TestSoperator:
    def test_a_version_decides_release_and_images(self) -> None:
        assert versions.image_tag("4.1.7") == "4.1.7-slurm25.11.3"
        assert versions.SLURM.startswith(f"{versions.SLURM_RELEASE}.")
        assert nebius().slurm_version == versions.SLURM_RELEASE
        assert versions.SLURM_RELEASE in VERSIONS
        assert IMAGES["soperator"].slurm_versions == (versions.SLURM_RELEASE,)

    def test_the_defaults_are_the_recipes(self) -> None:
        # nebius-solutions-library 00c54d0, soperator/installations/example/terraform.tfvars: slurm_operator_version,
        # k8s_version.
        assert (versions.SOPERATOR, versions.KUBERNETES) == ("4.1.11", "1.36")

    @pytest.mark.parametrize(
        ("version", "changes", "pulls"),
        [
            ("4.1.4", {}, {2807, 2820}),
            ("4.1.7", {}, {2820}),
            ("4.1.7", gpus(), {2623, 2820}),
            ("4.1.11", {"nodesets": {"cpu": {"count": 1}, "gpu": {"machine_type": ONE_GPU}}}, {2683, 2820}),
            ("4.1.11", {"nodesets": {"worker": {"count": {"min": 1, "max": 2}}}}, {2820, 2859}),
        ],
    )
    def test_faults_of_a_version_are_named_where_a_cluster_has_them(
        self, version: str, changes: dict[str, Any], pulls: set[int]
    ) -> None:
        section = {**changes.get("nebius", {}), "soperator": {"version": version}}
        found = find_warnings(nebius(**{**changes, "nebius": section}))
        texts = [row.what for row in found if row.id == "nebius-soperator-fault"]
        assert {int(text.rpartition(" ")[2].rstrip(")")) for text in texts} == pulls
        assert all(("if it has what 4.1.7 has" in text) is (version == "4.1.11") for text in texts)
