"""Project, zone and region of a stack on Google Cloud, and names and labels of its resources."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from cluster.config.cluster import ClusterConfig
from cluster.config.section import ProviderSection
from cluster.config.types import ZoneName
from cluster.config.validators import CLOUD_PROJECT, matching
from cluster.findings import Finding, show

_project_id = matching(
    CLOUD_PROJECT,
    "a project id: 6 to 30 of a-z, 0-9 and -, a letter first and no - last, e.g. my-project",
    "copy it from `gcloud projects list`, column PROJECT_ID",
)


class GoogleCloud(ProviderSection):
    """Project and zone, from `gcp:project` and `gcp:zone` of the stack file."""

    stand_in: ClassVar[Mapping[str, Any]] = {"project": "stand-in", "zone": "stand-in1-a"}

    project: Annotated[str, AfterValidator(_project_id)] = Field(examples=["my-project"])
    """Id of the project that everything is made in."""
    zone: ZoneName = Field(examples=["us-central1-a"])
    """Zone of all machines."""

    more: ClassVar[Mapping[str, str]] = {"region": "On gcp: the zone's region; it need not be said."}

    @property
    def region(self) -> str:
        """The zone's region: us-central1 of us-central1-a."""
        return self.zone.rpartition("-")[0]

    @classmethod
    def find_errors(cls, settings: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield an error if `gcp:region` is not the zone's."""
        region, zone = settings.get("region"), settings.get("zone")
        if region is not None and zone is not None and str(zone).rpartition("-")[0] != region:
            yield Finding(
                id="gcp-region",
                at="gcp:region",
                given=show(region),
                allowed=f"the region of gcp:zone, {str(zone).rpartition('-')[0]}",
                todo="remove it: the zone says the region",
            )


LONGEST = 63
"""Characters of a name (RFC 1035) or of a label's value."""

ACCOUNTS: Mapping[str, str] = {
    "controller": "ctl",
    "login": "login",
    "monitoring": "mon",
    "node": "node",
    "builder": "bake",
    "lustre": "lustre",
}
"""Ending of each role's service account. Its id may have 30 characters, of which a cluster's name takes up to 20."""


def place(config: ClusterConfig) -> GoogleCloud:
    """Return project, zone and region, which every stack of the platform gcp has."""
    section = config.section(GoogleCloud)
    if section is None:
        raise TypeError(f"the cluster {config.name} is not one on Google Cloud")
    return section


def host_project(config: ClusterConfig) -> str | None:
    """Return the project of a network that another project shares; None where it is the stack's. Firewall rules are
    created there (cloud.google.com/vpc/docs/shared-vpc, firewalls)."""
    network = config.network.existing.network if config.network.existing else ""
    project = network.split("/")[1] if "/" in network else None
    return project if project != place(config).project else None


def labels(config: ClusterConfig, part: str) -> dict[str, str]:
    """Return the labels of a resource, by which bills and consoles distinguish clusters and their parts.

    `part` is controller, login, monitoring, node, lustre, storage, image or network.
    """
    return {"hpc-cluster": config.name, "hpc-part": part, "managed-by": "pulumi"}


NODESET_LABEL, MADE_BY_LABEL = "hpc-nodeset", "hpc-made-by"
"""Labels of elastic nodes' instances: their nodeset, and that the reconcile loop created them."""
RECONCILE = "reconcile"
"""Value of the label `hpc-made-by`."""


def elastic_labels(config: ClusterConfig, nodeset: str) -> dict[str, str]:
    """Return the labels of a nodeset's elastic instances, by which the loop and `destroy` find what they may delete."""
    return {**labels(config, "node"), NODESET_LABEL: nodeset, MADE_BY_LABEL: RECONCILE, "managed-by": "hpc-reconcile"}


def account_id(config: ClusterConfig, role: str) -> str:
    """Return the id of a role's service account, 6 to 30 characters."""
    return f"{config.name}-{ACCOUNTS[role]}".ljust(6, "0")


def setup_bucket(config: ClusterConfig) -> str:
    """Return the name of the set-up's bucket: unique in all of Google Cloud, as the project's id is."""
    return f"{place(config).project}-{config.name}-setup"
