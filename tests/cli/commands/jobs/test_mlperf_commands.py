"""The commands `mlperf prepare`, `run` and `report --stack`, with a stand-in for the jobs of a cluster."""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.cluster import jobs as job_progress
from cli.cluster.jobs import Jobs
from cli.commands.jobs import job_cluster
from cli.errors import CliError
from cli.stack import project
from cluster.config import ClusterConfig
from cluster.jobs.mlperf import NEEDED_FILES
from scripts.node.slurm.jobs import Job
from tests import programs
from tests.cli.conftest import Hpc
from tests.cluster.report.mlperf_logs import blocks, event, preamble, reference, text
from tests.cluster.stacks import ROOT, config

PREPARE = ("mlperf", "prepare", "nebius", "stable-diffusion")
RUN = ("mlperf", "run", "nebius", "stable-diffusion", "--nodes", "2")
REPORT = ("mlperf", "report", "--stack", "nebius")
GOOD = f"folder\nwritable\ndf {3 * 1024**4} /mlperf-sd\n"


@dataclass
class StandIn:
    """Jobs of a cluster: a submitted job is pending, then running, then ended with the state that a test sets."""

    folder: Path
    data_folder: str = GOOD
    queue: str = ""
    end_states: Mapping[str, str] = field(default_factory=dict)
    """Last states by the job's name; of other jobs it is COMPLETED."""
    stack: str = "nebius"
    user: str = "alice"
    submitted: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    waits: int = 0
    interrupts: bool = False
    log: Callable[[int], list[str]] = lambda _waits: []
    """Returns the lines of the log after so many waits."""
    config: ClusterConfig = field(default_factory=lambda: config("nebius"))
    prepare = Jobs.prepare

    def put(self, files: Mapping[str, str]) -> list[str]:
        self.written += files
        return []

    def submit(self, script: str, options: Mapping[str, object] | None = None) -> str:
        self.submitted.append((script, options or {}))
        return str(100 + len(self.submitted))

    def cancel(self, ids: list[str]) -> None:
        self.cancelled += ids

    def run(self, line: str, seconds: float = 60) -> str:
        if "df -B1" in line:
            return self.data_folder
        if line.startswith("squeue"):
            return self.queue
        if line.startswith("tail"):
            return "Transferred: 5 GiB / 10 GiB, 50%\n"
        if line.startswith(("scontrol", "if [ -f ")):
            return "" if "/none.out" in line else "/mlperf-sd/logs/101_train_02x08x08.out\n"
        if line.startswith("LC_ALL=C sed"):
            file = self.folder / "log"
            file.write_bytes(text(self.log(self.waits)))
            done = programs.run(["bash", "-c", re.sub(r" /mlperf-sd/\S+", f" {file}", line)], check=True)
            return done.stdout
        if "rm -f" in line:
            self.removed.append(line)
        else:
            assert line.startswith("mkdir -p ")
        return ""

    def wait(self, ids: Iterator[str], on_change, seconds: float | None = None) -> Mapping[str, Job]:
        self.waits += 1
        if self.interrupts and self.waits > 2:
            raise KeyboardInterrupt
        states = {}
        for number in ids:
            end = self.end_states.get(self._name(number), "COMPLETED")
            state = ["PENDING", "RUNNING", end][min(self.waits, 3) - 1]
            reason = "Priority" if state == "PENDING" else ""
            states[number] = Job(id=number, state=state, reason=reason, nodes="worker-0", exit_code="1:0")
        on_change(states)
        return states

    def _name(self, number: str) -> str:
        index = int(number) - 101
        if not 0 <= index < len(self.submitted):
            return ""
        name = re.search(r"--job-name=(\S+)", self.submitted[index][0])
        return name[1] if name else ""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(tmp_path)
    monkeypatch.setattr(job_cluster, "connect_user", lambda _stack, _user: stand_in)
    return stand_in


