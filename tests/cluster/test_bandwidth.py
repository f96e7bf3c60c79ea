"""Capacity and bandwidth of Lustre follow from the catalog, and its figures are within reason of what was measured."""

import pytest

from cluster.catalog import DISK_TYPES, MACHINE_TYPES
from cluster.catalog.storage import disks_mbps
from cluster.config.storage import Lustre, Oss, Targets
from cluster.platforms.gcp.filesystems.exascaler import Exascaler, server_mbps
from cluster.platforms.gcp.filesystems.lustre import Expected, Managed


def exascaler(servers: int = 3, machine_type: str = "n2-standard-16", **targets) -> Lustre:
    ost = Targets(**{"type": "pd-ssd", "size_gb": 3500, **targets})
    return Lustre(kind="exascaler", oss=Oss(machine_type=machine_type, count=servers, ost=ost))


def test_the_guides_three_servers():
    assert Exascaler.expected(exascaler()) == Expected(capacity_gib=10_500, read_mbps=3600, write_mbps=3600)


def test_managed_lustre_gives_what_is_bought_for_each_tib():
    assert Managed.expected(Lustre(kind="managed", size_gib=36_000, throughput=500)) == Expected(
        capacity_gib=36_000, read_mbps=17_578, write_mbps=17_578
    )


def test_what_was_measured_lies_below_the_limits_and_not_far_below():
    """exascaler-cloud-terraform, README: 16 servers, 55 TiB, 8 clients; 7.4 GiB/s of reading, 6.3 of writing."""
    found = Exascaler.expected(exascaler(servers=16, size_gb=3500))
    assert found.capacity_gib / 1024 == pytest.approx(55, rel=0.01)
    for limit, measured in ((found.read_mbps, 7.4 * 1074), (found.write_mbps, 6.3 * 1074)):
        assert measured < limit < 3 * measured


@pytest.mark.parametrize(
    ("machine_type", "targets", "read", "write"),
    [
        ("n2-standard-16", {"size_gb": 1000}, 480, 480),  # the disk
        ("n2-standard-16", {"size_gb": 1000, "count": 2}, 960, 960),  # two of them
        ("n2-standard-8", {"size_gb": 3500}, 800, 800),  # the machine's limit for disks
        ("n2-standard-16", {"type": "pd-standard", "size_gb": 10_000}, 1200, 400),  # the disk's own
        ("n2-standard-80", {"type": "hyperdisk-extreme", "size_gb": 3500}, 4000, 2068),  # the network, in writing
        ("n2-standard-16", {"type": "hyperdisk-throughput", "size_gb": 4096, "mbps": 300}, 300, 300),  # as provisioned
        ("n2-standard-16", {"type": "hyperdisk-throughput", "size_gb": 4096}, 10, 10),  # not: the least
        ("e2-standard-2", {"size_gb": 3500}, 240, 240),
    ],
)
def test_the_least_of_disks_machine_and_network_decides(machine_type, targets, read, write):
    lustre = exascaler(machine_type=machine_type, **targets)
    assert server_mbps(machine_type, lustre.oss.ost) == (read, write)


def test_every_machine_of_google_has_limits_and_a_disk_that_it_can_boot_from():
    for kind in MACHINE_TYPES.values():
        if kind.platform == "gcp":
            assert kind.egress_mbps > 0
            assert disks_mbps("pd-ssd", kind.cpus) > 0
            assert any(kind.takes(row.name) for row in DISK_TYPES.values() if row.bootable)


def test_every_disk_type_is_taken_by_some_machine():
    for row in DISK_TYPES.values():
        assert any(kind.takes(row.name) for kind in MACHINE_TYPES.values()), row.name
        assert row.smallest_gb < row.largest_gb
