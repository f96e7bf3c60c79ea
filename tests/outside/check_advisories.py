"""Security floors and a feed of advisories: one file in the format of OSV (ossf.github.io/osv-schema).

A zip of records, as osv-vulnerabilities.storage.googleapis.com has one for each ecosystem (`Debian:13/all.zip`), or
JSON: one record, a list of them, or the answer of api.osv.dev (`{"vulns": [...]}`).
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.catalog.floors import FLOORS, Floor, floor, order
from tests.outside.recorder import Recorder

Record = Mapping[str, Any]
ACCEPTED = {
    "CVE-2026-48785": "of setuid installations with `limit container paths` alone (apptainer v1.5.1, CHANGELOG.md); "
    "images have the package without setuid",
}
"""Advisories that do not apply to what is installed, and why."""


def records(path: Path) -> Iterator[Record]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield json.loads(archive.read(name))
        return
    found = json.loads(path.read_text())
    yield from found if isinstance(found, list) else found.get("vulns", [found])


def fixes(record: Record, feed: tuple[str, str]) -> Iterator[str]:
    """Yield the versions of a package that a record calls fixed; empty text where it has none yet."""
    for affected in record.get("affected", ()):
        package = affected.get("package", {})
        if (package.get("ecosystem"), package.get("name")) != feed or record.get("withdrawn"):
            continue
        for row in affected.get("ranges", ()):
            if row.get("type") != "GIT":
                yield from [event["fixed"] for event in row["events"] if "fixed" in event] or [""]


def version_of(component: str, fixed: str) -> str:
    """Return a fixed version as the table has it: of kernels without the upload, of drivers without the revision."""
    if component == "linux":
        return "".join(re.findall(r"^[0-9.]+-[0-9]+", fixed))
    return fixed.partition("-")[0] if component == "nvidia" else fixed.removeprefix("v")


def differences(row: Floor, feed: tuple[str, str], found: list[Record]) -> Iterator[tuple[str, bool]]:
    """Yield what a floor and the records about its package disagree on, and whether that is accepted."""
    for record in found:
        names = {record["id"], *record.get("aliases", ()), *record.get("upstream", ())}
        accepted = not names.isdisjoint(ACCEPTED)
        named = names & set(re.findall(r"(?:CVE|GHSA)-[0-9a-z-]+", row.advisory))
        fixed = [version_of(row.component, text) for text in fixes(record, feed)]
        own = [text for text in fixed if not text or floor(row.component, text) is row]
        if named and row.version != "0" and own and row.version not in own:
            text = f"{record['id']} is fixed in {own} of {' '.join(feed)}, the floor is {row.version or 'no version'}"
            yield text, accepted
        elif any(text and order(text) > order(row.version) for text in own):
            yield f"{record['id']} is fixed in {own} of {' '.join(feed)}, later than the floor {row.version}", accepted


def test_no_advisory_is_newer_than_its_floor(artifact: Path, outside: Recorder) -> None:
    by_feed: dict[tuple[str, str], list[Record]] = {feed: [] for row in FLOORS for feed in row.feeds}
    for record in records(artifact):
        packages = [affected.get("package", {}) for affected in record.get("affected", ())]
        for feed in {(package.get("ecosystem"), package.get("name")) for package in packages} & by_feed.keys():
            by_feed[feed].append(record)
    if not any(by_feed.values()):
        pytest.fail(f"{artifact} has no record about {sorted(by_feed)}", pytrace=False)
    for row in FLOORS:
        for feed in row.feeds:
            for text, accepted in differences(row, feed, by_feed[feed]):
                outside.differs(f"{row.component} {row.series}", text, accepted=accepted)
            if by_feed[feed]:
                outside.did(f"{row.component} {row.series}: {len(by_feed[feed])} records of {' '.join(feed)}")
    outside.holds("image-security-floors")
