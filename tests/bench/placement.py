"""Finds where a real slurmctld places jobs, with and without the nodes' places in topology.conf. Runs on a controller.

    python3 placement.py NODES      prints JSON: for both topologies, the number of blocks of each job, and the least

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


def place_jobs(nodes: list[str], reported: dict[str, str], taken: list[str], jobs: list[int]) -> list[list[str]]:
    """Let slurmctld place jobs one after the other; return the nodes of each."""
    sys.path.insert(0, SETUP)
    topology: Any = import_module("slurm.topology")
    expand: Any = import_module("slurm.hostlist").expand
    with TemporaryDirectory() as folder:
        conf = Path(folder, "slurm.conf")
        conf.write_text(CONF.format(host=socket.gethostname(), folder=folder, last=len(nodes) - 1))
        above = topology.paths({"all": nodes}, reported, present={}, held=())
        Path(folder, "topology.conf").write_text(topology.render(above))
        Path(folder, "state").mkdir()
        env = {"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}

        def ask(*command: str, check: bool = True) -> str:
            done = subprocess.run(command, env=env, cwd="/tmp", capture_output=True, text=True, check=check)  # noqa: S108
            return done.stdout.strip()

        def wait(text: str, *command: str) -> None:
            end = time.monotonic() + SECONDS
            while text not in (printed := ask(*command, check=False) or "nothing").split():
                if time.monotonic() > end:
                    raise RuntimeError(f"{' '.join(command)}: {printed}")
                time.sleep(0.1)

        daemon = subprocess.Popen(["slurmctld", "-D", "-f", conf], env=env, stderr=subprocess.DEVNULL)
        try:
            wait("UP", "scontrol", "ping")
            job = ("sbatch", "--parsable", "--output=/dev/null", "--wrap=true")
            ask(*job, f"--nodes={len(taken)}", f"--nodelist={','.join(taken)}")
            numbers = [ask(*job, f"--nodes={size}") for size in jobs]
            wait("nothing", "squeue", "--noheader", "--states=PENDING", "--format=%i")
            rows = dict(row.split("|") for row in ask("squeue", "--noheader", "--format=%i|%N").splitlines())
            return [expand(rows[number]) for number in numbers]
        finally:
            daemon.terminate()
            daemon.wait()


def measure(count: int) -> dict[str, list[int]]:
    """Return the number of blocks of each job for both topologies, and the least possible numbers.

    A quarter of the nodes is busy, jobs fill most of the others. Places are random, as a cloud has them where there is
    room.
    """
    generator = random.Random(count)  # noqa: S311 - the same each time
    nodes, hosts = [f"n-{number}" for number in range(count)], list(range(count))
    generator.shuffle(hosts)
    places = {
        node: f"/{'ab'[host * 2 // count]}/{host // BLOCK}/{host}" for node, host in zip(nodes, hosts, strict=True)
    }
    taken, jobs = generator.sample(nodes, count // 4), list[int]()
    while sum(jobs) < count // 2:
        jobs.append(generator.choice([size for size in SIZES if size <= count // 8]))
    found = {
        kind: [
            len({places[node].rpartition("/")[0] for node in allocated})
            for allocated in place_jobs(nodes, reported, taken, jobs)
        ]
        for kind, reported in (("nodesets", {}), ("places", places))
    }
    return {**found, "least": [-(-size // BLOCK) for size in jobs]}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
