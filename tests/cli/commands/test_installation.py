"""schema, version and completion."""

import re
import subprocess
from pathlib import Path

import pytest

from cli.stack import project
from tests.cli.conftest import Hpc


def test_a_schema_that_is_old_is_refused_and_written(hpc: Hpc, root: Path) -> None:
    assert hpc("schema", "--check").code == 1
    assert hpc("schema", "--write").code == 0
    assert hpc("schema", "--check").code == 0
    assert (root / "docs/schema/cluster.schema.json").read_text() == hpc("schema").out


def test_the_version_names_what_it_is_made_of(hpc: Hpc) -> None:
    lines = hpc("version").out.splitlines()
    assert lines[0] == "hpc 1.2.3"
    assert re.fullmatch(r"Python 3\.\d+\.\d+, Pulumi SDK 3\.\d+\.\d+", lines[1])
    assert hpc("--version").out == hpc("version").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_prints_a_script_that_the_shell_accepts(hpc: Hpc, shell: str) -> None:
    script = hpc("completion", shell).out
    assert "_HPC_COMPLETE=complete_" + shell in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    else:
        assert str(project.ROOT / "hpc") in script
