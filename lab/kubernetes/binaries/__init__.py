"""Programs that a rehearsal runs and that no package index has: built from pinned Go modules, once, and cached."""

from lab.kubernetes.binaries.go_build import build
from lab.kubernetes.binaries.paths import Paths, ensure, missing

__all__ = ["Paths", "build", "ensure", "missing"]
