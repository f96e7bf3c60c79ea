"""Confinement of jobs as production has it: cgroup v2, cores, memory and devices, and tasks bound to cores.

Machines of a rehearsal share their host's kernel and cores, so their Slurm does without some of it. This machine has
its own. It is emulated, slow, and booted once for all that is asked here.
"""

import json
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.catalog import IMAGES
from cluster.slurm.files import render
from tests.clouds import google
from tests.e2e import vm

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
NODE = HERE.parents[1] / "scripts" / "node"
# dbus: slurmd asks systemd for a scope of its own for the steps of jobs (cgroup v2).
UNIT = """\
[Unit]
Wants=dbus.socket
After=dbus.socket
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /opt/test/confined.py
ExecStopPost=systemctl poweroff --force --force
"""


@dataclass(frozen=True)
class Seen:
    """What one command in the machine ended with."""

    code: int
    out: str


def slurm_files() -> dict[str, str]:
    """Slurm's files of a cluster on Google Cloud, whose node is of the emulator's size.

    Its node and controller are one machine here, and it has no database: MariaDB alone would take longer to start than
    all the rest.
    """
    size = {"CPUs": 4, "Sockets": 2, "CoresPerSocket": 2, "ThreadsPerCore": 1, "RealMemory": 1000}
    t4 = {"machine_type": "n1-standard-4", "count": 1, "gpus": {"type": "t4", "count": 2}, "node_conf": size}
    # slurmctld forgets jobs after five minutes, which the emulated machine may take for the next one.
    slurm = {"mpi_default": "none", "timers": {"min_job_age": 7200}}
    config = google(name="vm", nodesets={"gpu": t4}, accounting={"enforce": []}, slurm=slurm)
    # The emulated machine has its distribution's Slurm, which no image of Google Cloud has.
    version = {"version": IMAGES[vm.BASE].slurm_versions[0]}
    files = render(config.model_copy(update={"slurm": config.slurm.model_copy(update=version)}))
    for old, new in (
        ("AccountingStorageType=accounting_storage/slurmdbd\n", ""),
        ("AccountingStorageTRES=gres/gpu,gres/gpu:t4\n", ""),
        ("NodeName=vm-gpu-0 ", "NodeName=vm-gpu-0 NodeHostname=vm-controller "),
    ):
        assert files["slurm.conf"].count(old) == 1
        files["slurm.conf"] = files["slurm.conf"].replace(old, new)
    return files


@pytest.fixture(scope="module")
def seen(e2e_root: Path) -> Iterator[dict[str, Seen]]:
    """What the machine told, by name."""
    if platform.machine() != "x86_64":
        pytest.skip(f"base images made here are {platform.machine()}'s, the emulated machine is x86_64")
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("no qemu-system-x86_64 here: `./hpc test` installs it where apt-get has it (qemu-system-x86)")
    # The last of its stacks takes the root with it.
    e2e_root.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="vm-", dir=e2e_root))
    disk = vm.disk(
        folder,
        {
            "/etc/hostname": "vm-controller\n",
            "/etc/hosts": "127.0.0.1 localhost\n10.0.0.1 vm-controller\n",
            "/etc/hpc/munge.key": secrets.token_hex(64),
            "/etc/systemd/system/confined.service": UNIT,
            "/opt/test/confined.py": HERE / "confined.py",
            "/opt/test/node": NODE,
            **{f"/opt/test/slurm/{name}": text for name, text in slurm_files().items()},
        },
    )
    try:
        said = vm.boot(disk, "confined.service", seconds=3600)
        told = {one["name"]: Seen(one["code"], one["out"]) for line in said.splitlines() if (one := json.loads(line))}
        assert "logs" in told, said
        assert "failed" not in told, f"{told['failed'].out}\n{told['logs'].out}"
        yield told
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _logs(seen: dict[str, Seen]) -> None:
    """The daemons' logs and the journal, which pytest prints below a failed test."""
    print(seen["logs"].out)


def ended_well(one: Seen) -> list[str]:
    """The lines that a job wrote."""
    assert one.code == 0, one.out
    return one.out.replace("\t", " ").splitlines()


def test_the_machine_is_what_the_rest_expects(seen: dict[str, Seen]) -> None:
    assert ended_well(seen["system"]) == ["cgroup2fs", "systemd", "4"]


def test_a_job_has_its_own_cores_and_can_take_no_other(seen: dict[str, Seen]) -> None:
    # The second line is of a process that asked for both cores: bound it may unbind itself, confined it can't.
    alone = ended_well(seen["one"])
    assert re.fullmatch(r"Cpus_allowed_list: [0-3]", alone[0])
    assert alone[1:3] == [alone[0], "nproc 1"]
    assert ended_well(seen["all"])[:3] == ["Cpus_allowed_list: 0-3", "Cpus_allowed_list: 0-3", "nproc 4"]


def test_each_task_is_bound_to_a_core_of_its_own(seen: dict[str, Seen]) -> None:
    # Both are in the same job's cgroup, which has both cores: this is task/affinity. Both cores are of one socket, in
    # the order of the ranks: without CR_CORE_DEFAULT_DIST_BLOCK they would be 0 and 2.
    assert sorted(ended_well(seen["tasks"])) == ["0: Cpus_allowed_list: 0", "1: Cpus_allowed_list: 1"]


def test_a_job_gets_the_cores_that_are_near_its_gpu(seen: dict[str, Seen]) -> None:
    found = sorted(re.findall(r"Type=(\S+) .*File=(\S+) Cores=(\S+) ", seen["detected"].out))
    assert found == [("t4", "/dev/nvidia0", "2-3"), ("t4", "/dev/nvidia1", "0-1")], seen["detected"].out
    lines = ended_well(seen["gpu"])
    near = {"nvidia0 open": "[23]", "nvidia1 open": "[01]"}
    (gpu,) = (line for line in lines[-2:] if line.endswith("open"))
    assert re.fullmatch(f"Cpus_allowed_list: {near[gpu]}", lines[0]), lines


def test_a_job_opens_the_devices_that_it_was_given_and_no_others(seen: dict[str, Seen]) -> None:
    opened = {name: ended_well(seen[name])[4:6] for name in ("one", "gpu", "all")}
    assert opened["one"] == ["nvidia0 refused", "nvidia1 refused"]
    assert sorted(line.split()[1] for line in opened["gpu"]) == ["open", "refused"]
    assert opened["all"] == ["nvidia0 open", "nvidia1 open"]


def test_a_job_that_takes_more_memory_than_it_asked_for_is_killed(seen: dict[str, Seen]) -> None:
    assert f"memory {100 << 20}" in ended_well(seen["one"])
    assert ended_well(seen["one"])[6] == str(50 << 20)
    assert seen["more"].code != 0
    assert "Out Of Memory" in seen["more"].out
    # In the order of the jobs, of which it is the only one that failed.
    states = seen["states"].out.split()
    assert states == [*["COMPLETED"] * 4, "OUT_OF_MEMORY"]


def test_nothing_of_a_job_outlives_it(seen: dict[str, Seen]) -> None:
    assert ended_well(seen["one"])[7:] == ["1"]
    assert seen["left"].out.split() == ["0"]
