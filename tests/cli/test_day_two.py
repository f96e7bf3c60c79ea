"""logs, nodes, usage and accounting: what they ask the machines for, what they refuse, and how they end."""

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.observe.backup import FIRST, LAST
from tests.cli.conftest import Hpc, stand_for_state
from tests.cli.test_reach import KEY

Tool = Callable[[str, str], Path]

OUTPUTS: dict[str, Any] = {
    "cluster": "dev",
    "targets": {
        "dev-controller": {
            "method": "ssh",
            "address": "10.77.0.2",
            "roles": ["controller", "login"],
            "host_key": "ssh-ed25519 AAA1",
        },
        "dev-cpu-0": {"method": "ssh", "address": "10.77.2.0", "roles": ["node"], "host_key": "ssh-ed25519 AAA3"},
        "dev-cpu-1": {"method": "ssh", "address": "10.77.2.1", "roles": ["node"], "host_key": "ssh-ed25519 AAA4"},
    },
    "admin_key": KEY,
    "users": ["alice", "bob"],
    "login": "dev-controller",
}
NODES = """\
NodeName=dev-cpu-0 State=MIXED SlurmdStartTime=2026-11-21T05:43:27
NodeName=dev-cpu-1 State=IDLE+DRAIN SlurmdStartTime=2026-11-21T05:43:27 Reason=fan [root@2026-11-21T05:43:58]
--jobs--
7|alice|RUNNING|1:02|22:58:58|dev-cpu-0|train|
"""
# Keeps every line that a machine is given, and answers as slurmctld would.
SLURM = """\
for line; do :; done
printf '%s\\n' "$line" >>"$LOG"
case $line in *"scontrol --oneliner"*)
    mark=${line##* && echo }
    mark=${mark%% *}
    sed "s/--jobs--/$mark/; s/|/$mark/g" "$NODES"
    ;;
esac
"""
SACCT = """\
2026-10-22T00:00:00 2026-11-21T00:00:00
1|alice|research|cpu|3600|billing=2,cpu=2,mem=2048M,node=1|1|COMPLETED
2|bob|teaching|gpu|1800|cpu=1,gres/gpu:standin=2,gres/gpu=2|2|COMPLETED
alive all
"""


@pytest.fixture
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stack `dev` is up, as far as its outputs tell."""
    stand_for_state(monkeypatch, OUTPUTS)


@pytest.fixture
def asked(up: None, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A controller that answers for two nodes; gives the lines that changed something."""
    log, nodes = tmp_path / "log", tmp_path / "nodes"
    log.touch()
    nodes.write_text(NODES)
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("NODES", str(nodes))
    tool("ssh", SLURM)
    return lambda: [line for line in log.read_text().splitlines() if "--oneliner" not in line]


@pytest.mark.parametrize(
    "words",
    [["logs", "dev", "slurmd"], ["nodes", "dev"], ["usage", "dev"], ["accounting", "backup", "dev"]],
    ids=lambda words: words[0],
)
def test_a_stack_that_is_not_up_says_how_to_bring_it_up(hpc: Hpc, monkeypatch: pytest.MonkeyPatch, words: list[str]):
    monkeypatch.setattr("cli.stack.outputs.read", lambda *_, **__: {})
    ended = hpc(*words)
    assert (ended.code, ended.err) == (1, "error: stack dev is not up. Bring it up with: ./hpc up dev\n")


