"""Metrics and alerts: what Prometheus on the controller collects and keeps."""

from typing import Annotated

from pydantic import Field

from cluster.config.impact import NoEffect
from cluster.config.section import Section
from cluster.config.types import Positive

SERVICE = NoEffect("Prometheus restarts on the controller; Slurm and jobs are not affected")


class Monitoring(Section):
    """Prometheus and Alertmanager on the controller, node_exporter on every machine, all from packages of the
    distribution; `{}` has them with their defaults. Adding or removing the section recreates the machines, whose image
    has the packages."""

    retention_days: Annotated[Positive, SERVICE] = Field(default=15, le=3650)
    """Days for which metrics are kept."""
    disk_gb: Annotated[Positive, SERVICE] = Field(default=10, le=10_000)
    """GB of the controller's disk that metrics take at most: then the oldest are deleted, however young they are."""
    interval_seconds: Annotated[Positive, SERVICE] = Field(default=30, ge=10, le=300)
    """Seconds between two collections of all metrics."""
