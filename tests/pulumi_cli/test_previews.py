"""Each shipped stack, previewed by both engines: the same resources, operations and inputs.

Resources of Google Cloud and Kubernetes are only checked as far as the SDK and the engine do it: the plugins here have
no schema (`./hpc test --outside pulumi=FOLDER` has the real ones).
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pulumi_cli.program import ROOT, Cli

STACKS = sorted(file.name.split(".")[1] for file in ROOT.glob("Pulumi.*.yaml"))


def steps(cli: Cli, home: Path, stack: str, engine: str) -> dict[str, tuple[str, Any]]:
    """The steps of a preview, each by its URN."""
    file = home / f"Pulumi.{stack}.yaml"
    shutil.copy(ROOT / file.name, file)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "HPC_"))}
    (home / engine).mkdir()
    env = {**kept, **cli.env, "HPC_HOME": str(home / engine)}
    command = [str(ROOT / "hpc"), "preview", stack, "--json", "--engine", engine, "--config-file", str(file)]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {step["urn"]: (step["op"], step.get("inputs")) for step in json.loads(done.stdout)["steps"]}


@pytest.mark.parametrize("stack", STACKS)
def test_both_engines_plan_the_same(cli: Cli, tmp_path: Path, stack: str) -> None:
    ours, theirs = (steps(cli, tmp_path, stack, engine) for engine in ("embedded", "pulumi"))
    assert len(ours) > 20
    assert ours.keys() == theirs.keys()
    assert {urn: step for urn, step in ours.items() if theirs[urn] != step} == {}