class TestNodes:
    def test_they_are_listed_with_their_jobs(self, hpc: Hpc, asked: Callable[[], list[str]]):
        lines = hpc("nodes", "dev").out.splitlines()
        assert [line.split() for line in lines[1:]] == [
            ["dev-cpu-0", "mixed", "-", "-", "7(alice)"],
            ["dev-cpu-1", "drained", "fan", "2026-11-21T05:43:58", "-"],
        ]
        assert json.loads(hpc("nodes", "dev", "--json").out)[0]["jobs"][0]["left"] == "22:58:58"
        assert asked() == []

    @pytest.mark.parametrize("action", [["drain", "--reason", "x"], ["reboot"]], ids=lambda action: action[0])
    def test_one_with_a_running_job_is_refused_in_words(self, hpc: Hpc, asked: Callable[[], list[str]], action: list):
        ended = hpc("nodes", "dev", *action, "cpu-[0-1]")
        assert ended.code == 1
        assert "dev-cpu-0: job 7 (train) of alice: running for 1:02, 22:58:58 left" in ended.err
        assert "--force" in ended.err
        assert "--wait" in ended.err
        assert asked() == []

    def test_a_drain_is_one_command_with_its_reason_quoted(self, hpc: Hpc, asked: Callable[[], list[str]]):
        assert hpc("nodes", "dev", "drain", "cpu-0", "--reason", "it's $HOME", "--force").code == 0
        assert asked() == ["""scontrol update NodeName=dev-cpu-0 State=DRAIN 'Reason=it'"'"'s $HOME'"""]

    def test_what_is_as_wanted_is_left_alone(self, hpc: Hpc, asked: Callable[[], list[str]]):
        assert "is drained already" in hpc("nodes", "dev", "drain", "cpu-1", "--reason", "other").out
        assert "nothing to resume" in hpc("nodes", "dev", "resume", "cpu-0").out
        assert asked() == []

    def test_a_node_that_slurmctld_resumed_by_itself_meanwhile_is_as_wanted(
        self, hpc: Hpc, up: None, tool: Tool, tmp_path: Path
    ):
        idle = NODES.replace("State=IDLE+DRAIN", "State=IDLE")
        (tmp_path / "drained").write_text(NODES)
        (tmp_path / "idle").write_text(idle)
        # Between our look and our word the node came back: slurmctld refuses the word.
        tool(
            "ssh",
            f"cd {tmp_path}; for line; do :; done; case $line in\n"
            '*--oneliner*) cat "$(test -e told && echo idle || echo drained)" ;;\n'
            "*) touch told; echo 'Invalid node state specified' >&2; exit 1 ;;\nesac",
        )
        ended = hpc("nodes", "dev", "resume", "cpu-1")
        assert (ended.code, ended.out) == (0, "dev-cpu-1: idle\n"), ended.err

    def test_all_errors_come_at_once(self, hpc: Hpc, asked: Callable[[], list[str]]):
        ended = hpc("nodes", "dev", "drain", "--json")
        assert ended.code == 1
        assert all(words in ended.err for words in ("which nodes?", "--reason is needed", "--json is for the list"))
        ended = hpc("nodes", "dev", "resume", "cpu-2", "cpuu-1")
        assert "no node 'cpu-2'. Did you mean" in ended.err
        assert "no node 'cpuu-1'. Did you mean dev-cpu-1?" in ended.err
        assert "a bracket is never closed" in hpc("nodes", "dev", "resume", "cpu-[0").err
        assert asked() == []

    def test_the_controllers_machine_is_not_rebooted(self, hpc: Hpc, asked: Callable[[], list[str]], tmp_path: Path):
        (tmp_path / "nodes").write_text("NodeName=dev-controller State=IDLE\n--jobs--\n")
        assert "would take the cluster along" in hpc("nodes", "dev", "reboot", "controller", "--force").err
        assert asked() == []

    def test_a_controller_that_does_not_answer_is_named(self, hpc: Hpc, up: None, tool: Tool):
        tool("ssh", "echo no route >&2; exit 255")
        ended = hpc("nodes", "dev")
        assert (ended.code, ended.err) == (1, "error: dev-controller: does not answer: no route\n")


