"""Options of a run, as the embedded engine has them: they are the Pulumi CLI's, and mean the same."""

import json
from pathlib import Path

import pytest

from cli.operation import operation
from cli.operation.run_options import RunOptions
from cli.stack import project, stackfile
from components.deploy import config_text
from tests.cli.conftest import Hpc
from tests.cluster.stacks import ROOT, config

PROGRAM = """\
import pulumi
from pulumi_random import RandomPassword, RandomPet
pet = RandomPet("pet", length=LENGTH)
RandomPet("other", prefix=pulumi.Output.secret("hush"), separator=pet.id)
RandomPassword("word", length=8)
"""
URN = "urn:pulumi:dev::hpc::random:index/randomPet:RandomPet::"


@pytest.fixture(autouse=True)
def program(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
    monkeypatch.setenv("HPC_ENGINE", "embedded")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    file = root / "__main__.py"
    file.write_text(PROGRAM.replace("LENGTH", "2"))
    return file


def test_a_preview_as_json_has_all_inputs_of_new_resources(hpc: Hpc) -> None:
    document = json.loads(hpc("preview", "dev", "--json").out)
    inputs = {step["name"]: step.get("inputs") for step in document["steps"]}
    assert inputs["pet"] == {"length": 2}
    assert inputs["other"] == {"prefix": "[secret]", "separator": "[unknown]"}
    assert inputs["hpc-dev"] is None
    assert "hush" not in json.dumps(document)
    assert "inputs" not in json.dumps(json.loads(hpc("up", "dev", "--json").out)["steps"])


def test_diff_shows_the_inputs_of_new_resources(hpc: Hpc, program: Path) -> None:
    assert "length: 2" not in hpc("preview", "dev").out
    out = hpc("preview", "dev", "--diff").out
    assert "+ length: 2" in out
    assert "+ prefix: [secret]" in out
    hpc("up", "dev")
    program.write_text(PROGRAM.replace("LENGTH", "3"))
    assert "~ length: 2 -> 3" in hpc("up", "dev", "--diff", "--target", f"{URN}pet").out


@pytest.mark.parametrize("kind", ["preview", "up"])
def test_unexpected_changes_are_an_error(hpc: Hpc, program: Path, kind: str) -> None:
    hpc("up", "dev")
    assert hpc(kind, "dev", "--expect-no-changes").code == 0
    program.write_text(PROGRAM.replace("LENGTH", "3"))
    ended = hpc(kind, "dev", "--expect-no-changes")
    assert ended.code == 1
    assert ended.err == "error: no changes were expected (--expect-no-changes), and there are 2.\n"


def test_a_run_can_be_limited_to_targets(hpc: Hpc, root: Path) -> None:
    hpc("up", "dev", "--target", f"{URN}pet")
    made = {
        row["urn"].rpartition("::")[2]
        for row in json.loads(hpc("state", "export", "dev").out)["deployment"]["resources"]
    }
    assert {"pet"} == made & {"pet", "other", "word"}
    assert json.loads(hpc("up", "dev", "--exclude", "**::word", "--json").out)["counts"]["create"] == 1
    replaced = json.loads(hpc("preview", "dev", "--json", "--replace", f"{URN}other").out)
    assert replaced["counts"]["replace"] == 1
    assert hpc("up", "dev", "--target", "a", "--exclude", "b").err.startswith(
        "error: --target says what a run is about"
    )
    assert "--target-dependents goes with --target" in hpc("up", "dev", "--target-dependents").err


def test_a_message_is_kept_in_the_history(hpc: Hpc) -> None:
    hpc("up", "dev", "-m", "for the course")
    (kept,) = (project.workspace().folder / "history").rglob("*.history.json")
    assert json.loads(kept.read_text())["message"] == "for the course"


def test_an_upgrades_first_half_reads_the_stack_file_as_every_run_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Without quotes 24:00:00 is a text to the Pulumi CLI; YAML 1.1 has it as 86,400."""
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    assert '"24:00:00"' in text
    (tmp_path / "Pulumi.dev.yaml").write_text(text.replace('"24:00:00"', "24:00:00"))
    monkeypatch.setattr(operation.outputs, "read", lambda *_, **__: {"config": config_text(config("dev"))})
    with operation._options_as_before(stackfile.read(tmp_path, "dev"), RunOptions()) as chosen:
        assert chosen.config_file
        written = stackfile.read(tmp_path, "dev", chosen.config_file)
    assert written.settings
    assert written.settings["hpc:cluster"]["partitions"]["cpu"]["max_time"] == "24:00:00"
