"""The outside check of security floors fails where a floor is not the advisory's, and else does not."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.catalog import floors as catalog
from cluster.catalog.floors import FLOORS, Floor
from tests.outside import check_advisories
from tests.outside.recorder import Recorder


def record(name: str, ecosystem: str, package: str, fixed: str = "", **more: Any) -> dict[str, Any]:
    events = [{"introduced": "0"}, *([{"fixed": fixed}] if fixed else [])]
    named = {"ecosystem": ecosystem, "name": package}
    affected = {"package": named, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return {"schema_version": "1.7.0", "id": name, "affected": [affected], **more}


# The fixed versions are those of Debian's changelog of 24.11.5-4+deb13u1 and of bookworm-security's package, of
# canonical/ubuntu-security-notices (UBUNTU-CVE-2026-65107, of which Ubuntu Pro has no fix), and of GHSA-j3rw-fx6g-q46j.
FEED = (
    record("DEBIAN-CVE-2026-65107", "Debian:13", "slurm-wlm", "24.11.5-4+deb13u1", upstream=["CVE-2026-65107"]),
    record("DEBIAN-CVE-2025-43904", "Debian:12", "slurm-wlm", "22.05.8-4+deb12u3", upstream=["CVE-2025-43904"]),
    record("DEBIAN-CVE-2026-65107", "Debian:12", "slurm-wlm", upstream=["CVE-2026-65107"]),
    record("UBUNTU-CVE-2026-65107", "Ubuntu:Pro:24.04:LTS", "slurm-wlm", upstream=["CVE-2026-65107"]),
    record("GHSA-j3rw-fx6g-q46j", "Go", "github.com/apptainer/apptainer", "1.4.5", aliases=["CVE-2025-65105"]),
    record("DEBIAN-CVE-2020-1", "Debian:13", "bash", "5.2"),
)


def checked(path: Path, feed: object) -> list[str]:
    """Run the check on a file of these records; return what differs."""
    path.write_text(json.dumps(feed))
    recorder = Recorder("advisories", ())
    recorder.holds = lambda *_: None  # ty: ignore
    check_advisories.test_no_advisory_is_newer_than_its_floor(path, recorder)
    return recorder.refused()


@pytest.fixture
def floors(monkeypatch: pytest.MonkeyPatch) -> Any:
    def change(component: str, series: str, version: str) -> None:
        rows: tuple[Floor, ...] = tuple(
            replace(row, version=version) if (row.component, row.series) == (component, series) else row
            for row in FLOORS
        )
        monkeypatch.setattr(check_advisories, "FLOORS", rows)
        monkeypatch.setattr(check_advisories, "floor", lambda name, version: catalog.floor(name, version, rows))

    return change


def test_today_s_floors_are_those_of_the_advisories(tmp_path: Path) -> None:
    assert checked(tmp_path / "feed.json", {"vulns": FEED}) == []
    assert checked(tmp_path / "feed.json", list(FEED)) == []


@pytest.mark.parametrize(
    ("component", "series", "version"),
    [
        ("slurm-wlm", "24.11", "24.11.5-4"),
        ("slurm-wlm", "24.11", "24.11.5-5"),
        ("slurm-wlm", "24.11", ""),
        ("slurm-wlm", "22.05", "22.05.8-4+deb12u2"),
        ("slurm-wlm", "23.02", "23.11.4-1.2ubuntu5"),
        ("apptainer", "", "1.4.4"),
        ("apptainer", "", "1.5.0"),
    ],
)
def test_another_floor_differs(tmp_path: Path, floors: Any, component: str, series: str, version: str) -> None:
    floors(component, series, version)
    (text,) = checked(tmp_path / "feed.json", {"vulns": FEED})
    assert text.startswith(f"{component} {series}: ")


def test_a_later_advisory_differs_and_one_that_was_withdrawn_does_not(tmp_path: Path) -> None:
    later = record("DEBIAN-CVE-2027-1", "Debian:13", "slurm-wlm", "24.11.5-4+deb13u2")
    (text,) = checked(tmp_path / "feed.json", [*FEED, later])
    assert text == (
        "slurm-wlm 24.11: DEBIAN-CVE-2027-1 is fixed in ['24.11.5-4+deb13u2'] of Debian:13 slurm-wlm, later than the "
        "floor 24.11.5-4+deb13u1"
    )
    assert checked(tmp_path / "feed.json", [*FEED, {**later, "withdrawn": "2027-01-02T00:00:00Z"}]) == []


def test_an_export_of_osv_is_read_and_a_feed_of_other_packages_is_none(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for row in FEED:
            archive.writestr(f"{row['id']}-{row['affected'][0]['package']['ecosystem']}.json", json.dumps(row))
    assert len([*check_advisories.records(tmp_path / "all.zip")]) == len(FEED)
    with pytest.raises(pytest.fail.Exception, match="has no record about"):
        checked(tmp_path / "feed.json", [FEED[-1]])


def test_kernels_and_drivers_are_compared_without_the_upload() -> None:
    assert check_advisories.version_of("linux", "6.8.0-1074.82~22.04.1") == "6.8.0-1074"
    assert check_advisories.version_of("nvidia", "580.159.03-0ubuntu0.24.04.1") == "580.159.03"
