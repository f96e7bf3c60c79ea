"""Starting is quick: commands that only read the state do not import the SDK, which takes a second."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"pulumi", "grpc", "engine.core.operation", "cluster.config", "rich.live"}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["up", "--help"], ["stacks"], ["run", "dev", "--", "id"], ["outputs", "dev"]],
    ids=" ".join,
)
def test_light_commands_stay_light(arguments: list[str], tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-X", "importtime", str(ROOT / "cli"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "cli.app" in imported
    assert "Traceback" not in done.stderr
    assert not imported & HEAVY
