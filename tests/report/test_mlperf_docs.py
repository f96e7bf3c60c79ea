"""The transcripts of docs/mlperf.md are what the commands print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from mlperf_logs import reference, text

from cluster.catalog.mlperf import TARGETS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mlperf.md").read_text()


def test_the_report_prints_what_the_page_shows(tmp_path) -> None:
    (tmp_path / "train.out").write_bytes(text(reference()))
    shown = re.findall(r"^\$ \./hpc (mlperf report .*)\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
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
