"""Every row of the catalog says where it comes from, and promises Slurm nothing that is not there."""

import pytest

from cluster.catalog import IMAGES, MACHINE_TYPES, Gpu, machine_type
from cluster.catalog.parameters import VERSIONS
from cluster.platforms.defaults import PLATFORMS


@pytest.mark.parametrize("row", MACHINE_TYPES.values(), ids=lambda row: row.name)
class TestMachineTypes:
    def test_names_its_source(self, row):
        assert row.source

    def test_promises_no_more_memory_than_there_is(self, row):
        assert 0 < row.real_memory <= row.memory_mib
        # A machine of a cloud keeps some for kernel and firmware.
        assert row.platform == "local" or row.real_memory < row.memory_mib

    def test_has_sizes(self, row):
        assert row.cpus == row.sockets * row.cores_per_socket * row.threads_per_core > 0

    def test_takes_gpus_or_has_its_own(self, row):
        assert not (row.gpu and row.attachable_gpus) or row.platform == "local"


def test_a3_mega_is_as_published():
    row = machine_type("a3-megagpu-8g")
    assert (row.cpus, row.sockets, row.nics, row.local_ssds) == (208, 2, 9, 16)
    assert row.gpu == Gpu(type="h100", count=8)
    assert row.real_memory == 1_860_368


def test_real_memory_stays_below_what_free_was_seen_to_show():
    assert machine_type("e2-standard-4").real_memory <= 15_990
    assert machine_type("n1-standard-1").real_memory <= 3_661


def test_defaults_exist():
    for platform in PLATFORMS.values():
        assert set(platform.machine_types.values()) <= set(MACHINE_TYPES)
        base = platform.defaults.get("image", {}).get("base")
        assert base is None or platform.name in IMAGES[base].platforms


@pytest.mark.parametrize("row", IMAGES.values(), ids=lambda row: row.name)
def test_images_come_with_a_release_of_slurm_that_files_are_written_for(row):
    assert row.slurm_versions
    assert set(row.slurm_versions) <= set(VERSIONS)
