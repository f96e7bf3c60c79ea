"""The commands `mlperf prepare`, `run` and `report --stack`, with a stand-in for the cluster's Slurm."""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer import Exit

from cli.cluster import jobs as job_progress
from cli.cluster.jobs import JobState
from cli.commands.jobs import job_cluster
from cli.commands.jobs.job_cluster import JobCluster
from cli.commands.jobs.mlperf import Benchmark, prepare, run
from cli.commands.jobs.mlperf_report import report
from cli.errors import CliError
from cluster.jobs.mlperf import NEEDED_FILES
from tests.cluster.report.mlperf_logs import blocks, event, preamble, reference, text
from tests.cluster.stacks import ROOT, config

GOOD = f"folder\nwritable\ndf {3 * 1024**4} /mlperf-sd\n"
SD = Benchmark.STABLE_DIFFUSION


@dataclass
class StandIn:
    """Jobs of a cluster: what is submitted ends after some looks, with the states that a test gives."""

    folder: Path
    sight: str = GOOD
    queue: str = ""
    ends: Mapping[str, str] = field(default_factory=dict)
    """Last states by the job's name; COMPLETED otherwise."""
    stack: str = "nebius"
    user: str = "alice"
    submitted: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    looks: int = 0
    interrupts: bool = False
    log: Callable[[int], list[str]] = lambda _look: []

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
            return self.sight
        if line.startswith("squeue"):
            return self.queue
        if line.startswith("tail"):
            return "Transferred: 5 GiB / 10 GiB, 50%\n"
        if line.startswith(("scontrol", "if [ -f ")):
            return "" if "/none.out" in line else "/mlperf-sd/logs/101_train_02x08x08.out\n"
        if "grep -anE" in line:
            file = self.folder / "log"
            file.write_bytes(text(self.log(self.looks)))
            done = subprocess.run(
                ["bash", "-c", re.sub(r" /mlperf-sd/\S+", f" {file}", line)], capture_output=True, text=True, check=True
            )
            return done.stdout
        if "rm -f" in line:
            self.removed.append(line)
        else:
            assert line.startswith("mkdir -p ")
        return ""

    def wait(self, ids: Iterator[str], on_change, seconds: float | None = None) -> Mapping[str, JobState]:
        self.looks += 1
        if self.interrupts and self.looks > 2:
            raise KeyboardInterrupt
        found = {}
        for number in ids:
            name = self._name(number)
            state = ["PENDING", "RUNNING", self.ends.get(name, "COMPLETED")][min(self.looks, 3) - 1]
            reason = "Priority" if state == "PENDING" else ""
            found[number] = JobState(id=number, state=state, reason=reason, nodes="worker-0", exit_code="1:0")
        on_change(found)
        return found

    def _name(self, number: str) -> str:
        index = int(number) - 101
        if not 0 <= index < len(self.submitted):
            return ""
        found = re.search(r"--job-name=(\S+)", self.submitted[index][0])
        return found[1] if found else ""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path)
    place = JobCluster(jobs=made, config=config("nebius"))  # type: ignore[arg-type]
    monkeypatch.setattr(job_cluster, "read_cluster", lambda _stack, _user: place)
    return made


