"""Base images: made once, kept under the hash of what went in, read by every machine of every stack.

A build that is killed leaves no process and no mount, as it has namespaces of its own that end with it, and of files
only a folder `.build-*`, which the next build removes. An image is there as a whole or not at all.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from components.local.host.errors import HostError
from components.local.host.images.recipe import BUILD, ROOTFS, Recipe, recipe
from components.local.host.images.sources import host_sources
from components.local.host.locks import locked, write_atomically

DISK_NEEDED = 1_300_000_000
"""Bytes that an image takes on disk while it is made (its own 450 MB, twice, and the packages) and some room."""
MEMORY_NEEDED = 4_000_000_000
"""Bytes of free memory from which on the image is unpacked there: it takes up to 1 GB for the time of the build."""

Report = Callable[[str], None]


def image_root(images: Path, digest: str) -> Path:
    """The root file system of the image called `digest`, whether it is there or not."""
    return images / digest / "root"


def has_image(images: Path, digest: str) -> bool:
    return (images / digest / "image.json").exists()


def ensure_image(base: str, images: Path, report: Report, packages: Iterable[str] = ()) -> Path:
    """Make the image for `image.base` and `image.packages` if it is not there, and return its root.

    Raises HostError where it can't.
    """
    wanted = recipe(base, packages)
    if has_image(images, wanted.digest):
        return image_root(images, wanted.digest)
    lock = images / ".build.lock"
    with locked(lock, wait=False) as first:
        if first:
            return _build(wanted, images, report)
    report(f"base image {base}: waiting for another run that builds it")
    with locked(lock):
        # The other run may have failed; then it is our turn.
        if has_image(images, wanted.digest):
            return image_root(images, wanted.digest)
        return _build(wanted, images, report)


def _build(wanted: Recipe, images: Path, report: Report) -> Path:
    """Make the image; the build lock is held."""
    if has_image(images, wanted.digest):
        return image_root(images, wanted.digest)
    sweep_builds(images)
    _check_space(images)
    started = time.monotonic()
    report(f"base image {wanted.base}: building it (once; about half a minute)")
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=images))
    try:
        # The root of every machine must be readable by all users in it, and mkdtemp is careful.
        work.chmod(0o755)
        # Temporary files are removed with the rest when the tools are killed.
        scratch = work / "tmp"
        scratch.mkdir(mode=0o700)
        try:
            _run(wanted, _command(wanted, work), report, images, scratch)
        except _FullError:
            if not wanted.own or shutil.disk_usage(images).free < DISK_NEEDED:
                raise
            report(f"base image {wanted.base}: its packages are too large for memory: building it on the disk")
            shutil.rmtree(work / "root.half", ignore_errors=True)
            _run(wanted, _command(wanted, work, memory=False), report, images, scratch)
        meta = {"base": wanted.base, "suite": wanted.suite, "packages": wanted.packages, "made": int(time.time())}
        meta |= {"own": wanted.own} if wanted.own else {}
        write_atomically(work / "image.json", json.dumps(meta, indent=1))
        for spent in (work / "stage", scratch):
            shutil.rmtree(spent, ignore_errors=True)
        work.rename(images / wanted.digest)
    except OSError as error:
        msg = f"base image {wanted.base}: {error.strerror or error} ({images}); nothing of it was kept"
        raise HostError(msg) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report(f"base image {wanted.base}: made in {time.monotonic() - started:.0f} s")
    return image_root(images, wanted.digest)


class _FullError(HostError):
    """The disk, or the memory that the image is unpacked in, became full."""


def _command(wanted: Recipe, work: Path, *, memory: bool = True) -> list[str]:
    """The build; in memory, where that is allowed and there is enough."""
    files: list[str] = []
    for number, source in enumerate(host_sources(wanted.suite)):
        path = work / f"{number}{source.suffix}"
        path.write_text(source.text)
        files.append(str(path))
    in_memory = "yes" if memory and _free_memory() >= MEMORY_NEEDED else "no"
    return [
        # If we are killed so is unshare, and with it, as it is their first process, all in the new namespaces.
        "setpriv", "--pdeathsig", "KILL",
        "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
        str(BUILD), str(work), in_memory, wanted.suite, ",".join(wanted.packages), str(ROOTFS), str(wanted.trim),
        *files,
    ]  # fmt: skip


def _run(wanted: Recipe, command: Sequence[str], report: Report, images: Path, scratch: Path) -> None:
    """Run the build, pass on its steps (mmdebstrap's lines that begin with `I: `), and explain its failure."""
    output: list[str] = []
    env = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "LC_ALL": "C.UTF-8", "TMPDIR": str(scratch)}
    env |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd="/",
        text=True, errors="replace",
    ) as build:  # fmt: skip
        for line in build.stdout or ():
            output.append(line.rstrip())
            if line.startswith("I: ") and line.rstrip().endswith("..."):
                report(f"base image {wanted.base}: {line[3:].strip()}")
    if build.returncode == 0:
        return
    if any("No space left on device" in line for line in output):
        free = shutil.disk_usage(images).free
        raise _FullError(
            f"base image: the disk of {images} became full while it was made ({free // 10**6} MB free now, "
            f"{DISK_NEEDED // 10**6} MB needed); nothing of it was kept: free some space and run again"
        )
    if missing := _missing_packages(output):
        raise HostError(
            f"base image: image.packages: {wanted.base} has no package {', '.join(missing)}; nothing of it was kept: "
            "correct the name (packages.debian.org finds it), or remove it"
        )
    tail = "\n".join(f"  {line}" for line in output[-15:])
    msg = f"base image: mmdebstrap failed (status {build.returncode}); nothing of it was kept. Its output:\n{tail}"
    raise HostError(msg)


def _missing_packages(output: Sequence[str]) -> list[str]:
    """Packages that apt-get found in none of its sources, or only mentioned by others, as its errors name them."""
    patterns = ("E: Unable to locate package (.+)", "E: Package '(.+)' has no installation candidate")
    found = [match[1] for line in output for pattern in patterns if (match := re.fullmatch(pattern, line.strip()))]
    return list(dict.fromkeys(found))


def _check_space(images: Path) -> None:
    free = shutil.disk_usage(images).free
    if free < DISK_NEEDED:
        raise HostError(
            f"base image: {images} has {free // 10**6} MB free and making it needs {DISK_NEEDED // 10**6} MB: "
            "free some space, or set HPC_LOCAL_IMAGES (images alone) or HPC_LOCAL_ROOT to a folder on a larger disk"
        )


def _free_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def sweep_builds(images: Path) -> None:
    """Remove what killed builds left; the build lock is held, so that no build is running."""
    for half in images.glob(".build-*"):
        shutil.rmtree(half, ignore_errors=True)
