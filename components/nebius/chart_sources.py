"""Charts in registries, repositories and folders: checks of their versions and values, and their definitions."""

import hashlib
import io
import json
import re
import tarfile
import urllib.error
import urllib.parse
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster.platforms.nebius.releases import unknown_values
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.kubectl import Kubectl, KubectlError
from components.public_files import fetch

_MANIFESTS = ", ".join(
    f"application/vnd.{kind}"
    for kind in (
        "oci.image.manifest.v1+json", "docker.distribution.manifest.v2+json",
        "oci.image.index.v1+json", "docker.distribution.manifest.list.v2+json",
    )
)  # fmt: skip
_DIGEST = "Docker-Content-Digest"
"""Header with the digest of a manifest (opencontainers/distribution-spec 1.1, pulling manifests)."""
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
"""Media type of the layer of a chart's manifest that is its archive."""
_OCI = "oci://"


class ChartError(RuntimeError):
    """A chart, a version or a value does not exist; the text says which exist."""


class UnansweredError(ChartError):
    """A registry or a repository does not answer."""


def check_exists(repo: str, chart: str, version: str, sha256: str = "") -> str:
    """Return the digest of a version, or of an image's tag, that exists; an empty text for one in a folder.

    Raises ChartError if it does not exist, or if it is in a repository and its archive does not have that `sha256`;
    UnansweredError if that is not known.
    """
    if repo.startswith(_OCI):
        return _in_registry(repo.removeprefix(_OCI).rstrip("/"), chart, version)
    if repo.startswith(("https://", "http://")):
        return _in_repository(repo.rstrip("/"), chart, version, sha256)
    if not Path(repo, chart, "Chart.yaml").is_file():
        raise ChartError(f"{chart}: there is no chart in the folder {Path(repo, chart)}")
    return ""


def definitions(repo: str, chart: str, version: str) -> str:
    """Return the CustomResourceDefinitions in `crds/` of a chart in a registry or a folder, as one text of YAML.

    Raises ChartError: the chart can't be read, or has none.
    """
    files = _files(repo, chart, version, "crds")
    if not files:
        raise ChartError(f"{chart} {version} of {repo} has no definitions in crds/")
    return "\n---\n".join(text.decode() for _, text in sorted(files.items()))


def _files(repo: str, chart: str, version: str, part: str) -> dict[str, bytes]:
    """Return a file, or the files of a folder, of a chart in a registry or a folder, by name."""
    if not repo.startswith(_OCI):
        place = Path(repo, chart, part)
        return {str(file): file.read_bytes() for file in ([place] if place.is_file() else place.glob("*.yaml"))}
    place = repo.removeprefix(_OCI).rstrip("/")
    try:
        archive = _archive(place, chart, version)
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
            inside = [member for member in members if member.isfile() and member.name.split("/")[1:2] == [part]]
            return {member.name: file.read() for member in inside if (file := members.extractfile(member))}
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise ChartError(f"{chart} {version} can't be read from {place}: {error}") from None


def _archive(place: str, chart: str, version: str) -> bytes:
    """Read the archive of a chart in a registry. Raises OSError, ValueError and KeyError."""
    manifest = json.loads(_manifest(place, chart, version)[0])
    [digest] = [layer["digest"] for layer in manifest["layers"] if layer["mediaType"] == _CONTENT]
    archive = _read(f"{_base(place, chart)}/blobs/{digest}", {})
    if f"sha256:{hashlib.sha256(archive).hexdigest()}" != digest:
        raise ValueError(f"the archive does not have the digest {digest}")
    return archive


def _base(place: str, chart: str) -> str:
    host, _, folder = place.partition("/")
    return f"https://{host}/v2/{folder}/{chart}"


def _manifest(place: str, name: str, tag: str, method: str = "GET") -> tuple[bytes, Mapping[str, str]]:
    # A tag can't have a plus sign; Helm writes an underscore in its place.
    return _answer(f"{_base(place, name)}/manifests/{tag.replace('+', '_')}", {"Accept": _MANIFESTS}, method)


def _in_registry(place: str, name: str, tag: str) -> str:
    host = place.partition("/")[0]
    try:
        return _manifest(place, name, tag, "HEAD")[1].get(_DIGEST, "")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise UnansweredError(f"{host} answers {error.code} for {name}:{tag}") from None
    except (OSError, ValueError) as error:
        raise UnansweredError(f"{host} does not answer: {error}") from None
    try:
        tags = json.loads(_read(f"{_base(place, name)}/tags/list", {})).get("tags") or []
    except (OSError, ValueError):
        tags = []
    raise _missing(name, tag, place, tags)


def _in_repository(repo: str, chart: str, version: str, sha256: str) -> str:
    try:
        existing = versions(_read(f"{repo}/index.yaml", {}).decode(errors="replace"), chart)
        row = next((row for name, row in existing.items() if name.removeprefix("v") == version.removeprefix("v")), None)
        if row is None:
            raise _missing(chart, version, repo, [*existing])
        # Helm downloads from the first address too.
        urls = re.findall(r"^    urls:\n *- [\"']?([^\"'\s]+)", row, re.MULTILINE) if sha256 else []
        archives = [_read(urllib.parse.urljoin(f"{repo}/", url), {}) for url in urls]
    except (OSError, ValueError) as error:
        raise UnansweredError(f"{repo} does not answer: {error}") from None
    found = "".join(hashlib.sha256(archive).hexdigest() for archive in archives)
    if found != sha256:
        raise ChartError(
            f"{chart} {version} of {repo} is not the chart that this program was made with\n"
            f"  given: an archive with the SHA-256 {found or 'of none'}\n  allowed: {sha256}\n"
            "  to do: set nebius.soperator.charts to a folder with charts that you have checked"
        )
    return sha256


