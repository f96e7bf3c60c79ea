"""`nccl build` and `nccl run`. ssh runs the command line on this machine; Slurm's commands are stand-ins."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.cluster import jobs
from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cli.stack import project
from cluster.config import ClusterConfig
from cluster.load import parse as parse_stack
from components.deploy import config_text
from scripts.node.slurm.job_reasons import REASONS
from scripts.node.slurm.jobs import Job
from scripts.node.slurm.nodes import Node, parse_states
from tests.cli.cluster.test_jobs import row
from tests.cli.conftest import OUTPUTS, Ended, Hpc, patch_outputs
from tests.cluster.report.nccl_logs import GIB, log, measured
from tests.cluster.stacks import ROOT, config, load

Tool = Callable[[str, str], Path]
LOG = """\
# hpc: machine_type=a3-megagpu-8g nodes=2 collective=all_gather
==> nodes: n-[0-1]
==> warm-up
==> test: all_gather_perf
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608        131072     float    none      -1    349.2   24.02   22.52    N/A    347.0   24.18   22.67    N/A
  8589934592     134217728     float    none      -1    42783  200.78  188.23    N/A    42777  200.81  188.26    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 105.42
#
"""


def outputs(cluster: ClusterConfig) -> dict[str, Any]:
    return {**OUTPUTS, "cluster": cluster.name, "config": config_text(cluster)}


class Site:
    """A cluster whose login machine is a folder of this machine."""

    def __init__(self, folder: Path, tool: Tool) -> None:
        self.home, self.tool, self.folder = folder / "login", tool, folder
        (self.home / "nccl/logs").mkdir(parents=True)
        tool("ssh", f'cd {self.home}; for word; do last=$word; done; HOME={self.home} exec bash -c "$last"')
        tool("runuser", f'echo "$2" >>{folder}/as; exec bash -c "$4"')
        tool("sbatch", f'cat >{folder}/script; printf %s "$*" >{folder}/options; echo 7')
        tool("scancel", f'echo "$@" >>{folder}/cancelled')
        self.states("COMPLETED")

    def states(self, *states: str, code: str = "0:0") -> None:
        """Set the states that squeue prints of job 7, one after another. No job is found by its name."""
        for number, state in enumerate(states):
            line = row("7", state, code, "0:09", "Resources", "n-[0-1]")
            (self.folder / f"squeue-{number}").write_text(line + "\n")
        self.tool(
            "squeue",
            f'cd {self.folder}; case "$*" in *--name=*) cat queued 2>/dev/null; exit 0 ;; esac\n'
            f"n=$(cat n 2>/dev/null || echo 0); cat squeue-$n; [ $n -ge {len(states) - 1} ] || echo $((n + 1)) >n",
        )

    def built(self) -> None:
        (self.home / "nccl/nvidia+pytorch+24.04-py3.sqsh").write_text("image")
        program = self.home / "nccl/nccl-tests-2.13.11-24.04-py3/build/all_reduce_perf"
        program.parent.mkdir(parents=True)
        program.write_text("program")

    def log(self, text: str, name: str = "7.log") -> None:
        (self.home / "nccl/logs" / name).write_text(text)

    def run(self, hpc: Hpc, *more: str) -> Ended:
        """Run `nccl run` as a user who has built the programs."""
        self.built()
        return hpc("nccl", "run", "a3mega", *more)

    @property
    def script(self) -> str:
        return (self.folder / "script").read_text()

    @property
    def submitted(self) -> bool:
        return (self.folder / "script").exists()


@pytest.fixture
def site(root: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The stack a3mega is up."""
    patch_outputs(monkeypatch, outputs(config("a3mega")))
    monkeypatch.setattr(jobs, "FOLDER", str(tmp_path / "apps"))
    monkeypatch.setattr("cli.cluster.jobs.ENV", str(tmp_path / "apps/env.sh"))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return Site(tmp_path, tool)


