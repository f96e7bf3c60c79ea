"""What the Pulumi CLI's Python host asks of the environment that `./hpc` makes; it can do nothing unanswered."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# sdk/python/toolchain/pip.go of pulumi/pulumi: ListPackages of 3.260, the same before it (`-v`, for the folder of each
# package), of direct dependencies only (`pulumi about`), and getPipVersion.
LISTS = (
    ["list", "--format", "json"],
    ["list", "-v", "--format", "json"],
    ["list", "--format", "json", "--not-required"],
)


def pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.parametrize("question", LISTS, ids=" ".join)
def test_the_packages_are_told(question: list[str]) -> None:
    told = {row["name"].replace("_", "-"): row for row in json.loads(pip(*question))}
    # `--not-required` leaves out what another package needs, and the SDK is needed by each provider.
    assert {"pulumi-command", "pulumi-gcp", "pulumi-random", "pulumi-tls"} <= told.keys()
    assert all(row["version"] for row in told.values())


def test_pip_tells_its_version() -> None:
    assert re.match(r"pip \d+\.\d+.* from ", pip("--version"))


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_both_locks_have_pip(name: str) -> None:
    assert re.search(r"^pip==\S+ \\\n +--hash=sha256:", (ROOT / name).read_text(), re.MULTILINE)
