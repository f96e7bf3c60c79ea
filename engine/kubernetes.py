"""What the engine needs to work on Kubernetes clusters. Without it resources of Kubernetes are previewed, never run."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KubernetesTools:
    """The programs that do the work: kubectl 1.25 or newer, Helm 3.14 or newer."""

    kubectl: Path
    helm: Path
