"""A stack on Google Cloud is looked at with no credential, no cloud and no tool of Google's or Pulumi's."""

import json
import sys
from pathlib import Path

import pytest

from cli.stack import project
from tests.cli.conftest import Hpc
from tests.cli.operation.test_engines import CLOUD

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("said", ["", "    login: {public: true}\n    network: {admin_cidrs: [203.0.113.7/32]}\n"])
def test_a_preview_shows_all_and_asks_nobody(
    root: Path, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    file = tmp_path / "Pulumi.small.yaml"
    file.write_text(CLOUD + said)
    # Neither gcloud, pulumi nor ssh: nothing is there but Python.
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(project, "ROOT", ROOT)
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GOOGLE_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("socket.create_connection", _refused)
    ended = hpc("preview", "small", "--config-file", str(file), "--json")
    assert ended.code == 0, ended.err
    planned = json.loads(ended.out)
    assert planned["ok"]
    types = {row["type"] for row in planned["steps"]}
    assert {"gcp:compute/instance:Instance", "command:remote:Command"} <= types
    assert "googleapiclient" not in sys.modules
    assert any("nodeset" in line and "CPUs" in line for line in planned["asks"])


def test_a_preview_ends_with_what_costs_money(
    root: Path, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "Pulumi.small.yaml"
    file.write_text(CLOUD)
    monkeypatch.setattr(project, "ROOT", ROOT)
    ended = hpc("preview", "small", "--config-file", str(file))
    assert ended.code == 0, ended.err
    _, whole, asked = ended.out.partition("What the stack asks Google Cloud for, whole")
    assert whole
    assert "GB of pd-" in asked
    assert "system network" in asked


def _refused(*_: object, **__: object) -> None:
    raise AssertionError("a preview connected to something")
