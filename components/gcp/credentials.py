"""Credentials for calls to Google Cloud, found as the provider finds them."""

import json
import os
import urllib.parse
from pathlib import Path

import google.auth
import google.auth.credentials
import google.auth.exceptions
import google.oauth2.credentials

from components.gcp.bake_design import LOG_IN, cloud_error

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
KEYS = ("GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON")
"""Variables in which the provider takes credentials, as text or as a path (pulumi-gcp, installation)."""


def host(endpoint: str) -> str:
    """Return scheme and host of an endpoint, without the path that the provider's setting has and the client adds
    itself.

    Raises GoogleCloudError for an endpoint to which credentials would travel unencrypted.
    """
    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme == "https" or _is_loopback(endpoint):
        return f"{parts.scheme}://{parts.netloc}"
    raise cloud_error(
        f"gcp:computeCustomEndpoint is {endpoint}, which would get credentials unencrypted",
        "write an endpoint that begins with https://, or remove it for Google's own",
    )


def _is_loopback(endpoint: str) -> bool:
    parts = urllib.parse.urlsplit(endpoint)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")


def credentials(endpoint: str) -> google.auth.credentials.Credentials:
    """Return the credentials for an endpoint; anonymous ones for an endpoint on this machine.

    Raises GoogleCloudError where there are none.
    """
    if endpoint and _is_loopback(endpoint):
        return google.auth.credentials.AnonymousCredentials()
    if token := os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
        return google.oauth2.credentials.Credentials(token=token)
    try:
        for key in KEYS:
            if value := os.environ.get(key):
                return _load_key(key, value)
        return google.auth.default(scopes=SCOPES)[0]
    except google.auth.exceptions.GoogleAuthError as error:
        raise cloud_error(f"no credentials for Google Cloud: {' '.join(str(error).split())}", LOG_IN) from error


def _load_key(variable: str, value: str) -> google.auth.credentials.Credentials:
    try:
        text = value if value.lstrip().startswith("{") else Path(value).expanduser().read_text(encoding="utf-8")
        info = json.loads(text)
    except (OSError, ValueError):
        raise cloud_error(f"{variable} is neither a key nor the path of one", LOG_IN) from None
    return google.auth.load_credentials_from_dict(info, scopes=SCOPES)[0]