class TestPrepare:
    def test_jobs_are_submitted_and_their_progress_is_printed(self, jobs: StandIn, hpc: Hpc):
        err = hpc(*PREPARE).err
        assert [options for _, options in jobs.submitted] == [{}, *[{"dependency": "singleton,afterok:101"}] * 3]
        assert "mlperf-sd-code: job 101\n" in err
        assert "mlperf-sd-dataset: pending (Priority)\n" in err
        assert "mlperf-sd-dataset: running on worker-0\n" in err
        assert err.count("mlperf-sd-dataset: Transferred: 5 GiB / 10 GiB, 50%\n") == 1
        assert err.endswith("Next: ./hpc mlperf run nebius stable-diffusion --data /mlperf-sd --nodes N\n")

    def test_the_next_command_has_image_and_checkpoint(self, jobs: StandIn, hpc: Hpc):
        options = "--image r.example#a/b:1 --checkpoint /models/gpt3"
        ended = hpc("mlperf", "prepare", "nebius", "gpt3", *options.split())
        assert ended.err.endswith(f"Next: ./hpc mlperf run nebius gpt3 --data /gpt3 {options} --nodes N\n")

    def test_jobs_in_the_queue_are_not_submitted_again(self, jobs: StandIn, hpc: Hpc):
        jobs.queue = (
            "mlperf-sd-dataset|77|/mlperf-sd|Priority\nother|78|(null)|None\nmlperf-sd-image|79|/another|None\n"
            "mlperf-sd-checkpoint|80|/mlperf-sd|DependencyNeverSatisfied\n"
        )
        assert "mlperf-sd-dataset: job 77 is in the queue already" in hpc(*PREPARE).err
        assert len(jobs.submitted) == 3
        assert jobs.cancelled == ["80"], "it waits for a job that has failed"
        assert all("#SBATCH --comment=/mlperf-sd\n" in script for script, _ in jobs.submitted)

    def test_a_failed_job_is_printed_with_the_end_of_its_log(self, jobs: StandIn, hpc: Hpc):
        jobs.end_states = {"mlperf-sd-dataset": "FAILED"}
        error = hpc(*PREPARE).error
        assert "mlperf-sd-dataset, job 102, failed. The end of its log:\nTransferred" in error
        assert "error: mlperf-sd-dataset failed. Run the command again" in error

    def test_an_interrupt_cancels_no_job(self, jobs: StandIn, hpc: Hpc):
        jobs.interrupts = True
        ended = hpc(*PREPARE)
        assert (ended.code, "The jobs go on: mlperf-sd-code, " in ended.err) == (130, True)
        assert jobs.cancelled == []

    def test_nothing_is_submitted_without_a_data_folder(self, jobs: StandIn, hpc: Hpc):
        jobs.data_folder = "none\n"
        assert "install -d -o alice /mlperf-sd" in hpc(*PREPARE).error
        assert jobs.submitted == []

    def test_marks_of_the_jobs_are_removed_if_a_file_is_missing(self, jobs: StandIn, hpc: Hpc):
        hpc(*PREPARE)
        assert jobs.removed == []
        jobs.data_folder = f"{GOOD}missing checkpoints/sd/512-base-ema.ckpt\n"
        hpc(*PREPARE)
        (line,) = jobs.removed
        folder = jobs.folder / "mlperf-sd"
        (folder / ".hpc").mkdir(parents=True)
        for name in ("code", "copy-sd-data", "image-x.sqsh", "mlperf-sd-code-1.out"):
            (folder / ".hpc" / name).touch()
        subprocess.run(["bash", "-c", line.replace("/mlperf-sd", str(folder))], check=True)
        assert [path.name for path in (folder / ".hpc").iterdir()] == ["mlperf-sd-code-1.out"]

    def test_a_small_file_system_is_a_warning(self, jobs: StandIn, hpc: Hpc):
        jobs.data_folder = f"folder\nwritable\ndf {10**12} /\n"
        err = hpc(*PREPARE).err
        assert "warning: --data /mlperf-sd: its file system has 931 GiB, and the guide plans 2048 GiB" in err
        assert "warning: --data /mlperf-sd: the folder is on the file system of /" in err

    def test_a_dry_run_prints_the_job_scripts(self, jobs: StandIn, hpc: Hpc, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(project, "ROOT", ROOT)
        out = hpc(*PREPARE, "--data", "/data", "--dry-run").out
        golden = ROOT / "tests/golden/mlperf/nebius"
        for name in ("mlperf-sd-code.sh", "mlperf-sd-dataset.sh", "mlperf-sd-image.sh"):
            assert (golden / name).read_text() in out.replace("\n\n=====", "\n=====")
        assert jobs.submitted == []


class TestRun:
    def test_intervals_are_printed_during_the_run_and_then_the_report(self, jobs: StandIn, hpc: Hpc):
        jobs.log = lambda waits: [[], reference()[: -30 - 6], reference()][min(waits, 3) - 1]
        ended = hpc(*RUN)
        assert ended.out.startswith(" interval |     steps     |")
        assert " AVG: 20.51s <= 21.38s (target for 2xH100 GPU)\n" in ended.out
        lines = [line for line in ended.err.splitlines() if "steps" in line]
        assert lines[0] == "job 101: steps 0-100: 23.62 s"
        assert len(lines) == 10
        assert jobs.written == ["/opt/apps/hpc/env.sh"]

    def test_a_slow_run_has_exit_code_1(self, jobs: StandIn, hpc: Hpc, tmp_path: Path):
        jobs.log = lambda _waits: [*preamble(), *blocks([25_000] * 3)]
        assert hpc(*RUN, "--png", str(tmp_path / "x.png")).code == 1
        assert (tmp_path / "x.png").exists()

    @pytest.mark.parametrize(("state", "code"), [("TIMEOUT", 0), ("FAILED", 1), ("NODE_FAIL", 1)])
    def test_a_failed_job_has_exit_code_1_whatever_its_times(self, jobs: StandIn, hpc: Hpc, state: str, code: int):
        jobs.log, jobs.end_states = lambda _waits: reference(), {"mlperf-train_02x08x08": state}
        assert hpc(*RUN).code == code

    def test_a_job_without_a_log_is_an_error(self, jobs: StandIn, hpc: Hpc):
        jobs.end_states = {"mlperf-train_02x08x08": "FAILED"}
        assert "/mlperf-sd/logs/101_train_02x08x08.out is empty" in hpc(*RUN).error
        jobs.log, jobs.waits = lambda _waits: ["srun: error: no container"], 0
        error = hpc(*RUN).error
        assert "Job 102 ended as FAILED. The end of its log:\nTransferred" in error
        assert "has no line with :::MLLOG: it is no log" in error

    def test_an_interrupt_prints_how_to_report_and_cancel(self, jobs: StandIn, hpc: Hpc):
        jobs.interrupts = True
        ended = hpc(*RUN)
        assert ended.code == 130
        assert "./hpc mlperf report 101 --stack nebius --data /mlperf-sd --as alice" in ended.err
        assert "./hpc run nebius --as alice -- scancel 101" in ended.err
        assert jobs.cancelled == []

    def test_a_login_machine_without_answer_cancels_no_job(
        self, jobs: StandIn, hpc: Hpc, monkeypatch: pytest.MonkeyPatch
    ):
        def lost(*_: object) -> None:
            raise CliError("login: does not answer")

        monkeypatch.setattr(job_progress, "_LOST_SECONDS", -1.0)
        monkeypatch.setattr(jobs, "wait", lost)
        assert "answer\nJob 101 goes on by itself. Report it with: ./hpc mlperf" in hpc(*RUN).error
        assert re.search("answer\nThe jobs go on: mlperf-sd-code, .* Run the command again", hpc(*PREPARE).error)
        assert jobs.cancelled == []

    def test_files_that_are_not_prepared_are_named(self, jobs: StandIn, hpc: Hpc):
        jobs.data_folder = GOOD + "".join(f"missing {file}\n" for file in NEEDED_FILES["stable_diffusion"])
        error = hpc(*RUN).error
        assert "without training/stable_diffusion/run_and_time.sh and 8 more" in error
        assert "./hpc mlperf prepare nebius stable-diffusion --data /mlperf-sd" in error
        assert jobs.submitted == []

    def test_no_wait_prints_the_command_to_report(self, jobs: StandIn, hpc: Hpc):
        assert "Report it with: ./hpc mlperf report 101 --stack nebius" in hpc(*RUN, "--no-wait").err
        assert jobs.waits == 0


class TestReportOfACluster:
    def test_a_path_that_is_no_file_is_an_error(self, jobs: StandIn, hpc: Hpc, monkeypatch: pytest.MonkeyPatch):
        message = "is no file on the cluster that alice can read"
        assert f"/mlperf-sd/none.out {message}" in hpc(*REPORT, "/mlperf-sd/none.out").error
        jobs.log = lambda _waits: reference()
        assert " AVG: 20.51s" in hpc(*REPORT, "/mlperf-sd/there.out").out
        monkeypatch.setattr(jobs, "run", lambda line, _seconds=60: "/bobs/1.out\n" if "scontrol" in line else "")
        assert f"/bobs/1.out {message}" in hpc(*REPORT, "1").error

    def test_damaged_lines_of_the_log_are_noted(self, jobs: StandIn, hpc: Hpc):
        jobs.log = lambda _waits: [*reference(), ":::MLLOG hello", event(1, "run_stop")[:-10]]
        ended = hpc(*REPORT, "101")
        assert " AVG: 20.51s <= 21.38s (target for 2xH100 GPU)\n" in ended.out
        line = len(reference()) + 1
        assert f"note: line {line} is left out, and 1 more line: :::MLLOG has no JSON object.\n" in ended.err

    def test_an_unknown_job_is_an_error(self, jobs: StandIn, hpc: Hpc, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(jobs, "run", lambda _line, _seconds=60: "")
        assert "no log of job 9 is in /mlperf-sd/logs or /gpt3/logs" in hpc(*REPORT, "9").error
        assert "'x;y' is no job" in hpc(*REPORT, "x;y").error
