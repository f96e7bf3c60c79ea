"""Rows of the catalog have a source, sizes that machines have, and names that exist."""

import pytest

from cluster.catalog import DISK_TYPES, IMAGES, MACHINE_TYPES, Gpu, fabrics
from cluster.catalog.machine_families import ACCELERATORS, FAMILIES, family_of
from cluster.catalog.slurm_releases import VERSIONS
from cluster.catalog.storage import disks_mbps
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.image import parts
from cluster.platforms.registry import all_platforms
from tests.clouds import unchecked
from tests.cluster.stacks import ROOT


@pytest.mark.parametrize("row", MACHINE_TYPES.values(), ids=lambda row: row.name)
def test_a_machine_type_has_a_source_and_no_more_than_its_sizes(row):
    assert row.source
    assert row.cpus == row.sockets * row.cores_per_socket * row.threads_per_core > 0
    assert 0 < row.real_memory <= row.memory_mib
    # On a cloud machine, kernel and firmware use some of it.
    assert row.platform == "local" or row.real_memory < row.memory_mib
    assert not (row.gpu and row.family.gpus) or row.platform == "local"
    if row.platform == "gcp":
        assert row.egress_mbps > 0
        assert disks_mbps("pd-ssd", row.cpus) > 0
        assert any(row.takes(disk.name) for disk in DISK_TYPES.values() if disk.bootable)


def test_figures_equal_published_and_measured_ones():
    row = MACHINE_TYPES["a3-megagpu-8g"]
    assert (row.cpus, row.sockets, row.family.local_ssds) == (208, 2, 16)
    assert row.gpu == Gpu(type="h100", count=8)
    assert row.real_memory == 1_860_368
    # Measured with `free`.
    assert MACHINE_TYPES["e2-standard-4"].real_memory <= 15_990
    assert MACHINE_TYPES["n1-standard-1"].real_memory <= 3_661


@pytest.mark.parametrize("row", FAMILIES.values(), ids=lambda row: row.name)
def test_a_family_has_a_source_machine_types_and_existing_disks_and_gpus(row):
    assert row.source
    assert any(kind.family is row for kind in MACHINE_TYPES.values())
    assert set(row.disks) <= set(DISK_TYPES)
    assert set(row.gpus) <= {*ACCELERATORS, "standin"}


def test_a_type_belongs_to_the_family_with_the_longest_matching_name():
    assert family_of("a3-megagpu-8g").fabric is fabrics.TCPXO
    assert family_of("a3-ultragpu-8g").fabric is fabrics.ROCE
    with pytest.raises(KeyError):
        family_of("a3-othergpu-8g")


@pytest.mark.parametrize("row", DISK_TYPES.values(), ids=lambda row: row.name)
def test_a_disk_type_fits_some_machine_type(row):
    assert any(kind.takes(row.name) for kind in MACHINE_TYPES.values())
    assert row.smallest_gb < row.largest_gb


@pytest.mark.parametrize("row", fabrics.FABRICS, ids=lambda row: row.name)
def test_a_fabric_has_networks_for_its_nics_a_source_and_existing_files(row):
    assert bool(row.nics) == bool(row.mtu)
    assert len(set(row.nic_names)) in (0, row.nics)
    assert bool(row.gbps) == bool(row.rate_source)
    scripts = ROOT / "scripts"
    assert all((scripts / "jobs" / "environment" / f"{name}.sh").exists() for name in row.environment)
    assert all(list((scripts / "image").glob(f"*/{name}.sh")) for name in row.image_steps)


def test_machines_with_ten_nics_have_gib_and_not_tcpxo():
    names = ("a3-megagpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g")
    found = {name: unchecked(nodesets={"gpu": {"machine_type": name}}) for name in names}
    assert {name for name, config in found.items() if parts(config)["tcpxo"]} == {"a3-megagpu-8g"}
    assert {name for name, config in found.items() if parts(config)["gib"]} == {"a3-ultragpu-8g", "a4-highgpu-8g"}
    assert {len(plan(config).gpu) for config in found.values()} == {8}


def test_defaults_of_platforms_are_in_the_catalog():
    for platform in all_platforms():
        assert set(platform.machine_types.values()) <= set(MACHINE_TYPES)
        base = platform.defaults.get("image", {}).get("base")
        assert base is None or base == platform.images[0]


@pytest.mark.parametrize("row", IMAGES.values(), ids=lambda row: row.name)
def test_images_have_releases_of_slurm_that_are_in_the_catalog(row):
    assert row.slurm_versions
    assert set(row.slurm_versions) <= set(VERSIONS)
