"""Variables of Google Cloud: where programs work by default (pulumi-gcp, its settings' variables)."""

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import place
from components.state_bucket import Environment

VARIABLES = ("GOOGLE_PROJECT", "GOOGLE_REGION", "GOOGLE_ZONE")


def environment(config: ClusterConfig) -> Environment:
    """Project, region and zone. Credentials stay where Google's programs find them."""
    where = place(config)
    return Environment(variables=dict(zip(VARIABLES, (where.project, where.region, where.zone), strict=True)))


def project(config: ClusterConfig) -> str:
    """Id of the project, without asking anybody."""
    return place(config).project