def versions(index: str, chart: str) -> dict[str, str]:
    """Return the rows of a chart's versions in the text of a repository's index.yaml, the newest first, as YAML.

    Only the lines of its own entry are read, because parsing a large index takes many seconds.
    """
    entry = re.search(rf"^  {re.escape(chart)}:\n(?P<rows>(?:  [ -].*\n|\n)*)", f"{index}\n", re.MULTILINE)
    rows = re.findall(r"^  - .*\n(?:(?:    .*)?\n)*", entry["rows"] if entry else "", re.MULTILINE)
    found = {row: re.search(r"^  (?:- |  )version: [\"']?([^\"'\s]+)", row, re.MULTILINE) for row in rows}
    return {version[1]: row for row, version in found.items() if version}


def _missing(chart: str, version: str, place: str, existing: list[str]) -> ChartError:
    some = ", ".join(existing[:5]) if existing else "none that it lists without a login"
    return ChartError(
        f"{chart} {version} is not in {place}. It has: {some}\n"
        "to do: choose a nebius.soperator.version that exists, or another nebius.soperator.charts"
    )


def _read(url: str, headers: Mapping[str, str]) -> bytes:
    """Read a URL, with the anonymous token that the registry requires. Raises OSError and ValueError."""
    return _answer(url, headers)[0]


def _answer(url: str, headers: Mapping[str, str], method: str = "GET") -> tuple[bytes, Mapping[str, str]]:
    """Return the content of an answer and its headers, with the anonymous token that the registry requires."""
    try:
        return fetch(url, headers, method)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "") if error.code == 401 else ""
        fields = dict(re.findall(r'(realm|service|scope)="([^"]*)"', challenge))
        if "realm" not in fields:
            raise
    query = "&".join(f"{name}={fields[name]}" for name in ("service", "scope") if name in fields)
    answer: dict[str, Any] = json.loads(fetch(f"{fields['realm']}?{query}", {})[0])
    token = answer.get("token") or answer.get("access_token") or ""
    return fetch(url, headers, method, token)


class ChartVersionsProvider(ActionProvider):
    """Checks charts in registries and repositories, and changes nothing."""

    ID = "charts"
    ACTED_ON = ("charts",)

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        """Check all charts, or the new ones. Raises ChartError with all missing charts and values."""
        checked = [dict(chart) for chart in olds["charts"]] if olds else []
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(check_artifact, (row for row in news["charts"] if dict(row) not in checked)))
        for line in sorted({line for _, lines, _ in results for line in lines}):
            report(line)
        if errors := [error for errors, *_ in results for error in errors]:
            with without_traceback(ChartError):
                raise ChartError("\n".join(errors))


class ChartVersions(ActionResource, module="nebius", name="ChartVersions"):
    """The check of charts that everything else waits for. Input: `charts`, rows of repo, chart and version; of
    Soperator's charts also `release` and `values`, the keys that the stack file gives; of others with a known archive
    `sha256`, and `for`, a hash of the values that it is checked for."""

    PROVIDER = ChartVersionsProvider


def check_artifact(row: Mapping[str, Any]) -> tuple[list[str], list[str], str]:
    """Return the errors of a chart or an image, the lines to report, and its digest."""
    place = {key: row[key] for key in ("repo", "chart", "version")}
    errors, lines, digest = list[str](), list[str](), ""
    try:
        digest = check_exists(**place, sha256=row.get("sha256", ""))
        for text in _files(**place, part="values.yaml").values() if "values" in row else ():
            for what, todo in unknown_values(row["values"], text, f"nebius.values.{row['release']}"):
                errors += [f"{what}\n  to do: {todo}"] if todo else []
                lines += [] if todo else [f"{what}; Helm ignores it, unless a template reads it all the same"]
    except UnansweredError as error:
        lines.append(f"not checked: {error}")
    except ChartError as error:
        errors.append(str(error))
    return errors, lines, digest


class DefinitionsProvider(ActionProvider):
    """Applies definitions on the server, because the client's annotation of the last applied one would be too long.

    A deletion keeps them, as Helm does, because their objects would be deleted with them.
    """

    ID = "definitions"
    ACTED_ON = ("chart", "access")

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> None:
        """Apply the definitions of the version, and wait until the API server serves them."""
        with without_traceback(ChartError):
            text = definitions(**news["chart"])
        with without_traceback(KubectlError), Kubectl(news["access"]) as kubectl:
            apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=hpc", "--filename=-")
            names = kubectl.run(*apply, "--output=name", stdin=text, seconds=300).split()
            kubectl.run("wait", "--for=condition=Established", "--timeout=60s", *names, seconds=90)


class Definitions(ActionResource, module="nebius", name="Definitions"):
    """The definitions of a release's chart, which come before the release. Inputs: `chart` (a row), `access`."""

    PROVIDER = DefinitionsProvider
