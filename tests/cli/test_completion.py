"""What the Tab key offers, and the scripts that make shells ask for it."""

import subprocess
from typing import Any

import pytest

from cli.stack import project
from tests.cli.conftest import Hpc

OUTPUTS = {
    "cluster": "c",
    "targets": {"c-controller": {"roles": ["controller"]}, "c-cpu-0": {"roles": ["node"]}},
    "config": {
        "platform": "local", "name": "c", "nodesets": {"cpu": {"count": 1}},
        "partitions": {"batch": {"nodesets": ["cpu"], "default": True}},
    },
}  # fmt: skip


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(stack: str, *, show_secrets: bool) -> dict[str, Any]:
        assert not show_secrets
        return OUTPUTS if stack == "dev" else {}

    monkeypatch.setattr("cli.stack.outputs.read", read)


@pytest.mark.usefixtures("up")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("./hpc stat", ["status", "state"]),
        ("./hpc user ad", ["add"]),
        ("./hpc status d", ["dev"]),
        ("./hpc ssh dev c", ["controller", "cpu-0"]),
        ("./hpc nodes dev drain ", ["cpu-0"]),
        ("./hpc logs dev slurmd --on co", ["controller"]),
        ("./hpc check jobs dev --partition ", ["batch"]),
        ("./hpc status dev --ti", ["--timeout"]),
        ("./hpc ssh nowhere ", []),
    ],
)
def test_offers_what_there_is(hpc: Hpc, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]) -> None:
    monkeypatch.setenv("_HPC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    assert hpc("").out.split() == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_prints_a_script_that_the_shell_accepts(hpc: Hpc, shell: str) -> None:
    script = hpc("completion", shell).out
    assert "_HPC_COMPLETE=complete_" + shell in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    else:
        assert str(project.ROOT / "hpc") in script


def test_version_is_an_option_as_well(hpc: Hpc) -> None:
    assert hpc("--version").out == hpc("version").out