class TestPrepare:
    def test_its_jobs_are_submitted_and_waited_for(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        prepare("nebius", SD)
        assert [options for _, options in jobs.submitted] == [{}, *[{"dependency": "singleton,afterok:101"}] * 3]
        told = capsys.readouterr().err
        assert "mlperf-sd-code: job 101\n" in told
        assert "mlperf-sd-dataset: pending (Priority)\n" in told
        assert "mlperf-sd-dataset: running on worker-0\n" in told
        assert told.count("mlperf-sd-dataset: Transferred: 5 GiB / 10 GiB, 50%\n") == 1
        assert told.endswith("Next: ./hpc mlperf run nebius stable-diffusion --data /mlperf-sd --nodes N\n")

    def test_what_a_run_needs_besides_is_named(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        prepare("nebius", Benchmark.GPT3, checkpoint="/models/gpt3", image="r.example#a/b:1")
        options = "--data /gpt3 --image r.example#a/b:1 --checkpoint /models/gpt3 --nodes N"
        assert capsys.readouterr().err.endswith(f"Next: ./hpc mlperf run nebius gpt3 {options}\n")

    def test_jobs_that_are_in_the_queue_are_waited_for(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        jobs.queue = (
            "mlperf-sd-dataset|77|/mlperf-sd|Priority\nother|78|(null)|None\nmlperf-sd-image|79|/another|None\n"
            "mlperf-sd-checkpoint|80|/mlperf-sd|DependencyNeverSatisfied\n"
        )
        prepare("nebius", SD)
        assert len(jobs.submitted) == 3
        assert jobs.cancelled == ["80"], "it waits for a job that has failed"
        assert all("#SBATCH --comment=/mlperf-sd\n" in script for script, _ in jobs.submitted)
        assert "mlperf-sd-dataset: job 77 is in the queue already" in capsys.readouterr().err

    def test_a_failed_job_is_shown_with_the_end_of_its_log(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        jobs.ends = {"mlperf-sd-dataset": "FAILED"}
        with pytest.raises(CliError, match=r"^mlperf-sd-dataset failed\. Run the command again"):
            prepare("nebius", SD)
        assert "mlperf-sd-dataset, job 102, failed. The end of its log:\nTransferred" in capsys.readouterr().err

    def test_an_interrupt_leaves_the_jobs(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        jobs.interrupts = True
        with pytest.raises(Exit):
            prepare("nebius", SD)
        assert "The jobs go on: mlperf-sd-code, " in capsys.readouterr().err
        assert jobs.cancelled == []

    def test_a_folder_that_is_missing_submits_nothing(self, jobs: StandIn):
        jobs.sight = "none\n"
        with pytest.raises(CliError, match="install -d -o alice /mlperf-sd"):
            prepare("nebius", SD)
        assert jobs.submitted == []

    def test_files_that_are_gone_are_looked_for_again(self, jobs: StandIn):
        prepare("nebius", SD)
        assert jobs.removed == []
        jobs.sight = f"{GOOD}missing checkpoints/sd/512-base-ema.ckpt\n"
        prepare("nebius", SD)
        (line,) = jobs.removed
        folder = jobs.folder / "mlperf-sd"
        (folder / ".hpc").mkdir(parents=True)
        for name in ("code", "copy-sd-data", "image-x.sqsh", "mlperf-sd-code-1.out"):
            (folder / ".hpc" / name).touch()
        subprocess.run(["bash", "-c", line.replace("/mlperf-sd", str(folder))], check=True)
        assert [one.name for one in (folder / ".hpc").iterdir()] == ["mlperf-sd-code-1.out"]

    def test_storage_that_is_small_is_a_warning(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        jobs.sight = f"folder\nwritable\ndf {10**12} /\n"
        prepare("nebius", SD)
        told = capsys.readouterr().err
        assert "warning: --data /mlperf-sd: its file system has 931 GiB, and the guide plans 2048 GiB" in told
        assert "warning: --data /mlperf-sd: the folder is on the file system of /" in told

    def test_a_dry_run_prints_what_would_be_submitted(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        prepare("nebius", SD, data="/data", dry_run=True)
        shown = capsys.readouterr().out
        golden = ROOT / "tests/golden/mlperf/nebius"
        for name in ("mlperf-sd-code.sh", "mlperf-sd-dataset.sh", "mlperf-sd-image.sh"):
            assert (golden / name).read_text() in shown.replace("\n\n=====", "\n=====")
        assert jobs.submitted == []


class TestRun:
    def test_intervals_are_shown_as_they_come_and_then_the_report(
        self, jobs: StandIn, capsys: pytest.CaptureFixture[str]
    ):
        jobs.log = lambda look: [[], reference()[: -30 - 6], reference()][min(look, 3) - 1]
        run("nebius", SD, nodes=2)
        printed = capsys.readouterr()
        assert printed.out.startswith(" interval |     steps     |")
        assert " AVG: 20.51s <= 21.38s (target for 2xH100 GPU)\n" in printed.out
        lines = [line for line in printed.err.splitlines() if "steps" in line]
        assert lines[0] == "job 101: steps 0-100: 23.62 s"
        assert len(lines) == 10
        assert jobs.written == ["/opt/apps/hpc/env.sh"]

    def test_a_slow_run_fails(self, jobs: StandIn, tmp_path: Path):
        jobs.log = lambda _look: [*preamble(), *blocks([25_000] * 3)]
        with pytest.raises(Exit) as raised:
            run("nebius", SD, nodes=2, png=tmp_path / "x.png")
        assert raised.value.exit_code == 1
        assert (tmp_path / "x.png").exists()

    @pytest.mark.parametrize(("state", "code"), [("TIMEOUT", 0), ("FAILED", 1), ("NODE_FAIL", 1)])
    def test_a_job_that_failed_fails_whatever_its_times(self, jobs: StandIn, state: str, code: int):
        jobs.log, jobs.ends = lambda _look: reference(), {"mlperf-train_02x08x08": state}
        with pytest.raises(Exit) if code else nullcontext() as raised:
            run("nebius", SD, nodes=2)
        assert (raised.value.exit_code if raised else 0) == code

    def test_a_job_without_a_log_is_an_error_with_its_end(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        jobs.ends = {"mlperf-train_02x08x08": "FAILED"}
        with pytest.raises(CliError, match=r"/mlperf-sd/logs/101_train_02x08x08\.out is empty"):
            run("nebius", SD, nodes=2)
        jobs.log, jobs.looks = lambda _look: ["srun: error: no container"], 0
        with pytest.raises(CliError, match="has no line with :::MLLOG: it is no log"):
            run("nebius", SD, nodes=2)
        assert "Job 101 ended as FAILED. The end of its log:\nTransferred" in capsys.readouterr().err

    def test_an_interrupt_says_how_to_go_on(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        jobs.interrupts = True
        with pytest.raises(Exit) as raised:
            run("nebius", SD, nodes=2)
        assert raised.value.exit_code == 130
        told = capsys.readouterr().err
        assert "./hpc mlperf report 101 --stack nebius --data /mlperf-sd --as alice" in told
        assert "./hpc run nebius --as alice -- scancel 101" in told
        assert jobs.cancelled == []

    def test_a_login_machine_that_stays_away_leaves_the_jobs(self, jobs: StandIn, monkeypatch: pytest.MonkeyPatch):
        def lost(*_: object) -> None:
            raise CliError("login: does not answer")

        monkeypatch.setattr(job_progress, "_LOST_SECONDS", -1.0)
        monkeypatch.setattr(jobs, "wait", lost)
        with pytest.raises(CliError, match=r"answer\nJob 101 goes on by itself\. Report it with: \./hpc mlperf"):
            run("nebius", SD, nodes=2)
        with pytest.raises(CliError, match=r"answer\nThe jobs go on: mlperf-sd-code, .* Run the command again"):
            prepare("nebius", SD)
        assert jobs.cancelled == []

    def test_what_is_not_prepared_is_named(self, jobs: StandIn):
        jobs.sight = GOOD + "".join(f"missing {one}\n" for one in NEEDED_FILES["stable_diffusion"])
        with pytest.raises(CliError) as raised:
            run("nebius", SD, nodes=2)
        assert "without training/stable_diffusion/run_and_time.sh and 8 more" in str(raised.value)
        assert "./hpc mlperf prepare nebius stable-diffusion --data /mlperf-sd" in str(raised.value)
        assert jobs.submitted == []

    def test_without_waiting_it_says_how_to_report(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        run("nebius", SD, nodes=2, no_wait=True)
        assert "Report it with: ./hpc mlperf report 101 --stack nebius" in capsys.readouterr().err
        assert jobs.looks == 0


class TestReportOfACluster:
    def test_a_path_that_is_no_file_is_not_called_empty(
        self, jobs: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        with pytest.raises(CliError, match=r"/mlperf-sd/none\.out is no file on the cluster that alice can read"):
            report("/mlperf-sd/none.out", stack="nebius")
        jobs.log = lambda _look: reference()
        report("/mlperf-sd/there.out", stack="nebius")
        monkeypatch.setattr(jobs, "run", lambda line, _seconds=60: "/bobs/1.out\n" if "scontrol" in line else "")
        with pytest.raises(CliError, match=r"/bobs/1\.out is no file on the cluster that alice can read"):
            report("1", stack="nebius")
        assert " AVG: 20.51s" in capsys.readouterr().out

    def test_a_job_is_reported_with_the_lines_of_its_log(self, jobs: StandIn, capsys: pytest.CaptureFixture[str]):
        bad = ":::MLLOG hello"
        jobs.log = lambda _look: [*reference(), bad, event(1, "run_stop")[:-10]]
        report("101", stack="nebius")
        printed = capsys.readouterr()
        assert " AVG: 20.51s <= 21.38s (target for 2xH100 GPU)\n" in printed.out
        line = len(reference()) + 1
        assert f"note: line {line} is left out, and 1 more lines: :::MLLOG has no JSON object.\n" in printed.err

    def test_a_job_that_nobody_knows_is_an_error(self, jobs: StandIn, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(jobs, "run", lambda _line, _seconds=60: "")
        with pytest.raises(CliError, match="no log of job 9 is in /mlperf-sd/logs or /gpt3/logs"):
            report("9", stack="nebius")
        with pytest.raises(CliError, match="'x;y' is no job"):
            report("x;y", stack="nebius")
