"""Where on Google Cloud: the settings that the stack file gives to the provider itself."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from cluster.config.section import Section
from cluster.config.types import ProjectId, ZoneName


class GoogleCloud(Section):
    """Project and zone, from `gcp:project` and `gcp:zone` of the stack file."""

    stand_in: ClassVar[Mapping[str, Any]] = {"project": "stand-in", "zone": "stand-in1-a"}

    project: ProjectId = Field(examples=["my-project"])
    """Id of the project that everything is made in."""
    zone: ZoneName = Field(examples=["us-central1-a"])
    """Zone of all machines."""

    @property
    def region(self) -> str:
        """The zone's region: us-central1 of us-central1-a."""
        return self.zone.rpartition("-")[0]
