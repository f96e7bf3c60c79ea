"""Starts a container with the node's container runtime. It runs as the user in a job, with the standard library only.

    python3 container.py TOKEN [IMAGE]

Without IMAGE, apptainer and podman start a root folder with the node's own `cat` and its libraries, so that no registry
is needed. It prints a line of JSON after MARK: the runtime, the output of the container, and the expected output.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "hpc-check "
RUNTIMES = ("enroot", "apptainer", "singularity", "podman")
_SECONDS = 240
_SHOW = ("cat", "/hpc-check")
_OS = ("cat", "/etc/os-release")


def commands(runtime: str, token: str, root: str, image: str) -> list[list[str]]:
    """Return the command lines that start a container. The output of the last one is that of the container.

    `image` is a path or a name with # after the registry. If it is empty, `root` is the root folder.
    """
    if runtime == "enroot":
        packed = image if image.startswith("/") else f"{root}.sqsh"
        name = f"hpc-check-{token}"
        fetch = [] if image.startswith("/") else [["enroot", "import", "--output", packed, f"docker://{image}"]]
        create = ["enroot", "create", "--name", name, packed]
        return [*fetch, create, ["enroot", "start", name, *_OS]]
    if not image.startswith("/"):
        image = image.replace("#", "/", 1)  # only enroot has the #
    if runtime == "podman":
        what = [image, *_OS] if image else ["--rootfs", root, *_SHOW]
        return [["podman", "run", "--rm", "--network", "none", "--cgroups", "disabled", *what]]
    place = image if image.startswith("/") else f"docker://{image}"
    what = [place, *_OS] if image else [root, *_SHOW]
    return [[runtime, "exec", "--contain", "--no-home", *what]]


def start(token: str, image: str) -> dict[str, object]:
    """Start a container; return its output, or why it did not start."""
    runtime = next((name for name in RUNTIMES if shutil.which(name)), "")
    if not runtime:
        return {}
    if runtime == "enroot" and not image:
        return {"runtime": runtime, "skip": "enroot needs an image: give one with --image"}
    with tempfile.TemporaryDirectory(prefix="hpc-check-") as folder:
        root = Path(folder, "root")
        if not image:
            fill(root, token)
        wanted = "ID=" if image else token
        try:
            return {"runtime": runtime, "wanted": wanted, **_run_all(commands(runtime, token, str(root), image))}
        finally:
            if runtime == "enroot":
                _run(["enroot", "remove", "--force", f"hpc-check-{token}"])


def _run_all(lines: list[list[str]]) -> dict[str, object]:
    """Run command lines; return the output of the last one, or the error of the first that fails."""
    out = ""
    for line in lines:
        done = _run(line)
        if done.returncode:
            error = f"{' '.join(line)}: exit code {done.returncode}\n{done.stdout}{done.stderr}".strip()
            return {"error": error[-4000:]}
        out = done.stdout
    return {"out": out[-2000:]}


def fill(root: Path, token: str) -> None:
    """Create a root folder with `cat`, `sh`, their libraries, and the token in /hpc-check."""
    for name in ("dev", "etc", "proc", "sys", "tmp", "run", "var/tmp", "bin", "usr/bin"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for program in ("cat", "sh"):
        here = shutil.which(program) or f"/bin/{program}"
        shutil.copy(here, root / "bin" / program)
        for library in libraries(_run(["ldd", here]).stdout):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "hpc-check").write_text(f"{token}\n")


def libraries(text: str) -> Iterator[str]:
    """Yield the paths in the output of ldd: `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)`."""
    for line in text.splitlines():
        if found := re.search(r"(?:=> )?(/\S+) \(0x", line):
            yield found[1]


@contextmanager
def _own_cache() -> Iterator[None]:
    """Keep caches out of the user's home, which may be on a network file system that podman's storage can't use."""
    with tempfile.TemporaryDirectory(prefix="hpc-check-store-") as folder:
        os.environ["XDG_DATA_HOME"] = os.environ["APPTAINER_CACHEDIR"] = folder
        try:
            yield
        finally:
            # Subordinate uids own podman's layers.
            if shutil.which("podman"):
                _run(["podman", "unshare", "rm", "-rf", f"{folder}/containers"])


def _run(line: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(line, 124, "", f"no end within {_SECONDS} s")
    except OSError as error:
        return subprocess.CompletedProcess(line, 127, "", str(error))


def main(token: str, image: str = "") -> None:
    with _own_cache():
        found = start(token, image)
    os.write(1, f"{MARK}{json.dumps(found)}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
