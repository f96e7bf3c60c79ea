"""Releases as Helm 3 records them: in Secrets of the type helm.sh/release.v1, one for each revision."""

import base64
import binascii
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SELECTOR = "owner=helm,status=deployed"
"""Labels of the Secrets of revisions that are installed."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A release that is installed."""

    name: str
    namespace: str
    chart: str
    version: str
    """Of its chart."""
    revision: int
    values: Mapping[str, Any]
    """What it was given, without the chart's own defaults."""
    manifest: str
    """The objects that it applied, as YAML documents."""


def installed(secrets: Iterable[Mapping[str, Any]]) -> dict[str, Installed]:
    """The releases by name; the newest revision of each. A Secret that can't be read is left out."""
    found: dict[str, Installed] = {}
    for secret in secrets:
        release = _release(secret)
        if release and (release.name not in found or found[release.name].revision < release.revision):
            found[release.name] = release
    return found


def _release(secret: Mapping[str, Any]) -> Installed | None:
    try:
        packed = base64.b64decode(base64.b64decode((secret.get("data") or {})["release"]))
        # Helm has packed releases since 3.0; what it wrote before is the document itself.
        document = json.loads(gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed)
        metadata = document["chart"]["metadata"]
        return Installed(
            name=document["name"],
            namespace=document["namespace"],
            chart=metadata["name"],
            version=metadata["version"],
            revision=int(document["version"]),
            values=document.get("config") or {},
            manifest=document.get("manifest") or "",
        )
    except (KeyError, TypeError, ValueError, OSError, EOFError, binascii.Error):
        return None
