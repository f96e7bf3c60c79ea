"""A stack on Nebius is looked at with no credential, no cloud and no tool; 64 nodes are as readable as 2."""

import gc
import sys
import time
from pathlib import Path

import pytest

from cli.stack import project
from tests.cli.conftest import Hpc

ROOT = Path(__file__).parents[2]
STACK = ROOT / "Pulumi.nebius.yaml"


@pytest.fixture(autouse=True)
def _alone(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is there but Python: no credential, neither kubectl nor helm, pulumi or nebius, and no network."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(project, "ROOT", ROOT)
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("socket.create_connection", _refused)
    # Whatever other tests of this process have imported: an import of it raises.
    monkeypatch.setitem(sys.modules, "nebius.sdk", None)


def preview(hpc: Hpc, path: Path, count: int) -> str:
    file = path / f"Pulumi.nodes{count}.yaml"
    text = STACK.read_text()
    assert "        count: 2\n" in text
    file.write_text(text.replace("        count: 2\n", f"        count: {count}\n"))
    ended = hpc("preview", f"nodes{count}", "--config-file", str(file))
    assert ended.code == 0, ended.err
    return ended.out


def test_it_is_complete_and_asks_nobody(hpc: Hpc, tmp_path: Path) -> None:
    # What other tests left on the heap is not collected meanwhile.
    gc.collect()
    gc.freeze()
    try:
        before = time.process_time()
        shown = preview(hpc, tmp_path, 2)
        took = time.process_time() - before
    finally:
        gc.unfreeze()
    assert took < 4
    for text in (
        "pulumi-python:dynamic/nebius:Cluster",
        "worker-worker-0",
        "jail-submount-mlperf-sd",
        "soperator-gpu-fabric-3",
        "kubernetes:helm.sh/v3:Release",
        "What the stack asks Nebius for, whole",
        "16 GPUs",
    ):
        assert text in shown


def test_64_nodes_take_as_many_lines_as_2(hpc: Hpc, tmp_path: Path) -> None:
    few, many = (preview(hpc, tmp_path, count).splitlines() for count in (2, 64))
    assert len(few) == len(many)
    assert any("512 GPUs" in line for line in many)
    assert max(map(len, many)) < 200


def _refused(*_: object, **__: object) -> None:
    raise AssertionError("a preview connected to something")
