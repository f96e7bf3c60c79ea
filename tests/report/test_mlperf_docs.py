"""The transcripts of docs/guides/mlperf.md are what the commands print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from cluster.catalog.mlperf import DIFFUSION_CONFIGS, GPT3_SETTINGS, MINUTES, STORAGE, TARGETS
from tests.report.mlperf_logs import reference, text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/mlperf.md").read_text()


def test_the_report_prints_what_the_page_shows(tmp_path) -> None:
    (tmp_path / "train.out").write_bytes(text(reference()))
    shown = re.findall(r"^\$ \./hpc (mlperf report .*)\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
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
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([\d.]+) s \|$", PAGE, re.MULTILINE)
    assert [(one.setup, str(one.nodes), f"{one.seconds:.2f}") for one in TARGETS] == rows


def test_other_numbers_are_those_of_the_catalog() -> None:
    rows = re.findall(r"^\| (\d+) \| (H\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert [(str(one.nodes), one.gpu.upper(), str(one.batch)) for one in GPT3_SETTINGS] == rows
    for one in STORAGE.values():
        assert re.search(rf"{one.size_gib} GiB\s+for [\w -]+ at `{one.path}`", PAGE)
    for one in DIFFUSION_CONFIGS:
        assert f"`{one.name}`" in PAGE
    for minutes in MINUTES.values():
        assert f"{minutes // 60} hours" in PAGE