class TestBuild:
    def test_progress_is_printed_and_the_environment_is_written(self, hpc: Hpc, site: Site, tmp_path: Path):
        site.states("PENDING", "RUNNING", "RUNNING", "COMPLETED")
        site.log("noise\n==> image: importing\n==> nccl-tests: building\n", "7-build.log")
        ended = hpc("nccl", "build", "a3mega")
        assert ended.code == 0
        assert ended.out == (
            "Built nccl-tests 2.13.11 in nvidia/pytorch:24.04-py3, in nccl/nccl-tests-2.13.11-24.04-py3 of alice.\n"
            "Next: ./hpc nccl run a3mega\n"
        )
        assert [line.partition("] ")[2] for line in ended.err.splitlines()] == [
            f"job 7 is pending (Resources): {REASONS['Resources']}",
            "job 7 runs on n-[0-1]",
            "image: importing",
            "nccl-tests: building",
        ]
        assert site.script.startswith("#!/bin/bash\n# Imports nvidia/pytorch:24.04-py3")
        assert "_hpc_tcpxo" in (tmp_path / "apps/env.sh").read_text()
        assert set((tmp_path / "as").read_text().split()) == {"alice"}

    @pytest.mark.parametrize(
        ("stack", "said"),
        [
            ("a3mega", "are there: nccl-tests 2.13.11"),
            ("nebius", "The nodes have nccl-tests: there is nothing to build. Next: ./hpc nccl run nebius\n"),
        ],
    )
    def test_an_existing_build_is_not_built_again(
        self, hpc: Hpc, site: Site, monkeypatch: pytest.MonkeyPatch, stack: str, said: str
    ):
        site.built()
        patch_outputs(monkeypatch, outputs(config(stack)))
        ended = hpc("nccl", "build", stack)
        assert (ended.code, said in ended.out, site.submitted) == (0, True, False)

    def test_a_running_build_is_waited_for(self, hpc: Hpc, site: Site):
        (site.folder / "queued").write_text("7\n")
        ended = hpc("nccl", "build", "a3mega", "--as", "bob")
        assert ended.code == 0, ended.err
        assert "Job 7 of an earlier command is building; waiting for it." in ended.err
        assert not site.submitted
        assert set((site.folder / "as").read_text().split()) == {"bob"}

    def test_a_failed_build_is_printed_with_the_end_of_its_log(self, hpc: Hpc, site: Site):
        site.states("FAILED", code="1:0")
        site.log("\n".join(f"line {number}" for number in range(100)) + "\n\x1b]0;evil\x07", "7-build.log")
        ended = hpc("nccl", "build", "a3mega")
        assert ended.error.startswith("error: job 7 ended as FAILED (exit code 1:0) on n-[0-1]. The end of nccl/logs/")
        assert "line 99" in ended.err
        assert "line 50" not in ended.err
        assert "\x1b" not in ended.err
        assert ended.err.endswith("What was imported stays. To go on: ./hpc nccl build a3mega --as alice\n")


