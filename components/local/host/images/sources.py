"""The host's own apt sources, as far as they carry the image's release.

A host that installs packages from a mirror, through its own keyring, makes its images from there too, also those of
another release of Debian: an archive's mirror carries all of them, each signed with the keys of the one before as well.
Where it has no such source (another distribution), mmdebstrap's own choice holds.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FETCHED = ("http://", "https://", "mirror+http://", "mirror+https://")


@dataclass(frozen=True)
class Source:
    """One apt source file for mmdebstrap: deb822 stanzas or one-line entries, never both in one file."""

    suffix: str
    """`.sources` or `.list`."""
    text: str
    suites: frozenset[str]


def host_sources(
    suite: str, etc: Path = Path("/etc/apt"), os_release: Path = Path("/etc/os-release")
) -> tuple[Source, ...]:
    """The host's sources that carry `suite`, its updates and security suites; where none does, those of its own release
    with `suite` in its place; none if it has no Debian."""
    if found := _carrying(suite, etc):
        return found
    own = _release(os_release)
    return tuple(_renamed(source, own, suite) for source in _carrying(own, etc)) if own else ()


def _release(os_release: Path) -> str:
    """Code name of the host's own Debian; empty for any other system."""
    fields = dict(line.split("=", 1) for line in os_release.read_text().splitlines() if "=" in line)
    return fields.get("VERSION_CODENAME", "").strip('"') if fields.get("ID", "").strip('"') == "debian" else ""


def _renamed(source: Source, own: str, suite: str) -> Source:
    """The same source of another release."""
    fields = r"(?m)^(Suites:.*)$" if source.suffix == ".sources" else r"(\S+ main)$"
    text = re.sub(fields, lambda found: re.sub(rf"\b{own}\b", suite, found[1]), source.text)
    return Source(source.suffix, text, frozenset(re.sub(rf"\b{own}\b", suite, one) for one in source.suites))


def _carrying(suite: str, etc: Path) -> tuple[Source, ...]:
    """Sources that carry `suite`, its updates and security suites; none if they do not carry it itself."""
    found: list[Source] = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        try:
            text = path.read_text(errors="replace")
        except (FileNotFoundError, IsADirectoryError):
            continue
        if path.suffix == ".sources":
            found += stanzas(text, suite)
        elif path.suffix == ".list":
            found += one_liners(text, suite)
    return tuple(found) if any(suite in source.suites for source in found) else ()


def stanzas(text: str, suite: str) -> Iterator[Source]:
    """Sources of a deb822 file (sources.list(5), DEB822-STYLE FORMAT), narrowed to `suite` and its companions."""
    uncommented = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in re.split(r"\n\s*\n", uncommented):
        fields = {name.lower(): value for name, value in _fields(block)}
        suites = _companions(fields.get("suites", "").split(), suite)
        signed_by = fields.get("signed-by", "")
        if (
            "deb" not in fields.get("types", "").split()
            or fields.get("enabled", "yes").strip().lower() in {"no", "false", "0", "off"}
            or not suites
            or not _is_debian(fields.get("uris", "").split(), fields.get("components", "").split(), signed_by)
        ):
            continue
        kept = {**dict(_fields(block)), "Types": "deb", "Suites": " ".join(suites), "Components": "main"}
        yield Source(".sources", "".join(f"{name}: {value}\n" for name, value in kept.items()), frozenset(suites))


def one_liners(text: str, suite: str) -> Iterator[Source]:
    """Sources of a one-line file (sources.list(5), ONE-LINE-STYLE FORMAT), narrowed in the same way."""
    for line in text.splitlines():
        match = re.fullmatch(r"\s*deb\s+(\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+([^#]*?)\s*(#.*)?", line)
        if not match:
            continue
        options, uri, suite_given, components = match[1] or "", match[2], match[3], match[4].split()
        signed_by = match[1] if match[1] and "signed-by" in match[1].lower() else ""
        if _companions([suite_given], suite) and _is_debian([uri], components, signed_by):
            yield Source(".list", f"deb {options}{uri} {suite_given} main\n", frozenset({suite_given}))


def _fields(block: str) -> Iterator[tuple[str, str]]:
    """Fields of a deb822 stanza in order; a continued line keeps its leading space, as a key in Signed-By needs."""
    name, lines = "", list[str]()
    for line in block.splitlines():
        if line[:1].isspace() and name:
            lines.append(line)
        elif ":" in line:
            if name:
                yield name, "\n".join(lines)
            name, value = line.split(":", 1)
            lines = [value.strip()]
    if name:
        yield name, "\n".join(lines)


def _companions(suites: Iterable[str], suite: str) -> list[str]:
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    return [given for given in suites if given in wanted]


def _is_debian(uris: list[str], components: list[str], signed_by: str) -> bool:
    """Whether this is the distribution's own archive or a mirror of it.

    Vendors name their suites after the release too; but their key is theirs, and so is their path.
    """
    if not uris or "main" not in components or not all(uri.startswith(_FETCHED) for uri in uris):
        return False
    return "debian-archive" in signed_by or all(re.search(r"/debian(-security)?/?$", uri) for uri in uris)
