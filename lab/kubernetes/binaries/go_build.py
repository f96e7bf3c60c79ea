"""Building Go programs: cached by the hash of what goes in, safe to kill and to start twice at once."""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from components.local.host.locks import locked
from components.local.host.paths import HostError
from lab.kubernetes.binaries.toolchain import Report, cache, go

_FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
"""`readonly`: Go fails where go.mod or go.sum would have to change, instead of building what is not pinned."""
_PRESENT = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}


def build(
    name: str,
    source: Path,
    report: Report = lambda _text: None,
    *,
    package: str = ".",
    variables: Mapping[str, str] | None = None,
    about: str = "",
) -> Path:
    """The program `name`, built from a package of the Go module in the folder `source` unless it is cached.

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
        # Whoever held the lock before may have done the work, or may have been killed.
        return target if target.exists() else _build(target, source, report, what, about)


def location(name: str, source: Path, *, package: str = ".", variables: Mapping[str, str] | None = None) -> Path:
    """Where the built program is, or will be: by the hash of all that goes into it but Go, of which any will do that
    go.mod accepts."""
    system = os.uname()
    about = [package, dict(variables or {}), system.sysname, system.machine]
    found = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for file in _files(source):
        found.update(f"\0{file.relative_to(source)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return cache() / found.hexdigest()[:16] / name


def _files(source: Path) -> list[Path]:
    if not (source / "go.mod").exists():
        raise HostError(f"{source}: no Go module is there (go.mod)")
    return sorted(file for file in source.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _build(target: Path, source: Path, report: Report, what: list[str], about: str) -> Path:
    program = go(source, report)
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
        # Above Go's errors are its downloads, a line each.
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("go: downloading ")]
        raise HostError(f"Go can't build {target.name}: " + ("\n".join(lines[-20:]) or f"status {done.returncode}"))
    new.rename(target)
    report(f"built {target.name} in {time.monotonic() - began:.0f} s")
    return target


def _ends_with_parent() -> list[str]:
    """The command that starts another one so that the kernel ends it with this thread (util-linux' setpriv): a build
    that goes on after its lock is released would write over the next one's."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
