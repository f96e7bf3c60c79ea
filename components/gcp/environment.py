"""Environment variables of Google Cloud: default project, region and zone (pulumi-gcp's settings)."""

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import place
from components.state_bucket import Environment

VARIABLES = ("GOOGLE_PROJECT", "GOOGLE_REGION", "GOOGLE_ZONE")


def environment(config: ClusterConfig) -> Environment:
    """Return project, region and zone. Google's programs find credentials on their own."""
    where = place(config)
    return Environment(variables=dict(zip(VARIABLES, (where.project, where.region, where.zone), strict=True)))


def project(config: ClusterConfig) -> str:
    """Return the project's id, from the stack file."""
    return place(config).project
