"""File systems: mounts of each machine, and capacity and bandwidth from the catalog."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.catalog.storage import MANAGED as MANAGED_SIZES
from cluster.catalog.storage import grows_to, nearest
from cluster.config import ClusterConfig
from cluster.config.storage import Lustre, Oss, Targets
from cluster.platforms.gcp.filesystems.base import MachineMount
from cluster.platforms.gcp.filesystems.buckets import LOCAL_SSDS, LOCAL_SSDS_UNIT
from cluster.platforms.gcp.filesystems.exascaler import Exascaler, server_mbps
from cluster.platforms.gcp.filesystems.lustre import Expected, Managed
from cluster.platforms.gcp.filesystems.registry import exports, mounts, targets
from cluster.roster import machines
from tests.clouds import A3, EXASCALER, MANAGED, google, unchecked
from tests.cluster import stacks

BUCKET = {"name": "my-datasets", "mount": "/gcs"}


def on(config: ClusterConfig, name: str) -> dict[str, MachineMount]:
    """A machine's mounts, by the end of its name."""
    (spec,) = [machine for machine in machines(config) if machine.name == f"{config.name}-{name}"]
    return {mount.target: mount for mount in mounts(config, spec)}


GPUS = {"gpu": A3, "cpu": {}}
STORAGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "Lustre": {"storage": {"lustre": EXASCALER}},
    "EXAScaler at /home": {"storage": {"lustre": {**EXASCALER, "mount": "/home"}}},
    "managed Lustre at /home": {"storage": {"lustre": {**MANAGED, "mount": "/home"}}},
    "Filestore at /home": {"storage": {"filestore": {"mount": "/home"}}},
    "a bucket": {"storage": {"buckets": [BUCKET]}, "nodesets": GPUS},
    "a bucket without a cache": {"storage": {"buckets": [{**BUCKET, "cache": False}]}, "nodesets": GPUS},
    "a bucket that is only read": {"storage": {"buckets": [{**BUCKET, "read_only": True}]}},
}


def test_mounts_of_each_machine(reviewed):
    """The controller exports /home where no other file system is there, and mounts nothing that it exports."""
    shown = {}
    for case, changes in STORAGES.items():
        config = google(**changes)
        rows = [f"exports: {', '.join(exports(config))}"]
        for name in ("controller", "login-0", "cpu-0", *(["gpu-0"] if "nodesets" in changes else [])):
            rows += [
                f"{name}: {mount.target} {mount.fs_type} {mount.source} {mount.options}"
                for mount in on(config, name).values()
            ]
        shown[case] = "\n".join(rows)
    reviewed("gcp/mounts", shown)


def test_the_image_mounts_local_ssds_by_the_unit_that_the_cache_requires():
    step = (stacks.ROOT / "scripts" / "image" / "storage" / "50-localssd.sh").read_text()
    assert f"mount={LOCAL_SSDS}\n" in step
    assert f"/etc/systemd/system/{LOCAL_SSDS_UNIT} " in step


@given(st.lists(st.sampled_from(["/a", "/a/b", "/data", "/data/x", "/x/y/z", "/gcs"]), unique=True))
def test_parents_come_first(places):
    names = [{"name": f"bucket-{number}", "mount": place} for number, place in enumerate(places)]
    config = unchecked(storage={"buckets": names})
    for spec in machines(config):
        order = [mount.target for mount in mounts(config, spec)]
        assert len(order) == len(set(order))
        for outer in order:
            assert all(order.index(outer) < order.index(inner) for inner in order if inner.startswith(f"{outer}/"))


@pytest.mark.parametrize("stack", [name for name in stacks.STACKS if stacks.config(name).platform == "gcp"])
def test_shared_folders_are_those_that_all_other_machines_mount(stack):
    config = stacks.config(stack)
    for spec in machines(config):
        mounted = {mount.target for mount in mounts(config, spec)}
        missing = set(targets(config)) - mounted
        assert missing == (set(exports(config)) if "controller" in spec.roles else set())


def test_local_machines_share_the_folders_of_the_stack_file():
    assert targets(stacks.config("dev")) == stacks.config("dev").storage.shared


def exascaler(servers: int = 3, machine_type: str = "n2-standard-16", **targets: Any) -> Lustre:
    ost = Targets.model_validate({"type": "pd-ssd", "size_gb": 3500, **targets})
    return Lustre(kind="exascaler", oss=Oss(machine_type=machine_type, count=servers, ost=ost))


def test_bandwidth_of_the_guides_three_servers():
    assert Exascaler.expected(exascaler()) == Expected(capacity_gib=10_500, read_mbps=3600, write_mbps=3600)


def test_managed_lustre_has_the_throughput_sold_for_each_tib():
    assert Managed.expected(Lustre(kind="managed", size_gib=36_000, throughput=500)) == Expected(
        capacity_gib=36_000, read_mbps=17_578, write_mbps=17_578
    )


@pytest.mark.parametrize(
    ("throughput", "smaller", "larger"),
    [  # GiB: first, last, step. docs.cloud.google.com/managed-lustre/docs/increase-capacity, read on 2026-11-28
        (1000, (9_000, 1_530_000, 9_000), (1_584_000, 10_008_000, 72_000)),
        (500, (18_000, 3_060_000, 18_000), (3_168_000, 20_016_000, 144_000)),
        (250, (36_000, 6_120_000, 36_000), (6_336_000, 40_032_000, 288_000)),
        (125, (72_000, 12_240_000, 72_000), (72_000, 12_240_000, 72_000)),
    ],
)
def test_managed_lustre_has_googles_sizes(throughput, smaller, larger):
    ranges = MANAGED_SIZES[throughput]

    def is_sold(size: int) -> bool:
        return any(sizes.fit(size) for sizes in ranges)

    for first, last, step in (smaller, larger):
        assert all(map(is_sold, (first, first + step, last - step, last)))
    assert not any(map(is_sold, (smaller[0] - smaller[2], smaller[0] + 1, larger[1] - larger[2] // 2)))
    assert not is_sold(larger[1] + larger[2])
    assert grows_to(ranges, smaller[0]) == smaller[1]
    assert nearest(ranges, smaller[1] + 1) == (larger[0] if smaller != larger else larger[1])


def test_measured_bandwidth_is_below_the_limits_and_near_them():
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
def test_bandwidth_is_the_least_of_disks_machine_and_network(machine_type, targets, read, write):
    lustre = exascaler(machine_type=machine_type, **targets)
    assert server_mbps(machine_type, lustre.oss.ost) == (read, write)
