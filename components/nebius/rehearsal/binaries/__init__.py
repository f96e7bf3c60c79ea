"""Programs that a rehearsal runs and that no package index has: built from pinned Go modules, once, and cached."""

from components.nebius.rehearsal.binaries.go_build import build
from components.nebius.rehearsal.binaries.paths import Paths, ensure, missing

__all__ = ["Paths", "build", "ensure", "missing"]
