"""etcd, Kubernetes and Helm for outside checks: one on PATH is used if it is new enough, else it is built."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests import go_programs

MODULES = Path(__file__).with_name("modules")
_MAJOR, _MINOR = "1", "35"
_KUBERNETES = f"{_MAJOR}.{_MINOR}.4"
"""The latest patch of Nebius's newest release; etcd is the version that its go.mod requires."""
_ETCD = "3.6.5"
_HELM = "3.22.0"


@dataclass(frozen=True)
class Program:
    """A program that is built, or found on PATH."""

    name: str
    version: str
    module: str
    """Folder below `modules`."""
    package: str
    """Go package of its `main`."""
    seconds: int
    """Approximate duration of its first build on two cores, after those before it in the list."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Go variables that the linker sets, because a module does not contain its own version."""
    asks: tuple[str, ...] = ("--version",)
    """Arguments with which it prints its version."""
    oldest: go_programs.Version = (0, 0)
    """A program on PATH is used if it is at least this new."""
    below: go_programs.Version = (999, 0)
    """A program on PATH is used if it is older than this."""


_KUBERNETES_VERSION = {
    "k8s.io/component-base/version.gitVersion": f"v{_KUBERNETES}",
    "k8s.io/component-base/version.gitMajor": _MAJOR,
    "k8s.io/component-base/version.gitMinor": _MINOR,
}

PROGRAMS = (
    Program(
        "etcd", _ETCD, "kubernetes", "go.etcd.io/etcd/server/v3", 60,
        # etcd of 3.5 and newer has --unsafe-no-fsync.
        oldest=(3, 5),
    ),
    Program(
        "kubectl", _KUBERNETES, "kubernetes", "k8s.io/kubernetes/cmd/kubectl", 60, _KUBERNETES_VERSION,
        asks=("version", "--client", "--output=json"),
        # Server-side apply with field validation by the server is in kubectl since 1.25.
        oldest=(1, 25),
    ),
    Program(
        "kube-apiserver", _KUBERNETES, "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 120, _KUBERNETES_VERSION,
        oldest=(1, 33),
    ),
    Program(
        "helm", _HELM, "helm", "helm.sh/helm/v3/cmd/helm", 60,
        variables={"helm.sh/helm/v3/internal/version.version": f"v{_HELM}"},
        asks=("version", "--short"),
        # Helm 4 names options differently.
        oldest=(3, 14), below=(4, 0),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Paths:
    """The programs, each by its path."""

    etcd: Path
    kube_apiserver: Path
    kubectl: Path
    helm: Path


def ensure(report: go_programs.Report = lambda _text: None) -> Paths:
    """Return all programs; build those that neither PATH nor the cache has, with a message for each.

    The first call takes about five minutes on two cores and needs the Go module proxy (GOPROXY); later ones need
    neither time nor a network. Raises HostError.
    """
    return Paths(**{program.name.replace("-", "_"): _found(program) or _built(program, report) for program in PROGRAMS})


def _built(program: Program, report: go_programs.Report) -> Path:
    minutes = f"{program.seconds // 60} minute{'s' if program.seconds >= 120 else ''}"
    return go_programs.build(
        program.name, MODULES / program.module, report, package=program.package, variables=program.variables,
        about=f"{program.name} {program.version}, about {minutes}",
    )  # fmt: skip


def _found(program: Program) -> Path | None:
    path = shutil.which(program.name)
    if path and program.oldest <= go_programs.printed(path, program.asks) < program.below:
        return Path(path)
    return None
