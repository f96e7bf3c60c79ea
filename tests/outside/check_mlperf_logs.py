"""Public logs of MLPerf training, each reported with the figures of expected/mlperf_logs.txt: a folder of such logs."""

import hashlib
from pathlib import Path

import pytest

from cluster.report.mlperf_report import read_report
from tests.outside.recorder import Recorder

EXPECTED = {
    words[0]: words[1:]
    for line in Path(__file__).with_name("expected").joinpath("mlperf_logs.txt").read_text().splitlines()
    if not line.startswith("#") and (words := line.split())
}


def test_every_known_log_is_reported_with_its_figures(artifact: Path, outside: Recorder) -> None:
    known = 0
    for path in sorted(file for file in artifact.iterdir() if file.is_file()):
        wanted = EXPECTED.get(hashlib.sha256(path.read_bytes()).hexdigest()[:16])
        if wanted is None:
            outside.did(f"{path.name}: not in expected/mlperf_logs.txt, reported as {' '.join(_reported(path))}")
            continue
        known += 1
        if (found := _reported(path)) != wanted[:-1]:
            outside.differs("mlperf-log", f"{path.name}: expected {' '.join(wanted[:-1])}, reported {' '.join(found)}")
    if not known:
        pytest.fail(f"{artifact} has none of the {len(EXPECTED)} logs of expected/mlperf_logs.txt", pytrace=False)
    outside.did(f"{known} of {len(EXPECTED)} logs of expected/mlperf_logs.txt were reported")
    outside.holds("mlperf-log-blocks", "mlperf-log-ranks")


def _reported(path: Path) -> list[str]:
    """What expected/mlperf_logs.txt has of a log."""
    with path.open("rb") as log:
        report = read_report(log)
    run, found = report.log.runs[-1], report.comparisons[-1]
    last = run.evaluations[-1] if run.evaluations else None
    return [
        run.benchmark,
        str(run.ranks or "-"),
        str(run.batch),
        run.unit,
        str(len(found.intervals) if found else 0),
        f"{found.average:.3f}" if found else "-",
        last.metric.replace(" ", "_") if last else "-",
        f"{last.value:.4g}" if last else "-",
    ]
