"""Whether Nebius credentials are to be had here, without asking Nebius or importing its SDK."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What the SDK takes (nebius 0.6: nebius.sdk.SDK, nebius.aio.cli_config.Config, nebius.aio.token.static.EnvBearer).
TOKEN = "NEBIUS_IAM_TOKEN"  # noqa: S105 - the name of the variable
SERVICE_ACCOUNT = "NEBIUS_CREDENTIALS_FILE"
"""Path of a service account's credentials file, which this program passes to the SDK."""
PROFILES = Path(".nebius") / "config.yaml"
"""The Nebius CLI's profiles, in the home folder."""


def credentials(_: Mapping[str, Any]) -> bool:
    """Whether there is a token, a service account's file, or a profile of the Nebius CLI."""
    if os.environ.get(TOKEN):
        return True
    if path := os.environ.get(SERVICE_ACCOUNT):
        return Path(path).expanduser().is_file()
    return (Path.home() / PROFILES).is_file()
