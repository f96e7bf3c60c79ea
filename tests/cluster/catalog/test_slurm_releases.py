"""Each release of Slurm gets only parameters that it has: an unknown one in slurm.conf stops every daemon."""

import re

import pytest

from cluster.catalog.slurm_releases import CONF, NODE, PARTITION, VERSIONS
from cluster.checks.settings import owned_conf, owned_node, owned_partition
from cluster.config import ClusterConfig
from cluster.slurm.files import render, render_slurmdbd
from cluster.slurm.slurm_conf import settings
from tests.cluster.stacks import STACKS, config

# Of files whose few parameters need no table of their own: src/interfaces/cgroup.c and src/slurmdbd/read_config.c at
# the tags that cluster/catalog/slurm_releases.py names; these are in all of them.
CGROUP = {"CgroupPlugin", "ConstrainCores", "ConstrainRAMSpace", "ConstrainSwapSpace", "ConstrainDevices"}
SLURMDBD = {
    *("ArchiveDir", "ArchiveEvents", "ArchiveJobs", "ArchiveSteps", "AuthType", "DbdHost", "DbdPort", "DebugLevel"),
    *("LogFile", "PidFile", "PurgeEventAfter", "PurgeJobAfter", "PurgeResvAfter", "PurgeStepAfter"),
    *("PurgeSuspendAfter", "PurgeTXNAfter", "PurgeUsageAfter", "SlurmUser", "StorageHost", "StorageLoc"),
    *("StoragePass", "StoragePort", "StorageType", "StorageUser"),
}


def with_version(stack: str, version: str) -> ClusterConfig:
    """Return a stack's configuration for another release of Slurm."""
    cluster = config(stack)
    return cluster.model_copy(update={"slurm": cluster.slurm.model_copy(update={"version": version})})


def lines(text: str) -> list[dict[str, str]]:
    """Return the `Name=value` pairs of each line that is no comment."""
    return [
        dict(pair.split("=", 1) for pair in re.split(r"\s+(?=[A-Za-z]+=)", line))
        for line in text.splitlines()
        if line and not line.startswith("#")
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stack", STACKS)
class TestEveryRelease:
    def test_has_only_its_own_parameters(self, stack, version):
        for pairs in lines(render(with_version(stack, version))["slurm.conf"]):
            first = next(iter(pairs))
            table = {"NodeName": NODE, "PartitionName": PARTITION}.get(first, CONF)
            known = {*table.names(version), "NodeName", "PartitionName", "NodeSet", "Nodes", "SlurmctldHost"}
            assert set(pairs) <= known

    def test_has_each_parameter_once(self, stack, version):
        names = [next(iter(pairs)).lower() for pairs in lines(render(with_version(stack, version))["slurm.conf"])]
        single = [name for name in names if name not in ("nodename", "nodeset", "partitionname")]
        assert len(single) == len(set(single))


def test_the_other_files_have_only_parameters_of_every_release():
    cluster = config("example-full")
    assert {name for pairs in lines(render(cluster)["cgroup.conf"]) for name in pairs} <= CGROUP
    assert {name for pairs in lines(render_slurmdbd(cluster, "x")) for name in pairs} <= SLURMDBD


def test_mpi_none_leaves_the_parameter_out():
    """There is no plugin of that name since 23.11: with it srun would fail."""
    assert config("example-full").slurm.mpi_default == "none"
    assert "MpiDefault" not in render(config("example-full"))["slurm.conf"]


def test_owned_parameters_are_in_the_tables():
    """An owned name that no release has would never match a name of a file."""
    for owned, table in ((owned_conf(), CONF), (owned_node(), NODE), (owned_partition(), PARTITION)):
        assert [name for name in owned if table.canonical(name) != name] == []


def test_parameters_of_fields_are_owned_or_replaceable_by_extra():
    """No parameter is written twice, and none on which machines depend can be replaced."""
    replaced = config("example-full").slurm.extra
    names = [name for group in settings(config("example-full")) for name in group.settings]
    assert set(replaced) <= set(names)
    assert len(names) == len(set(names))
    assert not set(replaced) & set(owned_conf())


@pytest.mark.parametrize(
    "gone", ["FastSchedule", "ControlMachine", "BackupController", "CryptoType", "SallocDefaultCommand"]
)
def test_defunct_names_are_no_parameters(gone):
    assert CONF.canonical(gone) is None


def test_parameters_have_a_first_and_a_last_release():
    """The first and the last release that has each."""
    ends = {
        "GetEnvTimeout": ("22.05", "24.11"), "SuspendExcStates": ("23.11", "26.05"), "TLSType": ("24.05", "26.05"),
        "PrologTimeout": ("25.05", "26.05"), "AccountingStorageUser": ("22.05", "25.05"),
        "MetricsType": ("25.11", "26.05"), "HealthCheckTimeout": ("26.05", "26.05"), "ClusterName": ("22.05", "26.05"),
    }  # fmt: skip
    for name, (first, last) in ends.items():
        assert CONF.versions(name) == VERSIONS[VERSIONS.index(first) : VERSIONS.index(last) + 1], name
    assert CONF.versions("Nonsense") == ()
