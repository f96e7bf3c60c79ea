"""What Soperator does by itself to keep a cluster sound: checks, replacement of nodes, backups."""

from typing import Literal

from pydantic import Field

from cluster.config.section import Section
from cluster.config.types import Flag, Positive


class NcclCheck(Section):
    """The periodic NCCL test of nodes with GPUs, which drains nodes below the threshold. Soperator before 1.22."""

    enabled: Flag = True
    """Whether it runs."""
    schedule: str = Field(default="0 */3 * * *", min_length=1, max_length=100)
    """When it runs, as in a crontab."""
    min_busbw_gbps: Positive = Field(default=420, le=100_000)
    """Average bus bandwidth in GB/s below which a node is drained. 420 is for NVLink of eight H100, 45 for InfiniBand.
    """
    infiniband: Flag = False
    """Whether it measures InfiniBand in place of NVLink."""


class Health(Section):
    """Health checks that Soperator runs by itself."""

    nccl: NcclCheck = Field(default_factory=NcclCheck)
    """The periodic NCCL test. For Soperator before 1.22."""
    scope: Literal["skip_all", "testing", "essential", "prod_quick", "prod_acceptance"] = "prod_quick"
    """Which active checks run when the cluster comes up. For Soperator from 3.0 on."""
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
