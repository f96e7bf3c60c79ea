"""Finds where a real slurmctld places jobs, with and without the nodes' places in topology.conf. Runs on a controller.

    python3 placement.py NODES      prints JSON: for both topologies, the number of blocks of each job

slurmctld allocates elastic nodes before they have machines, so that no machines are needed for hundreds of nodes. It
runs beside the slurmctld of the cluster. The set-up's functions write topology.conf.
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


def draw_places(nodes: int, generator: random.Random) -> dict[str, str]:
    """Return a random place for each node, as a cloud places machines where there is room."""
    hosts = [f"/{'ab'[host * 2 // nodes]}/{host // BLOCK}/{host}" for host in range(nodes)]
    generator.shuffle(hosts)
    return {f"n-{number}": host for number, host in enumerate(hosts)}


def draw_jobs(nodes: int, generator: random.Random) -> tuple[list[str], list[int]]:
    """Return a quarter of the nodes, which are busy, and sizes of jobs that fill most of the others."""
    taken = generator.sample([f"n-{number}" for number in range(nodes)], nodes // 4)
    jobs: list[int] = []
    while sum(jobs) < nodes // 2:
        jobs.append(generator.choice([size for size in SIZES if size <= nodes // 8]))
    return taken, jobs


def place_jobs(nodes: int, reported: dict[str, str], taken: list[str], jobs: list[int]) -> list[list[str]]:
    """Let slurmctld place jobs one after the other; return the nodes of each."""
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
            while (printed := ask(*command, check=False)) != text and text not in (printed or "-").split():
                if time.monotonic() > end:
                    raise RuntimeError(f"{what}: {printed}")
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
    """Return the number of blocks of each job, and the least possible number, for both topologies."""
    generator = random.Random(nodes)  # noqa: S311 - the same each time
    places = draw_places(nodes, generator)
    taken, jobs = draw_jobs(nodes, generator)
    return {
        kind: [
            (len({places[node].rpartition("/")[0] for node in allocated}), -(-len(allocated) // BLOCK))
            for allocated in place_jobs(nodes, reported, taken, jobs)
        ]
        for kind, reported in (("nodesets", {}), ("places", places))
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]))) + "\n")
