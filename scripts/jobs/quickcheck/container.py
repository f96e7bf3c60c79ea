"""Starts a container with the node's container runtime. It runs as the user in a job, with the standard library only.

    python3 container.py [IMAGE]

Without IMAGE, apptainer and podman start a root folder with the node's own `cat` and its libraries, so that no registry
is needed. It prints a line of JSON after MARK: status, text and output of the check.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MARK = "hpc-check "
_SECONDS = 240
_OS = ("cat", "/etc/os-release")
_ID = "ID=hpc-check"


def commands(runtime: str, folder: Path, image: str) -> list[list[str]]:
    """Return the command lines that start a container. The output of the last one is its os-release.

    `image` is a path or a name with # after the registry. If it is empty, `folder` has a root folder.
    """
    is_path = image.startswith("/")
    if runtime == "enroot":
        packed = image if is_path else f"{folder}/image.sqsh"
        fetch = [] if is_path else [["enroot", "import", "--output", packed, f"docker://{image}"]]
        create = ["enroot", "create", "--name", folder.name, packed]
        return [*fetch, create, ["enroot", "start", folder.name, *_OS]]
    name = image if is_path else image.replace("#", "/", 1)  # only enroot has the #
    if runtime == "podman":
        source = [name] if image else ["--rootfs", f"{folder}/root"]
        return [["podman", "run", "--rm", "--network", "none", "--cgroups", "disabled", *source, *_OS]]
    place = f"{folder}/root" if not image else name if is_path else f"docker://{name}"
    return [[runtime, "exec", "--contain", "--no-home", place, *_OS]]


def fill(root: Path) -> None:
    """Create a root folder with `cat`, `sh`, their libraries and an os-release of its own."""
    for name in ("dev", "etc", "proc", "sys", "tmp", "run", "var/tmp", "bin", "usr/bin"):
        (root / name).mkdir(parents=True)
    for program in ("cat", "sh"):
        path = shutil.which(program) or f"/bin/{program}"
        shutil.copy(path, root / "bin" / program)
        for library in re.findall(r"(/\S+) \(0x", _run(["ldd", path]).stdout):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/os-release").write_text(f"{_ID}\n")


def check(image: str, folder: Path) -> tuple[str, ...]:
    """Start a container; return status, text and output."""
    runtime = next(filter(shutil.which, ("enroot", "apptainer", "singularity", "podman")), "")
    if not runtime:
        return "skip", "no pyxis, enroot, apptainer or podman on the node"
    if runtime == "enroot" and not image:
        return "skip", "enroot needs an image: give one with --image"
    if not image:
        fill(folder / "root")
    # Caches stay out of the user's home, which may be on a network file system that podman's storage can't use.
    os.environ["XDG_DATA_HOME"] = os.environ["APPTAINER_CACHEDIR"] = str(folder)
    out = ""
    try:
        for line in commands(runtime, folder, image):
            done = _run(line)
            out = done.stdout
            if done.returncode:
                output = f"{' '.join(line)}: exit code {done.returncode}\n{out}{done.stderr}".strip()[-4000:]
                return "fail", f"{runtime} did not start one", output
    finally:
        if runtime == "enroot":
            _run(["enroot", "remove", "--force", folder.name])
        if runtime == "podman":  # subordinate uids own its layers
            _run(["podman", "unshare", "rm", "-rf", f"{folder}/containers"])
    return ("pass", runtime) if ("ID=" if image else _ID) in out else ("fail", f"{runtime} did not start one", out)


def _run(line: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        return subprocess.CompletedProcess(line, 127, "", str(error))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hpc-check-") as name:
        print(f"{MARK}{json.dumps({'results': {'container': check(''.join(sys.argv[1:]), Path(name))}})}")
