"""Whether a chart's version can be had, asked of its registry or repository before anything is created; and the
definitions that are in a chart.

A version that does not exist would be found by the first installation that needs it, half an hour later. A registry
that does not answer is no proof that a version does not exist: Helm may reach it through another proxy.
"""

import hashlib
import io
import json
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECONDS = 15
_MANIFESTS = ", ".join(
    f"application/vnd.{kind}" for kind in ("oci.image.manifest.v1+json", "docker.distribution.manifest.v2+json")
)
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
"""Media type of the layer of a chart's manifest that is its archive."""
_OCI = "oci://"
_SHOWN = 5
_LIMIT = 64 << 20
"""Bytes of a repository's index that are read; the largest known one has 20 MB."""
_VERSION = re.compile(r"^  (?:- |  )version: [\"']?(?P<version>[^\"'\s]+)", re.MULTILINE)
_CHALLENGE = re.compile(r'(?P<name>realm|service|scope)="(?P<value>[^"]*)"')


class MissingChartError(RuntimeError):
    """A registry answered that there is no such chart or version; the text says which there are."""


def check_exists(repo: str, chart: str, version: str) -> str:
    """Nothing, or why it is not known whether the version can be had.

    Raises MissingChartError if it can't.
    """
    if repo.startswith(_OCI):
        return _in_registry(repo.removeprefix(_OCI).rstrip("/"), chart, version)
    if repo.startswith(("https://", "http://")):
        return _in_repository(repo.rstrip("/"), chart, version)
    if not Path(repo, chart, "Chart.yaml").is_file():
        raise MissingChartError(f"{chart}: there is no chart in the folder {Path(repo, chart)}")
    return ""


def definitions(repo: str, chart: str, version: str) -> str:
    """The CustomResourceDefinitions in the `crds/` of a chart in a registry or a folder, as one text of YAML.

    Raises MissingChartError: it can't be read, or has none.
    """
    if not repo.startswith(_OCI):
        found = {str(file): file.read_bytes() for file in Path(repo, chart, "crds").glob("*.yaml")}
    else:
        place = repo.removeprefix(_OCI).rstrip("/")
        try:
            found = _files(_archive(place, chart, version), "crds")
        except (OSError, ValueError, KeyError, tarfile.TarError) as error:
            raise MissingChartError(f"{chart} {version} can't be read from {place}: {error}") from None
    if not found:
        raise MissingChartError(f"{chart} {version} of {repo} has no definitions in crds/")
    return "\n---\n".join(text.decode() for _, text in sorted(found.items()))


def _archive(place: str, chart: str, version: str) -> bytes:
    """A chart's archive. Raises OSError, ValueError and KeyError."""
    base = _base(place, chart)
    manifest = json.loads(_read(f"{base}/manifests/{_tag(version)}", {"Accept": _MANIFESTS}))
    [digest] = [one["digest"] for one in manifest["layers"] if one["mediaType"] == _CONTENT]
    archive = _read(f"{base}/blobs/{digest}", {})
    if f"sha256:{hashlib.sha256(archive).hexdigest()}" != digest:
        raise ValueError(f"the archive does not have the digest {digest}")
    return archive


def _files(archive: bytes, folder: str) -> dict[str, bytes]:
    """Files in a folder of a chart, by name."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as chart:
        inside = [one for one in chart if one.isfile() and one.name.split("/")[1:2] == [folder]]
        return {one.name: file.read() for one in inside if (file := chart.extractfile(one))}


def _base(place: str, chart: str) -> str:
    host, _, folder = place.partition("/")
    return f"https://{host}/v2/{folder}/{chart}"


def _tag(version: str) -> str:
    """A tag has no plus sign: Helm writes an underscore in its place."""
    return version.replace("+", "_")


def _in_registry(place: str, chart: str, version: str) -> str:
    host, base = place.partition("/")[0], _base(place, chart)
    try:
        _read(f"{base}/manifests/{_tag(version)}", {"Accept": _MANIFESTS})
    except urllib.error.HTTPError as error:
        if error.code != 404:
            return f"{host} answers {error.code} for {chart} {version}"
    except (OSError, ValueError) as error:
        return f"{host} does not answer: {error}"
    else:
        return ""
    try:
        tags = json.loads(_read(f"{base}/tags/list", {})).get("tags") or []
    except (OSError, ValueError):
        tags = []
    raise _missing(chart, version, place, tags)


def _in_repository(repo: str, chart: str, version: str) -> str:
    try:
        text = _read(f"{repo}/index.yaml", {}).decode(errors="replace")
    except (OSError, ValueError) as error:
        return f"{repo} does not answer: {error}"
    found = versions(text, chart)
    if any(one.removeprefix("v") == version.removeprefix("v") for one in found):
        return ""
    raise _missing(chart, version, repo, found)


def versions(index: str, chart: str) -> list[str]:
    """Versions of a chart in the text of a repository's index.yaml, in its order: the newest first.

    Only lines of its own entry are read: parsing all of a large index takes many seconds.
    """
    entry = re.search(rf"^  {re.escape(chart)}:\n(?P<rows>(?:  [ -].*\n|\n)*)", f"{index}\n", re.MULTILINE)
    found = _VERSION.finditer(entry["rows"]) if entry else ()
    return [one["version"] for one in found]


def _missing(chart: str, version: str, place: str, known: list[str]) -> MissingChartError:
    some = ", ".join(known[:_SHOWN]) if known else "none that it lists"
    return MissingChartError(
        f"{chart} {version} is not in {place}. It has: {some}\n"
        "to do: choose an nebius.soperator.version that exists, or another nebius.soperator.charts"
    )


def _read(url: str, headers: Mapping[str, str]) -> bytes:
    """What is at a URL, with the anonymous token that the registry asks for. Raises OSError and ValueError."""
    try:
        return _open(url, headers)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "") if error.code == 401 else ""
        given = {one["name"]: one["value"] for one in _CHALLENGE.finditer(challenge)}
        if "realm" not in given:
            raise
    query = "&".join(f"{name}={given[name]}" for name in ("service", "scope") if name in given)
    answer: dict[str, Any] = json.loads(_open(f"{given['realm']}?{query}", {}))
    token = answer.get("token") or answer.get("access_token") or ""
    return _open(url, headers, token)


def _open(url: str, headers: Mapping[str, str], token: str = "") -> bytes:
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - from the stack file or a table
    if token:
        # Registries answer with the address of a blob in a store, which refuses requests with a foreign token.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        return answer.read(_LIMIT)
