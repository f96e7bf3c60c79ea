"""The pages on NCCL and MLPerf: what they show is what the program prints."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.mlperf import DIFFUSION_CONFIGS, GPT3_SETTINGS, MINUTES, STORAGE, TARGETS
from cluster.catalog.nccl import REFERENCES
from cluster.report.nccl_result import FLOOR_NICS
from cluster.report.nccl_run import format_size
from tests import programs
from tests.cluster.report.mlperf_logs import reference, text

ROOT = Path(__file__).parents[2]
NCCL_PAGE = ROOT / "docs/guides/nccl.md"
GUIDE = ROOT / "tests" / "cluster" / "report" / "guide_nccl.log"


def test_the_report_prints_what_the_page_shows(tmp_path, update_golden) -> None:
    (tmp_path / "nccl.log").write_bytes(GUIDE.read_bytes())
    page = NCCL_PAGE.read_text("utf-8")
    shown = re.search(r"^\$ \./hpc (nccl report nccl\.log .*)\n((?:.*\n)*?)```", page, re.MULTILINE)
    assert shown
    done = programs.run(
        [sys.executable, "-m", "cli", *shlex.split(shown[1])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
    )
    if update_golden:
        NCCL_PAGE.write_text(page.replace(shown[0], f"$ ./hpc {shown[1]}\n{done.stdout}```"), "utf-8")
        return
    assert (done.stdout, done.stderr, done.returncode) == (shown[2], "", 0)


def test_the_references_are_those_of_the_catalog() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", NCCL_PAGE.read_text("utf-8"), re.MULTILINE)
    expected = [
        (
            reference.machine_type,
            reference.collective,
            f"{reference.nodes}{', without NVLink' if reference.network_only else ''}",
            "; ".join(
                f"{minimum.busbw:g} at {format_size(minimum.low)}"
                + ("" if minimum.low == minimum.high else f" to {format_size(minimum.high)}")
                for minimum in reference.minimums
            ),
        )
        for reference in REFERENCES.values()
    ]
    assert rows == expected


def test_the_line_rates_are_those_of_the_catalog() -> None:
    rows = re.findall(
        r"^\| (`.+) \| (\d) x (\d+) Gbit/s \| (\d+) \| (\d+) \|$", NCCL_PAGE.read_text("utf-8"), re.MULTILINE
    )
    shown = {name: tuple(map(int, row[1:])) for row in rows for name in re.findall("`([^`]+)`", row[0])}
    assert shown == {
        name.partition("/")[0]: (rate.nics, rate.gbps, rate.total, FLOOR_NICS * rate.nic)
        for name, kind in MACHINE_TYPES.items()
        if (rate := kind.line_rate)
    }


def test_findings_are_those_of_the_code() -> None:
    named = set(re.findall(r"`(nccl-[a-z-]+)`", NCCL_PAGE.read_text("utf-8")))
    code = "".join(path.read_text() for path in (ROOT / "cluster" / "report").glob("nccl_*.py"))
    assert named
    assert named <= set(re.findall(r'"(nccl-[a-z-]+)"', code))


MLPERF_PAGE = (ROOT / "docs/guides/mlperf.md").read_text()


def test_the_mlperf_report_prints_what_the_page_shows(tmp_path) -> None:
    (tmp_path / "train.out").write_bytes(text(reference()))
    shown = re.findall(r"^\$ \./hpc (mlperf report .*)\n((?:.*\n)*?)```", MLPERF_PAGE, re.MULTILINE)
    shown = [(command, expected) for command, expected in shown if "--stack" not in command]
    assert shown
    for command, expected in shown:
        done = subprocess.run(
            [sys.executable, "-m", "cli", *shlex.split(command)],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        notes = [line for line in done.stdout.splitlines(keepends=True) if line.startswith("note:")]
        results = [line for line in done.stdout.splitlines(keepends=True) if not line.startswith("note:")]
        assert "".join([*results, *notes]) == expected
        assert done.returncode == 0


def test_the_targets_are_those_of_the_catalog() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([\d.]+) s \|$", MLPERF_PAGE, re.MULTILINE)
    assert [(target.setup, str(target.nodes), f"{target.seconds:.2f}") for target in TARGETS] == rows


def test_other_numbers_are_those_of_the_catalog() -> None:
    rows = re.findall(r"^\| (\d+) \| (H\d+) \| (\d+) \|$", MLPERF_PAGE, re.MULTILINE)
    assert [(str(setting.nodes), setting.gpu.upper(), str(setting.batch)) for setting in GPT3_SETTINGS] == rows
    for storage in STORAGE.values():
        assert re.search(rf"{storage.size_gib} GiB\s+for [\w -]+ at `{storage.path}`", MLPERF_PAGE)
    for config in DIFFUSION_CONFIGS:
        assert f"`{config.name}`" in MLPERF_PAGE
    for minutes in MINUTES.values():
        assert f"{minutes // 60} hours" in MLPERF_PAGE