@pytest.mark.usefixtures("up")
class TestUsage:
    @pytest.fixture(autouse=True)
    def sacct(self, tool: Tool, tmp_path: Path) -> None:
        """A controller with two jobs on record."""
        (tmp_path / "sacct").write_text(SACCT)
        tool("ssh", f"cat {tmp_path}/sacct")

    def test_a_table_with_its_total(self, hpc: Hpc):
        lines = [line.split() for line in hpc("usage", "dev").out.splitlines()]
        assert lines[1:] == [
            ["bob", "teaching", "gpu", "0.50", "1.00", "1"],
            ["alice", "research", "cpu", "2.00", "0.00", "1"],
            ["total", "2.50", "1.00", "2"],
        ]

    def test_a_document(self, hpc: Hpc):
        told = json.loads(hpc("usage", "dev", "--by", "account", "--user", "alice", "--json").out)
        assert (told["since"], told["until"]) == ("2026-10-22T00:00:00", "2026-11-21T00:00:00")
        figures = {"cpu_hours": 2.0, "gpu_hours": 0.0, "cpu_seconds": 7200, "gpu_seconds": 0, "jobs": 1}
        assert told["rows"] == [{"account": "research", **figures}]
        assert told["total"] == figures

    def test_a_typo_is_no_idle_user(self, hpc: Hpc):
        assert "Did you mean alice?" in hpc("usage", "dev", "--user", "alise").err
        assert "Did you mean teaching?" in hpc("usage", "dev", "--account", "teachin").err

    def test_a_bad_time_says_what_is_allowed(self, hpc: Hpc):
        ended = hpc("usage", "dev", "--until", "tomorow")
        assert ended.code == 1
        assert ended.err.startswith("error: --until: 'tomorow' is no point in time. Allowed: a date (2026-11-21")


