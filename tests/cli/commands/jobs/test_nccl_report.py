"""`./hpc nccl report`: what it prints, its exit codes, and the user who reads a log on a cluster."""

import json
import os
import shlex
import struct
import subprocess
from pathlib import Path

import pytest

from cluster.printable import printable
from cluster.report.nccl_log import read_text
from cluster.report.nccl_report import report_lines
from cluster.report.nccl_result import check
from tests.cli.conftest import OUTPUTS, Hpc, Tool, patch_outputs
from tests.cluster.report.nccl_logs import A3_MEGA, GUIDE, log, measured

SLOW = [min(busbw, 141.0) for busbw in GUIDE]
FALLBACK = [3, 5, 8, 10, 12, 14, 16, 17, 17.5, 18, 18]
SMALL = [0.01 * 2**number for number in range(12)]
TEXTS = {
    "pass": log(facts=A3_MEGA),
    "slow": log(lines=measured(busbw=SLOW), facts=A3_MEGA),
    "fallback": log(lines=measured(busbw=FALLBACK), facts=A3_MEGA),
    "small": log(lines=measured(busbw=SMALL, first=1024)),
    "cut": log(facts=A3_MEGA)[:-800],
    "two-runs": log(lines=measured(busbw=(1.0,))) + "\n" + log("broadcast"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_the_golden_one(name, golden):
    read = read_text(TEXTS[name], f"{name}.log")
    golden(f"report/nccl-{name}.txt", "\n".join(report_lines(read, check(read))) + "\n")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with a file for each of TEXTS."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.log").write_text(text)
    return folder


@pytest.mark.parametrize(("name", "code"), [("pass", 0), ("slow", 1), ("fallback", 1), ("small", 1), ("cut", 1)])
def test_only_a_pass_has_exit_code_0(hpc: Hpc, logs: Path, name, code):
    ended = hpc("nccl", "report", str(logs / f"{name}.log"))
    assert (ended.code, ended.err) == (code, "")
    assert ("Result: pass" in ended.out) == (code == 0)


def test_json_is_one_document(hpc: Hpc, logs: Path):
    beside = logs / ".." / "logs"
    ended = hpc("nccl", "report", str(logs / "slow.log"), "--against", str(beside), "--json")
    document = json.loads(ended.out)
    assert (document["result"], document["collective"], document["nodes"]) == ("fail", "all_gather", 2)
    assert document["runs"][document["last"]]["rows"][0]["out_of_place"]["busbw"] == 22.52
    assert "nccl-one-slow" in [finding["id"] for finding in document["findings"]]
    assert document["hosts"] == ["a3-0", "a3-1"]
    # The log is not compared with itself, nor with a truncated log.
    assert {Path(run["file"]).stem for run in document["against"]["runs"]} == {"pass", "fallback"}
    assert document["against"]["left_out"] == 3


def test_a_number_that_is_not_finite_is_null_in_json(hpc: Hpc, tmp_path: Path):
    (tmp_path / "x.log").write_text(log(facts=A3_MEGA).replace("  22.52", "    nan").replace("  24.02", "    inf"))
    ended = hpc("nccl", "report", str(tmp_path / "x.log"), "--json")
    assert json.loads(ended.out, parse_constant=pytest.fail)["runs"][0]["rows"][0]["in_place"]["busbw"] is None


def test_the_plot_is_written_as_a_picture(hpc: Hpc, logs: Path, tmp_path: Path):
    ended = hpc("nccl", "report", str(logs / "pass.log"), "--png", str(tmp_path / "x.png"))
    assert ended.err == f"Wrote {tmp_path / 'x.png'}\n"
    assert struct.unpack(">II", (tmp_path / "x.png").read_bytes()[16:24]) == (1080, 600)
    assert "can't write /proc/x.png" in hpc("nccl", "report", str(logs / "pass.log"), "--png", "/proc/x.png").error


def test_a_folder_has_a_line_for_each_log(hpc: Hpc, logs: Path):
    (logs / "17-warm-up.log").write_text(TEXTS["small"])
    (logs / "notes.txt").write_text("remember\n")
    ended = hpc("nccl", "report", str(logs))
    assert ended.code == 1
    rows = ended.out.splitlines()
    for name, result in {"pass": "pass", "slow": "fail", "cut": "fail", "small": "not compared"}.items():
        assert [row for row in rows if f"/{name}.log  " in row and row.startswith(result)], name
    assert "warm-up" not in ended.out
    assert [row for row in rows if row.startswith("no log") and "notes.txt" in row]
    assert json.loads(hpc("nccl", "report", str(logs), "--json").out)["result"] == "fail"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.log",), "can't read nothing.log: No such file"),
        (("{logs}/pass.log", "--collective", "allgather"), "Did you mean all_gather?"),
        (("x" * 5000,), "File name too long"),
        (("17",), "name its cluster: --stack STACK"),
        (("{logs}/pass.log", "--stack", "dev"), "--stack goes with the number of a job"),
        (("{logs}", "--png", "x.png"), "--against and --png are for one log"),
        (("{logs}/pass.log", "--against", "/nowhere"), "--against: /nowhere does not exist"),
        (("/dev/null",), "an empty file"),
    ],
)
def test_what_can_not_be_reported_is_refused(hpc: Hpc, logs: Path, arguments, message):
    ended = hpc("nccl", "report", *(word.format(logs=logs) for word in arguments))
    assert message in ended.error
    assert "defect" not in ended.err