class TestRun:
    def test_the_log_is_saved_and_sizes_are_shown_as_they_come(self, hpc: Hpc, site: Site):
        site.states("RUNNING", "RUNNING", "COMPLETED")
        site.log(LOG)
        ended = site.run(hpc)
        assert Path("nccl-a3mega-all_gather-7.log").read_text() == LOG
        assert ended.out.startswith("Saved nccl-a3mega-all_gather-7.log\n")
        assert "average busbw of all rows: 105.42 GB/s" in ended.out
        assert ended.code == 0
        assert "Job 7 of alice: all_gather on 2 a3-megagpu-8g, partition a3mega\n" in ended.err
        shown = [line.partition("] ")[2] for line in ended.err.splitlines()]
        assert "         8 MiB     22.52 GB/s" in shown
        assert "     8,192 MiB    188.23 GB/s" in shown
        assert len(shown) == len(set(shown))

    def test_options_reach_the_job(self, hpc: Hpc, site: Site):
        site.log(LOG)
        line = "--nodelist a3mega-1 --collective all_reduce --min 1M --max 2G --iters 7 --check -o x.log"
        site.run(hpc, *line.split())
        assert "#SBATCH --nodes=1\n" in site.script
        assert "#SBATCH --nodelist=a3mega-a3mega-1\n" in site.script
        assert "arguments=(-b 1M -e 2G -f 2 -g 1 -w 5 -n 7 -c 1)\n" in site.script
        assert '/all_reduce_perf"' in site.script
        assert Path("x.log").exists()

    def test_without_a_build_the_command_to_build_is_named(self, hpc: Hpc, site: Site):
        ended = hpc("nccl", "run", "a3mega")
        assert ended.err == "error: alice has no NCCL test yet. Build it with: ./hpc nccl build a3mega --as alice\n"
        assert not site.submitted

    def test_all_errors_of_the_options_are_reported_together(self, hpc: Hpc, site: Site):
        line = (
            "--nodes 3 --nodelist a3mega-[0-5] --collective allgather --min 4G --max 1G --over fabric --binaries $(id)"
        )
        ended = site.run(hpc, *line.split(), "--binaries", "$(id)")
        for part in (
            "has no node 'a3mega-5' with GPUs",
            "--nodes 3: partition a3mega has 2",
            "Did you mean all_gather?",
            "--min 4G is more than --max 1G",
            "--over fabric: on 3 nodes",
            "--binaries '$(id)'",
        ):
            assert part in ended.error
        assert not site.submitted

    @pytest.mark.parametrize(
        ("line", "error"),
        [
            ("--partition gpu", "stack a3mega has no partition 'gpu'. There are: a3mega, debug."),
            ("--partition debug", "has no GPUs, and NCCL moves data between GPUs. These have some: a3mega."),
            ("--nodes 1 --over fabric", "needs InfiniBand. GPUDirect-TCPXO runs for jobs on two nodes and"),
            ("--nodelist a[0-", "--nodelist a[0-:"),
            ("--min 8MB", "--min '8MB': a number of bytes is expected, with K, M or G for their 1024s: 8M."),
            ("-o x.log", "x.log: is there already, and is not overwritten"),
            ("--output none/x.log", "is no folder that you can write to. Name another file with --output."),
            ("--output /proc/x/x.log", "is no folder that you can write to. Name another file with --output."),
            ("--pairs --nodes 4 -o x.log", "--pairs goes without --nodes, --output. --nodelist names the nodes to"),
        ],
    )
    def test_wrong_options_are_refused(self, hpc: Hpc, site: Site, line: str, error: str):
        Path("x.log").write_text("mine")
        ended = site.run(hpc, *line.split())
        assert (ended.code, error in ended.err, site.submitted) == (1, True, False), ended.err

    def test_ctrl_c_cancels_the_job(self, hpc: Hpc, site: Site, monkeypatch: pytest.MonkeyPatch):
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Jobs, "wait", interrupt)
        ended = site.run(hpc)
        assert ended.code == 130
        assert (site.folder / "cancelled").read_text() == "--quiet 7\n"
        assert ended.err.endswith("Job 7 was cancelled.\nInterrupted.\n")

    def test_a_short_failure_of_the_login_machine_is_retried(self, hpc: Hpc, site: Site, tool: Tool):
        site.log(LOG)
        first = (site.folder / "bin/squeue").read_text()
        tool("squeue", f"[ -e {site.folder}/away ] || {{ touch {site.folder}/away; exit 255; }}\n{first}")
        ended = site.run(hpc)
        assert Path("nccl-a3mega-all_gather-7.log").exists()
        assert ended.err.count("Trying again for 120 s.") == 1

    def test_a_login_machine_that_does_not_answer_cancels_no_job(
        self, hpc: Hpc, site: Site, tool: Tool, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(jobs, "_LOST_SECONDS", -1.0)
        tool("squeue", "exit 1")
        assert "Job 7 goes on by itself. When it has ended: ./hpc nccl report 7 --stack a3mega\n" in site.run(hpc).error
        assert not (site.folder / "cancelled").exists()


class TestDryRun:
    @pytest.mark.parametrize("command", ["build", "run"])
    def test_the_job_script_of_a_stack_that_is_not_up_is_printed(
        self, hpc: Hpc, root: Path, monkeypatch: pytest.MonkeyPatch, command: str
    ):
        monkeypatch.setattr(project, "ROOT", ROOT)
        ended = hpc("nccl", command, "a3mega", "--dry-run")
        golden = (ROOT / f"tests/golden/jobs/a3mega-{command}.sh").read_text()
        assert (ended.code, ended.out, ended.err) == (0, golden, "")

    def test_a_rehearsal_is_refused(self, hpc: Hpc, root: Path, monkeypatch: pytest.MonkeyPatch):
        patch_outputs(monkeypatch, outputs(config("dev")))
        for command in ("build", "run"):
            ended = hpc("nccl", command, "dev")
            assert "stack dev is a rehearsal: its GPUs are device files, which compute nothing" in ended.error

    def test_a_stack_without_gpus_is_refused(self, hpc: Hpc, root: Path):
        ended = hpc("nccl", "run", "dev", "--dry-run")
        assert ended.err == "error: stack dev has no GPUs, and NCCL moves data between GPUs.\n"


class TestFailures:
    def test_the_log_of_a_failed_job_is_saved(self, hpc: Hpc, site: Site):
        site.states("FAILED", code="1:0")
        site.log("==> warm-up\nthe warm-up failed\n")
        ended = site.run(hpc)
        assert (
            "job 7 ended as FAILED (exit code 1:0) on n-[0-1]. Its log is nccl-a3mega-all_gather-7.log" in ended.error
        )
        assert Path("nccl-a3mega-all_gather-7.log").exists()

    def test_wrong_results_of_a_failed_job_are_reported(self, hpc: Hpc, site: Site):
        """nccl-tests ends with exit code 1 after wrong results (src/common.cu)."""
        site.states("FAILED", code="1:0")
        site.log(LOG.replace("    N/A    347.0", "     12    347.0").replace("values : 0 OK", "values : 12 FAILED"))
        ended = site.run(hpc, "--check")
        assert ended.error.rstrip().endswith(
            "error: job 7 ended as FAILED (exit code 1:0) on n-[0-1]. What it measured until then:"
        )
        assert "Result: fail" in ended.out
        assert "Wrong results: 12 wrong elements at 8 MiB" in ended.out

    def test_rows_of_a_job_with_a_timeout_are_reported(self, hpc: Hpc, site: Site):
        site.states("TIMEOUT", code="0:15")
        site.log(LOG.partition("  8589934592")[0])
        ended = site.run(hpc, "--json")
        document = json.loads(ended.out)
        assert [row["size"] for row in document["runs"][0]["rows"]] == [8 << 20]
        assert "nccl-truncated" in [finding["id"] for finding in document["findings"]]
        assert "job 7 ended as TIMEOUT" in ended.error

    def test_a_cancelled_job_has_no_log(self, hpc: Hpc, site: Site):
        site.states("CANCELLED")
        ended = site.run(hpc)
        assert ended.err.endswith("ended as CANCELLED (exit code 0:0) on n-[0-1], without a log.\n")
        assert list(Path().iterdir()) == []


NODES = [f"a3mega-a3mega-{number}" for number in range(6)]
PAGE = ROOT / "docs/guides/nccl.md"
MEGA = (185.3, 187.2, 188.2)


class PairsSite:
    """A cluster of six nodes: those in `slow` have a quarter of the bandwidth, and `states` are slurmctld's."""

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.states = dict.fromkeys(NODES, "IDLE")
        self.submitted: list[list[str]] = []
        self.cancelled: list[str] = []
        self.end_state = "COMPLETED"

    def submit(self, script: str, **__: object) -> str:
        numbers = re.search(r"--nodelist=a3mega-a3mega-(?:\[([0-9])[-,]([0-9])\])", script)
        assert numbers
        assert "#SBATCH --nodes=2\n" in script
        self.submitted.append([f"a3mega-a3mega-{number}" for number in numbers.groups()])
        return str(30 + len(self.submitted))

    def wait(self, ids: Mapping[str, object], changed: object, __: float) -> dict[str, Job]:
        states = {job: Job(id=job, state=self.end_state, reason="None", exit_code="0:0", elapsed="9") for job in ids}
        changed(states)  # type: ignore[operator]
        return states

    def run(self, line: str, **__: object) -> str:
        if not (job := re.search(r"logs/([0-9]+)\.log", line)):
            return ""
        nodes = self.submitted[int(job[1]) - 31]
        busbw = [value * (0.25 if self.slow & set(nodes) else 1.0) for value in MEGA]
        facts = "machine_type=a3-megagpu-8g nodes=2 collective=all_gather"
        return log(lines=measured(busbw=busbw, first=2 * GIB), hosts=nodes, facts=facts)


@pytest.fixture
def pairs_site(root: Path, monkeypatch: pytest.MonkeyPatch) -> PairsSite:
    settings = load("a3mega")
    settings["hpc:cluster"]["nodesets"]["a3mega"]["count"] = 6
    patch_outputs(monkeypatch, outputs(parse_stack(settings)))
    site = PairsSite()
    monkeypatch.setattr("cli.commands.jobs.nccl.is_built", lambda *_: True)
    monkeypatch.setattr("cli.cluster.jobs.Jobs.prepare", lambda *_: None)
    monkeypatch.setattr(
        Scheduler,
        "nodes",
        lambda _: {name: Node(name=name, states=parse_states(state)) for name, state in site.states.items()},
    )
    monkeypatch.setattr(Jobs, "cancel", lambda _, ids: site.cancelled.extend(ids))
    for name in ("submit", "wait", "run"):
        method = getattr(site, name)
        monkeypatch.setattr(Jobs, name, lambda _, *args, _method=method, **options: _method(*args, **options))
    return site


def test_a_slow_node_is_named_with_its_figures_and_what_to_do(hpc: Hpc, pairs_site: PairsSite):
    pairs_site.slow = {NODES[2]}
    ended = hpc("nccl", "run", "a3mega", "--pairs")
    text = "a3mega-a3mega-2 is slow: 46.7 GB/s with a3mega-a3mega-3, 46.7 GB/s with a3mega-a3mega-0, where the fastest"
    assert f"\n{text} pair has 186.9.\n  to do: ./hpc nodes a3mega drain a3mega-a3mega-2 --reason nccl;" in ended.out
    assert ended.out.endswith("\nResult: fail, 5 of 6 nodes are sound, after 2 rounds\n")
    assert "round 1: 3 of 3 runs ended, 0 run\n" in ended.error
    assert "round 1: a3mega-a3mega-2, a3mega-a3mega-3: 46.7 GB/s, " in ended.err
    assert pairs_site.submitted[3:] == [[NODES[0], NODES[2]], [NODES[1], NODES[3]]]


def test_sound_nodes_pass_and_json_has_every_pair(hpc: Hpc, pairs_site: PairsSite):
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-3]", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["result"], document["rounds"], document["slow"]) == (0, "pass", 1, [])
    assert [pair["nodes"] for pair in document["pairs"]] == [NODES[:2], NODES[2:4]] == pairs_site.submitted
    assert {round(pair["busbw"], 1) for pair in document["pairs"]} == {186.9}


