"""Whether Google credentials are to be had here, without asking Google or importing its packages."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What the provider takes (pulumi-gcp's settings credentials, accessToken and impersonateServiceAccount: their variables
# in its installation page), and google.auth.environment_vars with google.auth.default.
_VARIABLES = (
    "GOOGLE_CREDENTIALS",
    "GOOGLE_CLOUD_KEYFILE_JSON",
    "GCLOUD_KEYFILE_JSON",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GCE_METADATA_HOST",
)
_SETTINGS = ("gcp:credentials", "gcp:accessToken")
_PRODUCT = Path("/sys/class/dmi/id/product_name")
"""Says Google on a machine of Google Cloud, whose metadata server has credentials (google.auth.compute_engine)."""


def credentials(settings: Mapping[str, Any]) -> bool:
    """Whether any are named by a stack's settings, by the environment, by `gcloud`, or by the machine."""
    if any(settings.get(key) for key in _SETTINGS) or any(os.environ.get(name) for name in _VARIABLES):
        return True
    folder = os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config/gcloud"
    if (Path(folder) / "application_default_credentials.json").exists():
        return True
    try:
        return _PRODUCT.read_text(encoding="utf-8").startswith("Google")
    except OSError:
        return False