def test_a_log_is_read_from_a_pipe(hpc: Hpc, logs: Path, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", f"{logs}/pass.log", str(pipe)]) as writer:
        ended = hpc("nccl", "report", str(pipe))
        writer.wait()
    assert (ended.code, ended.err) == (0, "")
    assert "Result: pass" in ended.out


def test_control_sequences_of_a_log_are_escaped(hpc: Hpc, tmp_path: Path):
    name = tmp_path / "a\x1b[2Jb.log"
    name.write_text(log(facts=A3_MEGA, hosts=("a\x1b[31m", "b")) + "\nsrun: error: \x1b]0;title\x07\n")
    for more in ((), ("--json",)):
        ended = hpc("nccl", "report", str(name), *more)
        assert printable(ended.out) == ended.out


class TestJobs:
    """slurmctld and sacct are stand-ins, and ssh runs the command line on this machine."""

    @pytest.fixture
    def cluster(self, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
        patch_outputs(monkeypatch, OUTPUTS)
        tool("ssh", 'for word; do last=$word; done; exec bash -c "$last"')
        tool("runuser", f'echo "$2" >>{tmp_path}/as; exec bash -c "$4"')
        return tool

    @pytest.mark.parametrize("job_name", ["test", "x UserId=root(0) StdOut=/etc/shadow", "x\n   StdOut=/etc/shadow"])
    def test_the_log_of_a_job_is_read_as_its_user(self, hpc: Hpc, cluster, logs: Path, tmp_path: Path, job_name: str):
        head = f"JobId=17 JobName={job_name}\n   UserId=alice(2001) GroupId=alice(2001)\n"
        shown = f"{head}   StdErr=/x\n   StdOut={logs}/pass.log\n"
        cluster("scontrol", f"printf %s {shlex.quote(shown)}")
        cluster("squeue", "echo alice")
        ended = hpc("nccl", "report", "17", "--stack", "dev")
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith(f"{logs}/pass.log: all_gather, 2 nodes")
        assert (tmp_path / "as").read_text().split()[-1] == "alice"

    def test_the_user_of_an_old_job_is_read_from_the_database(self, hpc: Hpc, cluster, tmp_path: Path):
        cluster("squeue", "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1")
        cluster("sacct", "echo alice")
        assert f"its log is not {tmp_path}/nccl/logs/17.log" in hpc("nccl", "report", "17", "--stack", "dev").error
        (tmp_path / "nccl/logs").mkdir(parents=True)
        (tmp_path / "nccl/logs/17.log").write_text(TEXTS["pass"])
        assert hpc("nccl", "report", "17", "--stack", "dev").code == 0

    def test_an_unknown_job_is_an_error(self, hpc: Hpc, cluster):
        cluster("squeue", "exit 1")
        cluster("sacct", "true")
        ended = hpc("nccl", "report", "17", "--stack", "dev")
        assert "neither slurmctld nor the accounting database of dev has it" in ended.error
