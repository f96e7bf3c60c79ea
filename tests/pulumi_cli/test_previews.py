"""Each shipped stack, previewed by both engines: the same resources, operations and inputs.

Resources of Google Cloud and Kubernetes are only checked as far as the SDK and the engine do it: the plugins here have
no schema (`./hpc test --outside pulumi=FOLDER` has the real ones).
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.forked import PASSPHRASE, Program
from tests.pulumi_cli.program import ROOT, Cli

STACKS = sorted(file.name.split(".")[1] for file in ROOT.glob("Pulumi.*.yaml"))


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    """`./hpc`, with what stacks import."""
    made = Program(ROOT, "components.gcp.deploy", "components.nebius.deploy")
    yield made
    made.close()


def steps(program: Program, cli: Cli, home: Path, stack: str, engine: str) -> dict[str, tuple[str, Any]]:
    """The steps of a preview, each by its URN."""
    file = home / f"Pulumi.{stack}.yaml"
    shutil.copy(ROOT / file.name, file)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "HPC_"))}
    (home / engine).mkdir()
    passphrase = home / engine / "passphrase"
    passphrase.touch(mode=0o600)
    passphrase.write_text(f"{PASSPHRASE}\n")
    env = {**kept, **cli.env, "HPC_HOME": str(home / engine)}
    done = program.run(["preview", stack, "--json", "--engine", engine, "--config-file", str(file)], env, 600)
    assert done.returncode == 0, done.stdout + done.stderr
    return {step["urn"]: (step["op"], step.get("inputs")) for step in json.loads(done.stdout)["steps"]}


@pytest.mark.parametrize("stack", STACKS)
def test_both_engines_plan_the_same(program: Program, cli: Cli, tmp_path: Path, stack: str) -> None:
    ours, theirs = (steps(program, cli, tmp_path, stack, engine) for engine in ("embedded", "pulumi"))
    assert len(ours) > 20
    assert ours.keys() == theirs.keys()
    assert {urn: step for urn, step in ours.items() if theirs[urn] != step} == {}
