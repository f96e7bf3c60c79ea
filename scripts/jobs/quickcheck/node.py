"""Checks a node from inside a job, as the user, with the standard library only.

    python3 node.py JOB [REQUEST]     JOB: node, gpus or together; REQUEST: JSON of driver.py

Every task prints a line of JSON after MARK: its node and number, and the first one of a node its results by check.
"""

import errno
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

MARK = "hpc-check "
PASS, FAIL, SKIP = "pass", "fail", "skip"
Result = tuple[str, ...]
"""Status, text and output of a check."""
_SMI_SECONDS = 30
_MIB = 1024 * 1024
_PAGE = 65_536
"""The largest base page of Linux. The kernel rounds a memory limit to pages."""


class JobGpus(NamedTuple):
    """The GPUs that a job finds."""

    count: int
    """GPUs that every process finds, whatever devices its cgroup allows."""
    source: str
    usable: dict[str, int]
    """Number of GPUs of this job, by how it sees them."""
    smi_code: int = 0
    smi_error: str = ""


def find_gpus() -> JobGpus:
    devices = [path for path in Path("/dev").iterdir() if re.fullmatch("nvidia[0-9]+", path.name)]
    driver = Path("/proc/driver/nvidia/gpus")
    count, source = (len(list(driver.iterdir())), "the driver") if driver.is_dir() else (len(devices), "device files")
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    usable = {"can be opened": sum(map(_opens, devices)), "in CUDA_VISIBLE_DEVICES": len(visible)}
    if not shutil.which("nvidia-smi"):
        return JobGpus(count, source, usable)
    try:
        line = ["nvidia-smi", "-L"]
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=_SMI_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        done = subprocess.CompletedProcess(error.cmd, 124, "", str(error))
    usable["by nvidia-smi"] = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    return JobGpus(count, source, usable, done.returncode, (done.stderr or done.stdout).strip()[-2000:])


def _opens(path: Path) -> bool:
    """Return whether the cgroup lets this process open a device. The check comes before the driver's, which a stand-in
    does not have."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EACCES)
    return True


def check_gpus(job: str, request: dict[str, Any], gpus: JobGpus) -> dict[str, Result]:
    """Check the number of GPUs, and those of the job: all of them, or in the job `node` one if it has asked for one."""
    promised, results = request["gpus"], dict[str, Result]()
    problems = [] if gpus.count == promised else [f"{gpus.count} of {promised} GPUs by {gpus.source}"]
    if job == "gpus":
        wrong = {how: number for how, number in gpus.usable.items() if number != promised}
        problems += [f"{number} of {promised} GPUs {how} in a job that has all" for how, number in wrong.items()]
        if gpus.smi_code:
            meaning = request["smi_exit_codes"].get(str(gpus.smi_code), "unknown")
            problems.append(f"nvidia-smi ended with exit code {gpus.smi_code} ({meaning})")
    elif request["one_gpu"]:
        wrong = [f"{number} {how}" for how, number in gpus.usable.items() if number != 1]
        text = f"a job with 1 GPU: {', '.join(wrong)}" if wrong else "a job with 1 GPU opens that one only"
        results["confined"] = (FAIL if wrong else PASS, text)
    passed = (PASS, f"{gpus.count} GPU{'' if gpus.count == 1 else 's'} by {gpus.source}")
    results["gpus"] = (FAIL, "; ".join(problems), gpus.smi_error) if problems else passed
    return results


def check_memory(asked_mib: int, limit: int | None) -> Result:
    """Check the memory limit of a job in bytes, as `memory_limit` returns it."""
    if limit is None:
        return SKIP, "the job sees no memory cgroup"
    if limit < 0:
        return FAIL, "no limit on a job's memory"
    if limit > asked_mib * _MIB + _PAGE:
        return FAIL, f"limit {limit // _MIB} MiB, asked for {asked_mib} MiB"
    return PASS, f"{asked_mib} MiB"


def memory_limit(cgroups: str, root: Path) -> int | None:
    """Return the smallest memory limit in bytes of a process's cgroups: -1 if none is set, None if none can be read.

    `cgroups` is the text of /proc/PID/cgroup: v1 has a line per controller, v2 a line with the number 0.
    """
    found: list[str] = []
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        elif number == "0" and not controllers:
            base, name = (root if (root / "cgroup.controllers").exists() else root / "unified"), "memory.max"
        else:
            continue
        folder = base / path.lstrip("/")
        files = [parent / name for parent in (folder, *folder.parents) if parent.is_relative_to(base)]
        found += [file.read_text().strip() for file in files if file.exists()]
    # v1 writes "no limit" as the largest multiple of a page in 63 bits.
    limits = [int(text) for text in found if text.isdigit() and int(text) < 1 << 62]
    return min(limits, default=-1 if found else None)


def check_home(run: str, node: str) -> Result:
    """Read the file of the login machine in the user's home, and write one for the login machine to read."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return FAIL, f"uid {os.getuid()} is of no user of this node"
    folder = Path(entry.pw_dir) / f".hpc-check-{run}"
    try:
        owner = (folder / "login").stat().st_uid
        text = (folder / "login").read_text().strip()
        (folder / f"node-{node}").write_text(f"{run} {node}\n")
    except OSError as error:
        return FAIL, f"{error.filename or folder}: {error.strerror}"
    if owner != os.getuid():
        return FAIL, f"{folder}/login is of uid {owner} here, and of {os.getuid()} ({entry.pw_name}) where written"
    return (PASS,) if text == run else (FAIL, f"{folder}/login: another content here than where it was written")


def check_node(request: dict[str, Any], node: str) -> dict[str, Result]:
    no_home = (SKIP, "root's home is not shared: name a user with --as")
    readable = os.access("/opt/apps/hpc", os.R_OK | os.X_OK)
    return {
        "home": check_home(request["run"], node) if request["shared_home"] else no_home,
        "shared": (PASS,) if readable else (FAIL, "/opt/apps/hpc can't be read"),
        "memory": check_memory(
            request["memory"], memory_limit(Path("/proc/self/cgroup").read_text(), Path("/sys/fs/cgroup"))
        ),
    }


def main(job: str, text: str = "{}") -> None:
    node, request = os.environ["SLURMD_NODENAME"], json.loads(text)
    cpus = len(os.sched_getaffinity(0))
    found: dict[str, object] = {"node": node, "task": int(os.environ["SLURM_PROCID"]), "cpus": cpus}
    if job != "together" and os.environ["SLURM_LOCALID"] == "0":
        results = check_node(request, node) if job == "node" else {}
        found["results"] = results | (check_gpus(job, request, find_gpus()) if request["gpus"] else {})
    # One write, so that the lines of several tasks do not mix.
    os.write(1, f"{MARK}{json.dumps(found)}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
