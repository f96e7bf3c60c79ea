"""The JSON Schema of a stack file, for editors."""

from typing import Any

from cluster.config.cluster import ClusterConfig


def json_schema() -> dict[str, Any]:
    """Schema of a whole Pulumi.<stack>.yaml."""
    return ClusterConfig.model_json_schema()
