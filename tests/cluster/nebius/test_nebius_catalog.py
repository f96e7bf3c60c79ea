"""The tables of Nebius: a machine type is what its name says, and versions are known by their faults."""

import pytest

from cluster.catalog import IMAGES, MACHINE_TYPES
from cluster.catalog.slurm_releases import VERSIONS
from cluster.load import find_warnings
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.machine_types import (
    FABRICS,
    PLATFORMS,
    REGIONS,
    fabrics_of,
    preset_of,
)
from tests.cluster.nebius.clusters import H100, nebius

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
    @pytest.mark.parametrize(
        ("version", "release", "tag"),
        [
            ("4.1.4", "25.11", "4.1.4-slurm25.11.3"),
            ("4.1.7", "25.11", "4.1.7-slurm25.11.3"),
            ("5.0.0", "26.05", "5.0.0-slurm26.05.3-nebius-2"),
        ],
    )
    def test_a_version_decides_release_and_images(self, version: str, release: str, tag: str) -> None:
        assert versions.series(version).release == release
        assert versions.image_tag(version) == tag
        assert nebius(nebius={"soperator": {"version": version}}).slurm_version == release

    def test_every_release_is_in_the_tables(self) -> None:
        releases = {row.release for row in versions.SERIES}
        assert releases <= set(VERSIONS)
        assert releases == set(IMAGES["soperator"].slurm_versions)

    def test_the_defaults_are_the_recipes(self) -> None:
        # nebius-solutions-library 00c54d0, soperator/installations/example/terraform.tfvars: slurm_operator_version,
        # k8s_version.
        assert (versions.SOPERATOR, versions.KUBERNETES) == ("4.1.11", "1.36")
        assert versions.is_known(versions.SOPERATOR)

    @pytest.mark.parametrize(
        ("version", "pulls"),
        [("4.1.4", {2807, 2623, 2820}), ("4.1.7", {2623, 2820}), ("4.1.11", {2623, 2820}), ("5.0.0", set())],
    )
    def test_faults_end_with_their_correction(self, version: str, pulls: set[int]) -> None:
        assert {fault.pull for fault in versions.faults(version)} == pulls

    @pytest.mark.parametrize(("version", "was_read"), [("4.1.4", True), ("4.1.7", True), ("4.1.8", False)])
    def test_what_was_read_is_distinguished_from_what_is_assumed(self, version: str, was_read: bool) -> None:
        assert versions.was_read(version) is was_read
        [finding] = [
            row
            for row in find_warnings(nebius(nebius={"soperator": {"version": version}}))
            if row.id == "nebius-soperator-open-faults"
        ]
        assert ("may have faults that 4.1.7 has" in finding.what) is not was_read

    @pytest.mark.parametrize("version", ["4.0.5", "4.2.0", "5.0.0"])
    def test_only_the_series_whose_charts_were_read_is_known_with_its_later_patches(self, version: str) -> None:
        assert not versions.is_known(version)
        assert versions.is_known("4.1.0")
        assert versions.is_known("4.1.11")
