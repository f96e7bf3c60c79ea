"""Charts in registries and repositories: whether each version exists, and the definitions that Soperator's has."""

import hashlib
import io
import json
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster.platforms.nebius.releases import Release, unknown_values
from components.dynamic import Action, ActionProvider, report, without_traceback
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


class ChartError(RuntimeError):
    """There is no such chart or version, or a chart has no such value; the text says which there are."""


def check_exists(repo: str, chart: str, version: str) -> str:
    """Return nothing, or why it is not known whether the version can be had.

    Raises ChartError if it can't.
    """
    if repo.startswith(_OCI):
        return _in_registry(repo.removeprefix(_OCI).rstrip("/"), chart, version)
    if repo.startswith(("https://", "http://")):
        return _in_repository(repo.rstrip("/"), chart, version)
    if not Path(repo, chart, "Chart.yaml").is_file():
        raise ChartError(f"{chart}: there is no chart in the folder {Path(repo, chart)}")
    return ""


def definitions(repo: str, chart: str, version: str) -> str:
    """The CustomResourceDefinitions in the `crds/` of a chart in a registry or a folder, as one text of YAML.

    Raises ChartError: it can't be read, or has none.
    """
    found = _part(repo, chart, version, "crds")
    if not found:
        raise ChartError(f"{chart} {version} of {repo} has no definitions in crds/")
    return "\n---\n".join(text.decode() for _, text in sorted(found.items()))


def _part(repo: str, chart: str, version: str, part: str) -> dict[str, bytes]:
    """A file of a chart in a registry or a folder, or the files of a folder of it, by name."""
    if not repo.startswith(_OCI):
        place = Path(repo, chart, part)
        return {str(file): file.read_bytes() for file in ([place] if place.is_file() else place.glob("*.yaml"))}
    where = repo.removeprefix(_OCI).rstrip("/")
    try:
        return _files(_archive(where, chart, version), part)
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise ChartError(f"{chart} {version} can't be read from {where}: {error}") from None


def _archive(place: str, chart: str, version: str) -> bytes:
    """A chart's archive. Raises OSError, ValueError and KeyError."""
    base = _base(place, chart)
    manifest = json.loads(_read(f"{base}/manifests/{_tag(version)}", {"Accept": _MANIFESTS}))
    [digest] = [layer["digest"] for layer in manifest["layers"] if layer["mediaType"] == _CONTENT]
    archive = _read(f"{base}/blobs/{digest}", {})
    if f"sha256:{hashlib.sha256(archive).hexdigest()}" != digest:
        raise ValueError(f"the archive does not have the digest {digest}")
    return archive


def _files(archive: bytes, part: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as chart:
        inside = [member for member in chart if member.isfile() and member.name.split("/")[1:2] == [part]]
        return {member.name: file.read() for member in inside if (file := chart.extractfile(member))}


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
    if any(known.removeprefix("v") == version.removeprefix("v") for known in found):
        return ""
    raise _missing(chart, version, repo, found)


def versions(index: str, chart: str) -> list[str]:
    """Versions of a chart in the text of a repository's index.yaml, in its order: the newest first.

    Only lines of its own entry are read: parsing all of a large index takes many seconds.
    """
    entry = re.search(rf"^  {re.escape(chart)}:\n(?P<rows>(?:  [ -].*\n|\n)*)", f"{index}\n", re.MULTILINE)
    found = _VERSION.finditer(entry["rows"]) if entry else ()
    return [row["version"] for row in found]


def _missing(chart: str, version: str, place: str, known: list[str]) -> ChartError:
    some = ", ".join(known[:_SHOWN]) if known else "none that it lists"
    return ChartError(
        f"{chart} {version} is not in {place}. It has: {some}\n"
        "to do: choose an nebius.soperator.version that exists, or another nebius.soperator.charts"
    )


def _read(url: str, headers: Mapping[str, str]) -> bytes:
    """Return what is at a URL, with the anonymous token that the registry asks for. Raises OSError and ValueError."""
    try:
        return _open(url, headers)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "") if error.code == 401 else ""
        given = {part["name"]: part["value"] for part in _CHALLENGE.finditer(challenge)}
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


class ChartVersionsProvider(ActionProvider):
    """Asks registries and repositories, and changes nothing."""

    ID = "charts"
    ACTED_ON = ("charts",)

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        """Check all charts, or those that are new. Fails with every chart or value that there is not."""
        known = [dict(chart) for chart in olds["charts"]] if olds else []
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(_check_chart, (row for row in news["charts"] if dict(row) not in known)))
        for line in sorted({line for _, lines in answers for line in lines}):
            report(line)
        if errors := [error for errors, _ in answers for error in errors]:
            with without_traceback(ChartError):
                raise ChartError("\n".join(errors))


class ChartVersions(Action, module="nebius", name="ChartVersions"):
    """Everything else waits for it. Input: `charts`, rows of repo, chart and version, and of Soperator's charts
    `release` and `values`: the keys that the stack file gives."""

    PROVIDER = ChartVersionsProvider


def charts_of(releases: Iterable[Release], values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The charts of releases, each once; `values` are those of the stack file by release."""
    rows = {
        (release.repo, release.chart, release.version): {"release": release.name, "values": _keys(given)}
        if (given := (values or {}).get(release.name)) and not release.repo.startswith("http")
        else {}
        for release in releases
    }
    return [
        {"repo": repo, "chart": chart, "version": version, **rows[repo, chart, version]}
        for repo, chart, version in sorted(rows)
    ]


def _keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of values: the values themselves may be secret."""
    return {key: _keys(value) if isinstance(value, Mapping) else None for key, value in values.items()}


def _check_chart(row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    place = {key: row[key] for key in ("repo", "chart", "version")}
    errors, lines = list[str](), list[str]()
    try:
        if unsure := check_exists(**place):
            lines.append(f"whether all charts exist is not known: {unsure}")
        for text in _part(**place, part="values.yaml").values() if "values" in row and not unsure else ():
            for what, todo in unknown_values(row["values"], text, f"nebius.values.{row['release']}"):
                errors += [f"{what}\n  to do: {todo}"] if todo else []
                lines += [] if todo else [f"{what}; Helm ignores it, unless a template reads it all the same"]
    except ChartError as error:
        errors.append(str(error))
    return errors, lines


_DEFINITION_SECONDS = 300
"""Time for 3.5 MB of definitions."""
_MANAGER = "hpc"


class DefinitionsProvider(ActionProvider):
    """Applies them on the server, which needs no copy of them in an annotation: that would be too long for one.

    A deletion leaves them, as Helm does: what they define would be deleted with them.
    """

    ID = "definitions"
    ACTED_ON = ("chart", "access")

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> None:
        """Apply those of the version, and wait until the API server serves them."""
        with without_traceback(ChartError):
            text = definitions(**news["chart"])
        with without_traceback(KubectlError), Kubectl(news["access"]) as kubectl:
            apply = ("apply", "--server-side", "--force-conflicts", f"--field-manager={_MANAGER}", "--filename=-")
            names = kubectl.run(*apply, "--output=name", stdin=text, seconds=_DEFINITION_SECONDS).split()
            kubectl.run("wait", "--for=condition=Established", "--timeout=60s", *names, seconds=90)


class Definitions(Action, module="nebius", name="Definitions"):
    """The definitions of a release's chart; the release is installed after it. Inputs: `chart` (a row), `access`."""

    PROVIDER = DefinitionsProvider
