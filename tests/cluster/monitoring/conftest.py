"""promtool and amtool of Debian, which check what this program renders."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.hostfiles import locked
from tests import programs

PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}
Tool = Callable[..., str]


def _installed(name: str) -> str:
    """The program's path; unpacked from its package into the cache where PATH has none."""
    if found := shutil.which(name):
        return found
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpc" / "prometheus"
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / PACKAGES[name] / "usr/bin" / name
    with locked(cache / "lock"):
        if not path.exists():
            new = cache / f"{PACKAGES[name]}.new"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            download = ["apt-get", "download", "--quiet", PACKAGES[name]]
            if subprocess.run(download, cwd=new, check=False, capture_output=True).returncode:
                # A new machine has no lists of packages.
                subprocess.run(["apt-get", "update", "--quiet"], check=True, capture_output=True)
                subprocess.run(download, cwd=new, check=True, capture_output=True)
            (package,) = new.glob("*.deb")
            subprocess.run(["dpkg-deb", "--extract", str(package), str(new)], check=True)
            package.unlink()
            new.replace(path.parents[2])
    return str(path)


def _tool(name: str) -> Tool:
    path = _installed(name)

    def run(*arguments: object) -> str:
        done = programs.run([path, *map(str, arguments)])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def promtool() -> Tool:
    return _tool("promtool")


@pytest.fixture(scope="session")
def amtool() -> Tool:
    return _tool("amtool")
