"""Where the programs are: on PATH if they are new enough there, else built."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.kubernetes.binaries.go_build import build, location
from lab.kubernetes.binaries.programs import MODULES, PROGRAMS, Program
from lab.kubernetes.binaries.toolchain import Report
from lab.kubernetes.binaries.versions import printed


@dataclass(frozen=True)
class Paths:
    """The programs, each by its path."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kubectl: Path
    helm: Path


def ensure(report: Report = lambda _text: None) -> Paths:
    """All programs; those that neither PATH nor the cache has are built, with a message for each.

    The first time that takes about six minutes on two cores and needs the Go module proxy (GOPROXY), afterwards it
    takes no time and no network. Raises HostError.
    """
    return Paths(**{one.name.replace("-", "_"): _found(one) or _built(one, report) for one in PROGRAMS})


def missing() -> list[str]:
    """Names of the programs that `ensure` would build."""
    return [one.name for one in PROGRAMS if not (_found(one) or _location(one).exists())]


def _built(program: Program, report: Report) -> Path:
    minutes = f"{program.seconds // 60} minute{'s' if program.seconds >= 120 else ''}"
    return build(
        program.name, MODULES / program.module, report, package=program.package, variables=program.variables,
        about=f"{program.name} {program.version}, about {minutes}",
    )  # fmt: skip


def _location(program: Program) -> Path:
    return location(program.name, MODULES / program.module, package=program.package, variables=program.variables)


def _found(program: Program) -> Path | None:
    path = shutil.which(program.name)
    if path and program.oldest <= printed(path, program.asks) < program.below:
        return Path(path)
    return None