def test_no_node_is_named_slow_if_all_are(hpc: Hpc, pairs_site: PairsSite):
    pairs_site.slow = set(NODES)
    ended = hpc("nccl", "run", "a3mega", "--pairs")
    assert ended.code == 1
    assert " is slow: " not in ended.out
    assert "Not known: a3mega-a3mega-0, " in ended.out


def test_the_pair_of_a_failed_job_is_slow(hpc: Hpc, pairs_site: PairsSite):
    pairs_site.end_state = "FAILED"
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-1]")
    assert ended.code == 1
    assert "slow: the job ended as FAILED\n" in ended.out


def test_nodes_out_of_service_are_left_out(hpc: Hpc, pairs_site: PairsSite):
    pairs_site.states[NODES[0]] = "IDLE+DRAIN"
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-2]")
    assert ended.code == 0
    assert "a3mega-a3mega-0 is left out: drained.\n" in ended.err
    assert "round 1: all_gather on 1 pair of 2 nodes, jobs 31 of " in ended.err
    assert pairs_site.submitted == [NODES[1:3]]
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-1]")
    assert ended.err.splitlines()[-2] == "error: --pairs: 1 of 2 nodes are in service, and a pair takes two."


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CliError("sbatch: error: no")])
def test_an_error_or_ctrl_c_cancels_the_jobs_of_the_round(
    hpc: Hpc, pairs_site: PairsSite, monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    def wait(*_: object) -> None:
        raise error

    monkeypatch.setattr(jobs, "_LOST_SECONDS", -1.0)
    monkeypatch.setattr(Jobs, "wait", wait)
    ended = hpc("nccl", "run", "a3mega", "--pairs")
    assert ended.code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert pairs_site.cancelled == ["31", "32", "33"]
    assert "Jobs 31, 32, 33 were cancelled.\n" in ended.err


def test_a_dry_run_prints_the_job_of_a_pair(hpc: Hpc, pairs_site: PairsSite):
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--dry-run")
    assert "#SBATCH --nodes=2\n" in ended.out
    assert "#SBATCH --nodelist=a3mega-a3mega-[0-1]\n" in ended.out
    assert not pairs_site.submitted


def test_the_guide_shows_the_output(hpc: Hpc, pairs_site: PairsSite):
    pairs_site.slow = {NODES[2]}
    example = re.search(r"^\$ \./hpc nccl run a3mega --pairs\n((?:.*\n)*?)```", PAGE.read_text("utf-8"), re.MULTILINE)
    assert example
    assert hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-3]").out == example[1]
