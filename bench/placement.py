"""Where a real slurmctld places jobs, with the blocks of the nodes' places and without: a program for a controller.

    python3 placement.py NODES      prints JSON: for each of the two ways, the number of blocks of each job

slurmctld gives a job elastic nodes before these have machines, so that it alone places jobs on hundreds of nodes. It
runs beside the one of the cluster. topology.conf is written by the set-up of the machine.
"""

import json
import random
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETUP = "/usr/local/lib/hpc/node"
BLOCK = 16
"""Nodes of a block; a cluster has half of the blocks."""
SIZES = (2, 4, 8, 16, 32)
SECONDS = 300
CONF = """\
ClusterName=placement
SlurmctldHost={host}
SlurmctldPort=7817
SlurmdPort=7818
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/pid
SlurmctldLogFile={folder}/log
SchedulerParameters=batch_sched_delay=0,default_queue_depth=2000,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=36000
ResumeTimeout=36000
PrivateData=cloud
TopologyPlugin=topology/tree
TopologyParam=SwitchAsNodeRank
NodeName=n-[0-{last}] CPUs=2 RealMemory=1000 State=CLOUD
PartitionName=all Nodes=ALL Default=YES OverSubscribe=EXCLUSIVE
"""


def places(nodes: int, drawn: random.Random) -> dict[str, str]:
    """Return the place of each node: names say nothing of it, as a cloud places machines where there is room."""
    hosts = [f"/{'ab'[host * 2 // nodes]}/{host // BLOCK}/{host}" for host in range(nodes)]
    drawn.shuffle(hosts)
    return {f"n-{number}": host for number, host in enumerate(hosts)}


def wanted(nodes: int, drawn: random.Random) -> tuple[list[str], list[int]]:
    """Return nodes that are taken, a quarter, and sizes of jobs that fill most of the rest."""
    taken = drawn.sample([f"n-{number}" for number in range(nodes)], nodes // 4)
    jobs: list[int] = []
    while sum(jobs) < nodes // 2:
        jobs.append(drawn.choice([size for size in SIZES if size <= nodes // 8]))
    return taken, jobs


def placed(nodes: int, reported: dict[str, str], taken: list[str], jobs: list[int]) -> list[list[str]]:
    """Have slurmctld place jobs, one after the other; the nodes of each."""
    sys.path.insert(0, SETUP)
    topology: Any = import_module("slurm.topology")
    expand: Any = import_module("slurm.hostlist").expand
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(CONF.format(host=socket.gethostname(), folder=folder, last=nodes - 1))
        nodesets = {"all": [f"n-{number}" for number in range(nodes)]}
        above = topology.paths(nodesets, reported, present={}, held=())
        (folder / "topology.conf").write_text(topology.render(above))
        env = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}

        def ask(*command: str, check: bool = True) -> str:
            done = subprocess.run(command, env=env, cwd="/tmp", capture_output=True, text=True, check=False)  # noqa: S108
            if check and done.returncode:
                raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
            return done.stdout.strip()

        def wait(what: str, *command: str, text: str) -> None:
            end = time.monotonic() + SECONDS
            while (said := ask(*command, check=False)) != text and text not in (said or "-").split():
                if time.monotonic() > end:
                    raise RuntimeError(f"{what}: {said}")
                time.sleep(0.1)

        daemon = subprocess.Popen(["slurmctld", "-D", "-f", folder / "slurm.conf"], env=env, stderr=subprocess.DEVNULL)
        try:
            wait("slurmctld's answer", "scontrol", "ping", text="UP")
            job = ("sbatch", "--parsable", "--output=/dev/null", "--wrap=true")
            ask(*job, f"--nodes={len(taken)}", f"--nodelist={','.join(taken)}")
            numbers = [ask(*job, f"--nodes={size}") for size in jobs]
            wait("the start of all jobs", "squeue", "--noheader", "--states=PENDING", "--format=%i", text="")
            rows = dict(row.split("|") for row in ask("squeue", "--noheader", "--format=%i|%N").splitlines())
            return [expand(rows[number]) for number in numbers]
        finally:
            daemon.terminate()
            daemon.wait()


def measure(nodes: int) -> dict[str, list[tuple[int, int]]]:
    """Return for each job the number of blocks that its nodes are in, and the least that it could be in; by the
    nodesets' switches, and by the places."""
    drawn = random.Random(nodes)  # noqa: S311 - the same each time
    where = places(nodes, drawn)
    taken, jobs = wanted(nodes, drawn)
    return {
        way: [
            (len({where[node].rpartition("/")[0] for node in found}), -(-len(found) // BLOCK))
            for found in placed(nodes, reported, taken, jobs)
        ]
        for way, reported in (("nodesets", {}), ("places", where))
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]))) + "\n")
