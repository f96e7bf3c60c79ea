"""The settings that a stack file gives to Google Cloud's provider, and where they are in `hpc:cluster`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from cluster.config.section import Section
from cluster.config.validators.names import CLOUD_PROJECT, matching

_project_id = matching(
    CLOUD_PROJECT,
    "a project id: 6 to 30 of a-z, 0-9 and -, a letter first and no - last, e.g. my-project",
    "copy it from `gcloud projects list`, column PROJECT_ID",
)
_zone = matching(
    "[a-z]+-[a-z]+[0-9]+-[a-z]",
    "a zone, e.g. us-central1-a",
    "write region, - and the zone's letter: `gcloud compute zones list`",
)
"""Only the form: a check compares it with the zones of the machine types."""


class GoogleCloud(Section):
    """Project and zone, from `gcp:project` and `gcp:zone` of the stack file."""

    stand_in: ClassVar[Mapping[str, Any]] = {"project": "stand-in", "zone": "stand-in1-a"}

    project: Annotated[str, AfterValidator(_project_id)] = Field(examples=["my-project"])
    """Id of the project that everything is made in."""
    zone: Annotated[str, AfterValidator(_zone)] = Field(examples=["us-central1-a"])
    """Zone of all machines."""

    @property
    def region(self) -> str:
        """The zone's region: us-central1 of us-central1-a."""
        return self.zone.rpartition("-")[0]
