"""Names of container images."""

from cluster.config.validators.choices import matching

image = matching(
    "[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
    "(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?",
    "an image as registries name it, e.g. nvcr.io/nvidia/pytorch:24.04-py3",
    "write it with / after the registry, and without docker://",
)
"""Only the form (distribution/reference, its grammar of references)."""
