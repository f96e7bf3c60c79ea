"""Runs in the emulated machine of test_confinement.py, as root: Slurm's daemons as on a node, then jobs that look
around.

What it finds goes to the second serial port, one JSON object a line: name, exit code, output.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "node"))

from slurm import slurmctld, slurmd  # noqa: E402 - the set-up's own folder, as on a node
from system import host, munge  # noqa: E402

AROUND = """
grep Cpus_allowed_list /proc/self/status
taskset -c 0-3 grep Cpus_allowed_list /proc/self/status
echo "nproc $(nproc)"
group=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
echo "memory $(cat "${group%%/step_*}/memory.max")"
for n in 0 1; do
    if true </dev/nvidia$n; then echo "nvidia$n open"; else echo "nvidia$n refused"; fi
done 2>/dev/null
"""
EAT = "python3 -IS -c 'full = b\"x\" * ({} << 20); print(len(full))'"
ESCAPE = "setsid --fork sleep 9876; pgrep --exact --full --count 'sleep 987[6]'"

# By name, what srun is given; each is one job with one step, which costs as much as all else that it does.
JOBS = {
    "one": ["--cpus-per-task=1", "--mem=100M", "sh", "-c", f"{AROUND}\n{EAT.format(50)}\n{ESCAPE}"],
    "all": ["--cpus-per-task=4", "--mem=200M", "--gpus=2", "sh", "-c", AROUND],
    "gpu": ["--cpus-per-task=1", "--mem=100M", "--gpus=1", "sh", "-c", AROUND],
    "tasks": ["--ntasks=2", "--mem=100M", "--label", "grep", "Cpus_allowed_list", "/proc/self/status"],
    "more": ["--mem=100M", "sh", "-c", f"exec {EAT.format(400)}"],
}


def tell(name: str, code: int, out: str) -> None:
    """One line to the outside."""
    with Path("/dev/ttyS1").open("w") as port:
        port.write(json.dumps({"name": name, "code": code, "out": out}) + "\n")


def look(name: str, *command: str) -> None:
    """Run a command and tell what it said."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    tell(name, done.returncode, done.stdout)


def driver_of_gpus() -> None:
    """What NVIDIA's driver tells of two GPUs, in the kernel's folders: the first is near the second socket."""
    for folder in ("/proc/driver", "/sys/bus/pci/drivers"):
        host.run("mount", "-t", "tmpfs", "tmpfs", folder)
    for minor, cores in enumerate(("2-3", "0-1")):
        bus = f"0000:0{minor + 4}:00.0"
        for path, text in (
            (Path("/proc/driver/nvidia/gpus", bus, "information"), f"Model: \t\t Tesla T4\nDevice Minor: \t {minor}\n"),
            (Path("/sys/bus/pci/drivers/nvidia", bus, "local_cpulist"), f"{cores}\n"),
        ):
            path.parent.mkdir(parents=True)
            path.write_text(text)


def begin() -> None:
    """The daemons, by the steps of the nodes' set-up; without slurmdbd."""
    # Slurm looks for the addresses of a machine that has one besides loopback's own (AI_ADDRCONFIG).
    host.run("ip", "address", "add", "10.0.0.1/32", "dev", "lo")
    # Devices that open, in the place of GPUs: the kernel's own, of which jobs need none (full, kmsg).
    for number, minor in enumerate((7, 11)):
        os.mknod(f"/dev/nvidia{number}", 0o20666, os.makedev(1, minor))
    driver_of_gpus()
    files = {path.name: path.read_text() for path in (HERE / "slurm").iterdir()}
    slurmd.drop_empty_include()
    munge.start()
    slurmctld.prepare()
    slurmd.keep_logs()
    host.folder(slurmctld.STATE, mode=0o700, owner="slurm")
    slurmctld.write_files(files)
    host.service("slurmctld", settings="")
    slurmctld.wait_for_slurmctld()
    slurmd.start_slurmd("vm-controller:6817", "", at_boot=False)


def main() -> None:
    """All of it, once."""
    look("system", "sh", "-c", "stat -fc %T /sys/fs/cgroup; cat /proc/1/comm; nproc")
    try:
        begin()
        for name, job in JOBS.items():
            # The first one waits until the node is there.
            look(name, "srun", "--quiet", "--immediate=600", *job)
        look("left", "pgrep", "--exact", "--full", "--count", "sleep 9876")
        states = ("squeue", "--noheader", "--states=all", "--sort=i", "--format=%T")
        host.wait("the end of all jobs", lambda: "COMPLETING" not in host.run(*states), seconds=300, interval=2)
        look("states", *states)
        look("detected", "slurmd", "-G", "-f", "/etc/slurm/slurm.conf")
    except host.SetupError as error:
        tell("failed", 1, str(error))
    # Told last: what comes before is whole then.
    logs = "tail --lines=60 /var/log/slurm/slurmctld.log /var/log/slurm/slurmd.log; journalctl --no-pager --lines=60"
    look("logs", "sh", "-c", logs)


if __name__ == "__main__":
    main()
