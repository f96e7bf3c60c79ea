"""docs/guides/nccl.md: its transcript is what the command prints, its tables are the catalog's and the code's."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.nccl_references import REFERENCES
from cluster.report.nccl.result import FLOOR_NICS
from cluster.report.nccl.run import text_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guides/nccl.md"
GUIDE = ROOT / "tests" / "report" / "guide_nccl.log"


def test_the_report_prints_what_the_page_shows(tmp_path, update_golden) -> None:
    (tmp_path / "nccl.log").write_bytes(GUIDE.read_bytes())
    page = PAGE.read_text("utf-8")
    shown = re.search(r"^\$ \./hpc (nccl report nccl\.log .*)\n((?:.*\n)*?)```", page, re.MULTILINE)
    assert shown
    done = subprocess.run(
        [sys.executable, "-m", "cli", *shlex.split(shown[1])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    if update_golden:
        PAGE.write_text(page.replace(shown[0], f"$ ./hpc {shown[1]}\n{done.stdout}```"), "utf-8")
        return
    assert (done.stdout, done.stderr, done.returncode) == (shown[2], "", 0)


def test_the_references_are_those_of_the_catalog() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    expected = [
        (
            one.machine_type,
            one.collective,
            f"{one.nodes}{', without NVLink' if one.network_only else ''}",
            "; ".join(
                f"{minimum.busbw:g} at {text_of(minimum.low)}"
                + ("" if minimum.low == minimum.high else f" to {text_of(minimum.high)}")
                for minimum in one.minimums
            ),
        )
        for one in REFERENCES.values()
    ]
    assert rows == expected


def test_the_line_rates_are_those_of_the_catalog() -> None:
    rows = re.findall(r"^\| (`.+) \| (\d) x (\d+) Gbit/s \| (\d+) \| (\d+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    shown = {name: tuple(map(int, row[1:])) for row in rows for name in re.findall("`([^`]+)`", row[0])}
    assert shown == {
        name.partition("/")[0]: (rate.nics, rate.gbps, rate.total, FLOOR_NICS * rate.nic)
        for name, kind in MACHINE_TYPES.items()
        if (rate := kind.line_rate)
    }


def test_findings_are_those_of_the_code() -> None:
    named = set(re.findall(r"`(nccl-[a-z-]+)`", PAGE.read_text("utf-8")))
    code = "".join(path.read_text() for path in (ROOT / "cluster" / "report" / "nccl").glob("*.py"))
    assert named
    assert named <= set(re.findall(r'"(nccl-[a-z-]+)"', code))
