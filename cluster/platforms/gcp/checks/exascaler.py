"""EXAScaler, which stands on a service that Google supports no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.checks.warning import Warned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig

UNSUPPORTED_SINCE = "31 December 2025"
"""Of Deployment Manager with its Runtime Configurator: the notice on cloud.google.com/deployment-manager (some
translations of it said 31 March 2026)."""


def warned(config: ClusterConfig) -> Iterator[Warned]:
    """Every EXAScaler file system."""
    lustre = config.storage.lustre
    if config.platform == "gcp" and lustre is not None and lustre.kind == "exascaler":
        yield Warned(
            at=("storage", "lustre", "kind"),
            what="EXAScaler's servers find each other by Google's Runtime Configurator, which is out of support since "
            f"{UNSUPPORTED_SINCE}: without it they do not start, and nobody mends it; and DDN has made no release for "
            "Google Cloud since March 2025",
            todo="for a new cluster write `kind: managed` (Pulumi.a3mega-managed.yaml); of one that is up, keep a copy "
            "of what lies on it",
        )
