"""Charts in registries and repositories: whether each version exists, and the definitions that Soperator's has."""

import hashlib
import io
import json
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster.platforms.nebius.releases import Release
from components.dynamic import report, without_traceback
from components.nebius.actions import ActingProvider, Action
from components.nebius.kubectl import Kubectl, KubectlError

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
    [digest] = [layer["digest"] for layer in manifest["layers"] if layer["mediaType"] == _CONTENT]
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


class ChartVersionsProvider(ActingProvider):
    """Asks registries and repositories, and changes nothing."""

    ID = "charts"
    ACTED_ON = ("charts",)

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        """Check all charts, or those that are new. Fails with every chart that can't be had."""
        known = [dict(chart) for chart in olds["charts"]] if olds else []
        _check_charts([chart for chart in news["charts"] if dict(chart) not in known])


class ChartVersions(Action, module="nebius", name="ChartVersions"):
    """Everything else waits for it. Input: `charts`, rows of repo, chart and version."""

    PROVIDER = ChartVersionsProvider


def charts_of(releases: Sequence[Release]) -> list[dict[str, str]]:
    """The charts of releases, each once."""
    charts = sorted({(release.repo, release.chart, release.version) for release in releases})
    return [{"repo": repo, "chart": chart, "version": version} for repo, chart, version in charts]


def _check_charts(charts: Sequence[dict[str, Any]]) -> None:
    def look(row: dict[str, Any]) -> tuple[str, str]:
        try:
            return check_exists(row["repo"], row["chart"], row["version"]), ""
        except MissingChartError as error:
            return "", str(error)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(look, charts))
    unknown = sorted({one for one, _ in answers if one})
    for text in unknown:
        report(f"whether all charts exist is not known: {text}")
    errors = [one for _, one in answers if one]
    if errors:
        with without_traceback(MissingChartError):
            raise MissingChartError("\n".join(errors))


_DEFINITION_SECONDS = 300
"""For 3.5 MB of definitions."""
_MANAGER = "hpc"


class DefinitionsProvider(ActingProvider):
    """Applies them on the server, which needs no copy of them in an annotation: that would be too long for one.

    A deletion leaves them, as Helm does: what they define would be deleted with them.
    """

    ID = "definitions"
    ACTED_ON = ("chart", "access")

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> None:
        """Apply those of the version, and wait until the API server serves them."""
        with without_traceback(MissingChartError):
            text = definitions(**news["chart"])
        with without_traceback(KubectlError), Kubectl(news["access"]) as kubectl:
            apply = ("apply", "--server-side", "--force-conflicts", f"--field-manager={_MANAGER}", "--filename=-")
            kubectl.run(*apply, stdin=text, seconds=_DEFINITION_SECONDS)
            kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "--filename=-", stdin=text, seconds=90)


class Definitions(Action, module="nebius", name="Definitions"):
    """The definitions of a release's chart; the release is installed after it. Inputs: `chart` (a row), `access`."""

    PROVIDER = DefinitionsProvider
