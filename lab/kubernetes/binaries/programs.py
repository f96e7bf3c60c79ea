"""The programs, their versions, and the Go modules that pin them.

`modules/*/go.mod` pins every module that is compiled and `go.sum` its checksum, and Go refuses to build anything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.kubernetes.binaries.versions import Version

MODULES = Path(__file__).with_name("modules")
_MAJOR, _MINOR = "1", "35"
_KUBERNETES = f"{_MAJOR}.{_MINOR}.4"
"""Latest patch of the release that Nebius offers as its newest; etcd is the version that its go.mod requires."""
_ETCD = "3.6.5"
_HELM = "3.22.0"


@dataclass(frozen=True)
class Program:
    """One program that can be built, or found on PATH."""

    name: str
    version: str
    module: str
    """Folder below `modules`."""
    package: str
    """Go package of its `main`."""
    seconds: int
    """About how long its first build takes on two cores, after those before it in the list."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Go variables that the linker sets: a module does not know its own version."""
    asks: tuple[str, ...] = ("--version",)
    """Arguments with which it prints its version."""
    oldest: Version = (0, 0)
    """One on PATH is used if it is at least this new."""
    below: Version = (999, 0)
    """One on PATH is used if it is older than this."""


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
        "kube-controller-manager", _KUBERNETES, "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", 60,
        _KUBERNETES_VERSION,
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
