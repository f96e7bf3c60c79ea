"""Errors of Compute Engine, in its own words."""

from components.local.compute_engine.http import RefusalError

QUOTA = {
    "code": "QUOTA_EXCEEDED",
    "message": "Quota 'C2_CPUS' exceeded.  Limit: 4.0 in region us-central1.",
    "errorDetails": [
        {
            "quotaInfo": {
                "metricName": "compute.googleapis.com/c2_cpus",
                "limitName": "C2-CPUS-per-project-region",
                "dimensions": {"region": "us-central1"},
                "limit": 4.0,
            }
        }
    ],
}
STOCK_OUT = {
    "code": "ZONE_RESOURCE_POOL_EXHAUSTED",
    "message": "The zone 'projects/p/zones/us-central1-a' does not have enough resources available.",
}


def not_found(path: str) -> RefusalError:
    """Return the refusal of a request for a resource that does not exist."""
    return RefusalError(404, "notFound", f"The resource '{path}' was not found")


def not_ready(path: str) -> RefusalError:
    """Return the refusal of a request for a resource that another operation changes."""
    return RefusalError(400, "resourceNotReady", f"The resource '{path}' is not ready")


def taken(path: str) -> RefusalError:
    """Return the refusal to create a resource whose name another one has."""
    return RefusalError(409, "alreadyExists", f"The resource '{path}' already exists")
