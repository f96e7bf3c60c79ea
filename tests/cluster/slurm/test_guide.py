"""A cluster made by hand loses nothing by being made by this program.

What the "Slurm Setup Guide" (jongsukim, 2024), a cluster from packages to jobs on Ubuntu 24.04, sets by hand is set, or
replaced by something better that is named here.
"""

import pytest

from cluster.slurm.files import render, render_slurmdbd
from tests.cluster.catalog.test_slurm_releases import lines
from tests.cluster.stacks import cluster

GUIDE_CONF = {
    "ProctrackType": "proctrack/cgroup",
    "SlurmctldPort": "6817",
    "SlurmdPort": "6818",
    "SlurmdSpoolDir": "/var/spool/slurmd",
    "SlurmUser": "slurm",
    "StateSaveLocation": "/var/spool/slurmctld",
    "InactiveLimit": "0",
    "KillWait": "30",
    "MinJobAge": "300",
    "SlurmctldTimeout": "120",
    "SlurmdTimeout": "300",
    "UnkillableStepTimeout": "240",
    "WaitTime": "0",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "AccountingStoragePort": "6819",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobAcctGatherFrequency": "30",
    "JobAcctGatherType": "jobacct_gather/linux",
    "SlurmctldDebug": "info",
    "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
    "SlurmdDebug": "info",
    "SlurmdLogFile": "/var/log/slurm/slurmd.log",
    # Better than the guide's, each with its reason beside it in slurm.conf:
    "ReturnToService": "2",  # guide: 1, which leaves a node down that was killed and rebooted
    # guide: CR_CPU_Memory, by which two jobs share a core, and ranks take turns on the sockets
    "SelectTypeParameters": "CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK",
    "SlurmctldPidFile": "/run/slurm/slurmctld.pid",  # guide: /var/run/slurm, which is a link to this
    "SlurmdPidFile": "/run/slurm/slurmd.pid",
    "AccountingStorageHost": "dev-controller",  # guide: localhost, where login machines have no slurmdbd
    "TaskPlugin": "task/cgroup",  # guide: task/affinity too, as on every platform whose cores are its own
    "GresTypes": "gpu",
    "MailProg": "/usr/local/sbin/hpc-mail",  # guide: /usr/bin/mail, which may run what a user gives as --mail-user
    "JobCompType": "jobcomp/lua",  # guide: jobcomp/filetxt, where a job's name may hold lines of other jobs
}
LEFT_OUT = {"AccountingStorageUser", "JobCompLoc"}
"""Slurm reads the first with a database of slurmctld's own only; the user is slurmdbd's. The other is filetxt's."""

GUIDE_SLURMDBD = {
    "AuthType": "auth/munge",
    "SlurmUser": "slurm",
    "LogFile": "/var/log/slurm/slurmdbd.log",
    "PidFile": "/run/slurm/slurmdbd.pid",
    "StorageType": "accounting_storage/mysql",
    "StorageHost": "localhost",
    "StoragePort": "3306",
    "StorageUser": "slurm",
    "StorageLoc": "slurm_acct_db",
    "StoragePass": "secret",
    "DbdHost": "dev-controller",  # guide: localhost; the name that AccountingStorageHost has
}


@pytest.fixture
def classic():
    """The guide's cluster: login, controller and CPU node on one machine, two more with two T4 each."""
    return cluster(
        controller={"machine_type": "e2-standard-4"},
        login={"on": "controller"},
        nodesets={
            "main": {"on": "controller"},
            "compute": {"count": 2, "machine_type": "n1-standard-1", "gpus": {"type": "t4", "count": 2}},
        },
        partitions={"cpu": {"nodesets": ["main"]}, "gpu": {"nodesets": ["compute"], "default": True}},
    )


def single(text):
    return {name: value for pairs in lines(text) for name, value in pairs.items() if len(pairs) == 1}


def test_slurm_conf(classic):
    found = single(render(classic)["slurm.conf"])
    assert {name: found.get(name) for name in GUIDE_CONF} == GUIDE_CONF
    assert not LEFT_OUT & set(found)


def test_slurmdbd_conf(classic):
    found = single(render_slurmdbd(classic, "secret"))
    assert {name: found.get(name) for name in GUIDE_SLURMDBD} == GUIDE_SLURMDBD


def test_nodes_partitions_and_gpus(classic):
    found = lines(render(classic)["slurm.conf"])
    compute, main = (pairs for pairs in found if "NodeName" in pairs)
    cpu, gpu = (pairs for pairs in found if "PartitionName" in pairs)
    assert (main["NodeName"], main["CPUs"], main["CoresPerSocket"], main["ThreadsPerCore"]) == (
        "dev-controller",
        "4",
        "2",
        "2",
    )
    assert (compute["NodeName"], compute["CPUs"], compute["Gres"]) == ("dev-compute-[0-1]", "1", "gpu:t4:2")
    # Never more than `free -m` shows there, or the nodes would be drained for low memory: 15990 and 3661.
    assert int(main["RealMemory"]) <= 15990
    assert int(compute["RealMemory"]) <= 3661
    assert (cpu["Nodes"], "Default" in cpu) == ("main", False)
    assert (gpu["Nodes"], gpu["Default"]) == ("compute", "YES")
    (gres,) = lines(render(classic)["gres.conf"])
    assert gres == {"NodeName": "dev-compute-[0-1]", "Name": "gpu", "Type": "t4", "File": "/dev/nvidia[0-1]"}
