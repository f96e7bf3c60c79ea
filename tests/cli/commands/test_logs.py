"""`./hpc logs`: whose logs it prints, and how it ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import OUTPUTS, Hpc, Tool
from tests.waiting import PATIENCE, lives

pytestmark = pytest.mark.usefixtures("up")


def test_logs_of_other_machines_are_printed_if_one_does_not_answer(hpc: Hpc, tool: Tool):
    tool("ssh", "case \"$*\" in *dev-cpu-0*) echo no route >&2; exit 255 ;; esac; echo '[2026-11-21T05:00:00] x'")
    ended = hpc("logs", "dev", "slurmd")
    assert ended.code == 0
    assert ended.out == "dev-cpu-1 | [2026-11-21T05:00:00] x\n"
    assert ended.err == "dev-cpu-0: does not answer: no route\n"


def test_an_empty_log_is_noted(hpc: Hpc, tool: Tool):
    tool("ssh", "true")
    assert hpc("logs", "dev", "mariadb").err == "dev-controller: nothing in the journal of mariadb\n"


def test_an_unknown_log_or_machine_is_refused(hpc: Hpc):
    assert "Or one of: slurmctld, slurmd" in hpc("logs", "dev", "slurmdd").err
    assert hpc("logs", "dev", "slurmctld", "--on", "cpu-0").err.startswith("error: dev-cpu-0: no slurmctld there.")
    assert "--on narrows" in hpc("logs", "dev", "cpu-0", "--on", "cpu-1").err


def test_ctrl_c_ends_every_ssh_through_its_input(tool: Tool, tmp_path: Path):
    # The script on machines prints, too, and ends when its input does.
    tool("ssh", f"echo line; echo $$ >>{tmp_path}/pids; cat >/dev/null; echo $$ >>{tmp_path}/ended")
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from cli.stack import outputs; from cli.app import main\n"
        "outputs.read = lambda *_, **__: json.loads(sys.argv[2])\n"
        "main(['logs', 'dev', 'slurmd', '-f'])\n"
    )
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", program, root, json.dumps(OUTPUTS)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert {process.stdout.readline() for _ in range(2)} == {"dev-cpu-0 | line\n", "dev-cpu-1 | line\n"}
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 128 + signal.SIGINT
    started, ended = ((tmp_path / name).read_text().split() for name in ("pids", "ended"))
    assert sorted(started) == sorted(ended)
    assert not any(lives(int(pid)) for pid in started)
