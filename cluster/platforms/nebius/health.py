"""What Soperator does by itself to keep a cluster sound: checks, replacement of nodes, backups."""

from typing import Literal

from pydantic import Field

from cluster.config.section import Section
from cluster.config.types import Flag, Positive


class Health(Section):
    """Health checks that Soperator runs by itself."""

    scope: Literal["skip_all", "testing", "essential", "prod_quick", "prod_acceptance"] = "prod_quick"
    """Which active checks run when the cluster comes up."""
    replace_nodes: Flag = True
    """Whether nodes that were drained for a hardware problem are recreated without being asked for."""


class Backups(Section):
    """Backups of the jail into a bucket, by k8up."""

    enabled: Literal["auto", True, False] = "auto"
    """auto: if the jail is created by the stack and smaller than 12 TiB."""
    schedule: str = Field(default="@daily-random", min_length=1, max_length=100)
    """When they are made, as in a crontab, or one of k8up's words."""
    keep_daily: Positive = Field(default=7, le=365)
    """Daily backups that are kept."""
