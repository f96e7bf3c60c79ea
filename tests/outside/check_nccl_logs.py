"""Public logs of nccl-tests, each reported with the figures of expected/nccl_logs.txt: a folder of such logs."""

import hashlib
from pathlib import Path

import pytest

from cluster.report.nccl_compare import read_folder
from cluster.report.nccl_log import NotALogError, read_file
from cluster.report.nccl_result import describe_run
from tests.outside.recorder import Recorder

EXPECTED = {
    words[0]: words[1:]
    for line in Path(__file__).with_name("expected").joinpath("nccl_logs.txt").read_text().splitlines()
    if not line.startswith("#") and (words := line.split())
}


def test_every_known_log_is_reported_with_its_figures(artifact: Path, outside: Recorder) -> None:
    known = 0
    for path in _files(artifact):
        wanted = EXPECTED.get(hashlib.sha256(path.read_bytes()).hexdigest()[:16])
        if wanted is None:
            outside.did(f"{path.name}: not in expected/nccl_logs.txt, reported as {' '.join(_reported(path))}")
            continue
        known += 1
        if b"#wrong" not in path.read_bytes():
            outside.did(f"{path.name}: of a version before 2.13, which is not read")
            continue
        if (found := _reported(path)) != wanted[:-1]:
            outside.differs("nccl-log", f"{path.name}: expected {' '.join(wanted[:-1])}, reported {' '.join(found)}")
    if not known:
        pytest.fail(f"{artifact} has none of the {len(EXPECTED)} logs of expected/nccl_logs.txt", pytrace=False)
    outside.did(f"{known} of {len(EXPECTED)} logs of expected/nccl_logs.txt were reported")
    outside.holds("nccl-log-format")


def test_no_node_is_named_slow_for_runs_of_another_kind(artifact: Path, outside: Recorder) -> None:
    found = read_folder(_files(artifact))
    for finding in found.findings():
        outside.differs("nccl-slow-node", f"{finding.where}: {finding.what}")
    outside.did(f"{len(found.entries)} logs as a folder: no slow node")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _reported(path: Path) -> list[str]:
    """What expected/nccl_logs.txt has of a log."""
    try:
        run = (log := read_file(path)).last
    except NotALogError as error:
        return [error.finding.id]
    subject = describe_run(run)
    curve = run.curve()
    return [
        str(subject.nodes or "-"),
        subject.gpu.replace(" ", "_") or "-",
        subject.types or "-",
        str(len(log.runs)),
        str(len(run.rows)),
        f"{max(curve.values()):.2f}" if curve else "-",
        f"{run.average:g}" if run.average is not None else "-",
    ]
