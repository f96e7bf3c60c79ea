"""A stack that is up, whose controller answers for two nodes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.node.slurm import jobs
from tests import squeue
from tests.cli.conftest import OUTPUTS, Tool, patch_outputs

_JOB = {"i": "7", "A": "7", "u": "alice", "T": "RUNNING", "M": "1:02", "L": "22:58:58", "N": "dev-cpu-0", "j": "train"}
NODES = f"""\
NodeName=dev-cpu-0 State=MIXED SlurmdStartTime=2026-11-21T05:43:27
NodeName=dev-cpu-1 State=IDLE+DRAIN SlurmdStartTime=2026-11-21T05:43:27 Reason=fan [root@2026-11-21T05:43:58]
--jobs--
{squeue.printed(jobs.command("|"), [_JOB])}"""
Commands = Callable[[], list[str]]
# Records every command line that a machine runs, and answers as slurmctld and the controller's set-up do.
MACHINES = """\
for line; do :; done
printf '%s\\n' "$line" >>"$LOG"
case $line in
    *"scontrol --oneliner"*)
        mark=${line##* && echo }
        mark=${mark%% *}
        sed "s/--jobs--/$mark/; s/|/$mark/g" "$NODES"
        ;;
    *health-results*) cat "$RESULTS" ;;
    *"hpc-health now"*) echo '{}' ;;
esac
"""


@pytest.fixture
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stack `dev` is up by its outputs."""
    patch_outputs(monkeypatch, OUTPUTS)


@pytest.fixture
def commands(up: None, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A controller that answers for two nodes. Returns the command lines of machines, without those that list nodes."""
    for name, text in {"LOG": "", "NODES": NODES, "RESULTS": ""}.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(name, str(tmp_path / name))
    tool("ssh", MACHINES)
    return lambda: [line for line in (tmp_path / "LOG").read_text().splitlines() if "--oneliner" not in line]
