"""Commands inside the machines of this host, in their namespaces, for what acts as the world around them."""

import signal
import subprocess
import time

from components.local.host.machine import running
from components.local.host.paths import MachinePaths

AS_ROOT = {
    "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}  # fmt: skip
"""Environment of a login of root."""
SECONDS = 1800.0
"""A script may take as long: with a load of 100, an `srun` of three nodes was seen to take more than 300 s."""
_LOOK_SECONDS = 5.0
"""A machine that ends stops all its processes before it kills them. nsenter(1) stops with its script then, and would
never see its end: a signal lets it go on, so often."""


def first_process(paths: MachinePaths) -> int:
    """Return the first process inside a machine. Raises RuntimeError if it does not run."""
    process = running(paths)
    if process is None:
        raise RuntimeError(f"{paths.root} does not run: ./hpc up brings it back")
    return process.children()[0]


def command(paths: MachinePaths, script: str) -> list[str]:
    """Return the command that runs a shell script in the machine's namespaces. Raises RuntimeError if the machine does
    not run."""
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd")
    return ["nsenter", f"--target={first_process(paths)}", *namespaces, "--", "sh", "-c", f"cd\n{script}"]


def inside(paths: MachinePaths, script: str, *, check: bool = True) -> str:
    """Return what a shell script prints that root runs on a machine, in the machine's namespaces. Raises RuntimeError
    if it fails, with `check`, and if the machine does not run."""
    limit = time.monotonic() + SECONDS
    with subprocess.Popen(
        command(paths, script),
        env=AS_ROOT, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        while True:
            try:
                out, err = process.communicate(timeout=_LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > limit:
                    process.kill()
                    raise
                process.send_signal(signal.SIGCONT)
    if check and process.returncode:
        raise RuntimeError(f"{paths.root}: {script}\n{out}\n{err}")
    return out.strip()
