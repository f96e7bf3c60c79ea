"""Prints what a task of a job finds on its node, as a line of JSON after MARK. It runs as the user, with the standard
library only."""

import errno
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

MARK = "hpc-check "
_SHARED = Path("/opt/apps/hpc")
_SECONDS = 30
_DENIED = (errno.EPERM, errno.EACCES)


def collect(mode: str, token: str = "") -> dict[str, object]:
    """Return the values that a mode (hello or node) collects."""
    environ = os.environ
    found: dict[str, object] = {
        "node": environ.get("SLURMD_NODENAME", ""),
        "task": int(environ.get("SLURM_PROCID", "0")),
        "cpus": len(os.sched_getaffinity(0)),
    }
    if mode == "hello" or environ.get("SLURM_LOCALID", "0") != "0":
        return found
    found["gpus"] = gpus()
    if mode == "node":
        found["memory"] = memory_limit(Path("/proc/self/cgroup").read_text(), Path("/sys/fs/cgroup"))
        found["home"] = home(token, str(found["node"])) if token else None
        found["shared"] = os.access(_SHARED, os.R_OK | os.X_OK)
    return found


def gpus() -> dict[str, object]:
    """Return the number of GPUs of the driver, device files, those that can be opened, and the GPUs of CUDA and
    nvidia-smi."""
    devices = sorted(
        (path.name for path in Path("/dev").iterdir() if re.fullmatch("nvidia[0-9]+", path.name)),
        key=lambda name: int(name[6:]),
    )
    driver = Path("/proc/driver/nvidia/gpus")
    found: dict[str, object] = {
        # Every process sees these, whatever devices its cgroup allows.
        "driver": len(list(driver.iterdir())) if driver.is_dir() else None,
        "devices": devices,
        "open": [name for name in devices if _opens(f"/dev/{name}")],
        "visible": [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word],
    }
    if smi := shutil.which("nvidia-smi"):
        code, out, err = _run(smi, "-L")
        found["smi"] = [line for line in out.splitlines() if line.startswith("GPU ")]
        if code:
            found["smi_code"], found["smi_error"] = code, (err or out).strip()[-2000:]
    return found


def _opens(path: str) -> bool:
    """Return whether the cgroup lets this process open a device. The check comes before the driver's, which a stand-in
    does not have."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in _DENIED
    return True


def memory_limit(cgroups: str, root: Path) -> int | None:
    """Return the smallest memory limit in bytes of a process's cgroups: -1 if none is set, None if none can be read.

    `cgroups` is the text of /proc/PID/cgroup: v1 has a line per controller, v2 a line with the number 0.
    """
    limits: list[int] = []
    readable = False
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        elif number == "0" and not controllers:
            base, name = (root if (root / "cgroup.controllers").exists() else root / "unified"), "memory.max"
        else:
            continue
        folder = base / path.lstrip("/")
        while folder == base or base in folder.parents:
            try:
                text = (folder / name).read_text().strip()
                readable = True
            except OSError:
                text = "max"
            # v1 writes "no limit" as the largest multiple of a page in 63 bits.
            if text.isdigit() and int(text) < 1 << 62:
                limits.append(int(text))
            folder = folder.parent
    return min(limits, default=-1 if readable else None)


def home(token: str, node: str) -> dict[str, object]:
    """Read the file of the login machine in the user's home, and write one for the login machine to read."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return {"error": f"uid {os.getuid()} is of no user of this node"}
    folder = Path(entry.pw_dir) / f".hpc-check-{token}"
    try:
        owner = (folder / "login").stat().st_uid
        text = (folder / "login").read_text().strip()
        (folder / f"node-{node}").write_text(f"{token} {node}\n")
    except OSError as error:
        return {"error": f"{error.filename or folder}: {error.strerror}"}
    if owner != os.getuid():
        return {"error": f"{folder}/login is of uid {owner} here, and of {os.getuid()} ({entry.pw_name}) where written"}
    return {} if text == token else {"error": f"{folder}/login: another content here than where it was written"}


def _run(*command: str) -> tuple[int, str, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return 124, "", f"{command[0]}: no end within {_SECONDS} s"
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


if __name__ == "__main__":
    # One write, so that the lines of several tasks do not mix.
    os.write(1, f"{MARK}{json.dumps(collect(*sys.argv[1:]))}\n".encode())