@pytest.mark.usefixtures("up")
class TestLogs:
    def test_a_dead_machine_does_not_keep_the_others(self, hpc: Hpc, tool: Tool):
        tool("ssh", "case \"$*\" in *dev-cpu-0*) echo no route >&2; exit 255 ;; esac; echo '[2026-11-21T05:00:00] x'")
        ended = hpc("logs", "dev", "slurmd")
        assert ended.code == 0
        assert ended.out == "dev-cpu-1 | [2026-11-21T05:00:00] x\n"
        assert ended.err == "dev-cpu-0: does not answer: no route\n"

    def test_silence_is_explained(self, hpc: Hpc, tool: Tool):
        tool("ssh", "true")
        assert hpc("logs", "dev", "mariadb").err == "dev-controller: nothing in the journal of mariadb\n"

    def test_what_is_asked_for_is_checked(self, hpc: Hpc):
        assert "Or one of: slurmctld, slurmd" in hpc("logs", "dev", "slurmdd").err
        assert hpc("logs", "dev", "slurmctld", "--on", "cpu-0").err.startswith("error: dev-cpu-0: no slurmctld there.")
        assert "--on narrows" in hpc("logs", "dev", "cpu-0", "--on", "cpu-1").err

    def test_ctrl_c_ends_every_ssh_in_order(self, tool: Tool, tmp_path: Path):
        # As the machines' script does: it prints, and ends when its input does.
        tool("ssh", f"echo line; echo $$ >>{tmp_path}/pids; cat >/dev/null; echo $$ >>{tmp_path}/ended")
        program = (
            "import json, sys; sys.path.insert(0, sys.argv[1])\n"
            "from cli.stack import outputs; from cli.app import main\n"
            "outputs.read = lambda *_, **__: json.loads(sys.argv[2])\n"
            "main(['logs', 'dev', 'slurmd', '-f'])\n"
        )
        root = str(Path(__file__).parents[2])
        with subprocess.Popen(
            [sys.executable, "-c", program, root, json.dumps(OUTPUTS)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert {process.stdout.readline() for _ in range(2)} == {"dev-cpu-0 | line\n", "dev-cpu-1 | line\n"}
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 128 + signal.SIGINT
        begun, ended = ((tmp_path / name).read_text().split() for name in ("pids", "ended"))
        assert sorted(begun) == sorted(ended)
        for pid in begun:
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)


@pytest.mark.usefixtures("up")
class TestAccounting:
    @staticmethod
    def backup(path: Path, **told: object) -> Path:
        said = {"cluster": "dev", "slurm": "22.05.8", "date": "2026-11-21T05:30:00+0000", "jobs": 3, **told}
        text = FIRST + b"-- " + json.dumps(said).encode() + b"\nSELECT 1;\n"
        path.write_bytes(gzip.compress(text + LAST + hashlib.sha256(text).hexdigest().encode() + b"\n"))
        return path

    def test_a_backup_appears_whole_private_and_once(self, hpc: Hpc, tool: Tool, tmp_path: Path):
        tool("ssh", f"cat {self.backup(tmp_path / 'there')}")
        target = tmp_path / "b.sql.gz"
        assert "3 job records" in hpc("accounting", "backup", "dev", str(target)).out
        assert target.stat().st_mode & 0o777 == 0o600
        assert "is there already" in hpc("accounting", "backup", "dev", str(target)).err
        assert "there is no folder" in hpc("accounting", "backup", "dev", str(tmp_path / "no" / "b")).err
        folder = tmp_path / "folder"
        folder.mkdir()
        assert hpc("accounting", "backup", "dev", str(folder)).code == 0
        assert [path.name.startswith("dev-accounting-") for path in folder.iterdir()] == [True]

    def test_without_a_path_it_is_in_the_state_dir_for_both(self, hpc: Hpc, tool: Tool, tmp_path: Path):
        tool("ssh", f"cat {self.backup(tmp_path / 'there', cluster='other')}")
        assert hpc("accounting", "backup", "dev").code == 0
        (made,) = (tmp_path / "home/accounting-backups").iterdir()
        assert "is of cluster other" in hpc("accounting", "restore", "dev", made.name).err

    @pytest.mark.parametrize(
        ("ssh", "words"),
        [
            ("head -c 100 {there}", "did not arrive whole"),
            ("cat {there}; echo broken >&2; exit 1", "dev-controller: broken"),
            ("exit 2", "older than this program. Bring it up to date: ./hpc up dev"),
            ("exit 255", "does not answer"),
        ],
    )
    def test_one_that_fails_leaves_nothing(self, hpc: Hpc, tool: Tool, tmp_path: Path, ssh: str, words: str):
        tool("ssh", ssh.format(there=self.backup(tmp_path / "there")))
        folder = tmp_path / "folder"
        folder.mkdir()
        ended = hpc("accounting", "backup", "dev", str(folder))
        assert (ended.code, words in ended.err) == (1, True), ended.err
        assert list(folder.iterdir()) == []

    @pytest.mark.parametrize(
        ("told", "words"),
        [
            ({"cluster": "prod"}, "is of cluster prod, and stack dev is cluster dev"),
            ({"slurm": "24.11.1"}, "was made with Slurm 24.11.1, whose tables the cluster's 22.05.8 can't read"),
            ({"slurm": "21.08.8"}, "was made with Slurm 21.08.8, whose tables the cluster's 22.05.8 can't read"),
            ({}, "without a terminal needs --yes"),
        ],
    )
    def test_what_cannot_be_restored_touches_nothing(
        self, hpc: Hpc, tool: Tool, tmp_path: Path, told: dict[str, str], words: str
    ):
        tool("ssh", f'for line; do :; done; echo "$line" >>{tmp_path}/log; echo slurm 22.05.8')
        ended = hpc("accounting", "restore", "dev", str(self.backup(tmp_path / "b", **told)))
        assert (ended.code, words in ended.err) == (1, True), ended.err
        log = tmp_path / "log"
        assert not log.exists() or set(log.read_text().splitlines()) == {"slurmctld -V"}

    def test_a_file_that_is_none_is_refused(self, hpc: Hpc, tmp_path: Path):
        (tmp_path / "x").write_text("hello")
        assert "no backup of ours" in hpc("accounting", "restore", "dev", str(tmp_path / "x"), "--yes").err
        assert "can't be read" in hpc("accounting", "restore", "dev", str(tmp_path / "y"), "--yes").err
