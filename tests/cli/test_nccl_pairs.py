"""`nccl run --pairs`: what is submitted, shown and answered; slurmctld and the login machine are stand-ins."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.cluster.jobs import Jobs, JobState
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cluster.load.parse import parse as parse_stack
from cluster.observe.nodes import Node
from cluster.slurm.node_states import parse
from tests.cli.conftest import Hpc, stand_for_state
from tests.cli.test_nccl_commands import outputs
from tests.cluster.stacks import ROOT, load
from tests.report.nccl_logs import GIB, log, measured

NODES = [f"a3mega-a3mega-{number}" for number in range(6)]
PAGE = ROOT / "docs/guides/nccl.md"
MEGA = (185.3, 187.2, 188.2)


class Site:
    """Six nodes; `slow` have a quarter of the bandwidth, and `states` are slurmctld's."""

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.states = dict.fromkeys(NODES, "IDLE")
        self.submitted: list[list[str]] = []
        self.cancelled: list[str] = []
        self.ends = "COMPLETED"

    def submit(self, script: str, **__: object) -> str:
        found = re.search(r"--nodelist=a3mega-a3mega-(?:\[([0-9])[-,]([0-9])\])", script)
        assert found
        assert "#SBATCH --nodes=2\n" in script
        self.submitted.append([f"a3mega-a3mega-{number}" for number in found.groups()])
        return str(30 + len(self.submitted))

    def wait(self, ids: Mapping[str, object], changed: object, __: float) -> dict[str, JobState]:
        states = {
            one: JobState(id=one, state=self.ends, reason="None", nodes="", exit_code="0:0", elapsed="9") for one in ids
        }
        changed(states)  # type: ignore[operator]
        return states

    def run(self, line: str, **__: object) -> str:
        if not (found := re.search(r"logs/([0-9]+)\.log", line)):
            return ""
        nodes = self.submitted[int(found[1]) - 31]
        busbw = [one * (0.25 if self.slow & set(nodes) else 1.0) for one in MEGA]
        facts = "machine_type=a3-megagpu-8g nodes=2 collective=all_gather"
        return log(lines=measured(busbw=busbw, first=2 * GIB), hosts=nodes, facts=facts)


@pytest.fixture
def site(root: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    settings = load("a3mega")
    settings["hpc:cluster"]["nodesets"]["a3mega"]["count"] = 6
    stand_for_state(monkeypatch, outputs(parse_stack(settings)))
    found = Site()
    monkeypatch.setattr("cli.commands.jobs.nccl_run.is_built", lambda _: True)
    monkeypatch.setattr("cli.commands.jobs.nccl_build.GpuCluster.prepare", lambda _: None)
    monkeypatch.setattr(
        Scheduler,
        "nodes",
        lambda _: {name: Node(name=name, states=parse(state)) for name, state in found.states.items()},
    )
    monkeypatch.setattr(Jobs, "cancel", lambda _, ids: found.cancelled.extend(ids))
    for name in ("submit", "wait", "run"):
        method = getattr(found, name)
        monkeypatch.setattr(Jobs, name, lambda _, *given, _method=method, **more: _method(*given, **more))
    return found


def test_the_slow_node_is_named_with_its_figures_and_what_to_do(hpc: Hpc, site: Site):
    site.slow = {NODES[2]}
    ended = hpc("nccl", "run", "a3mega", "--pairs")
    assert ended.code == 1
    text = "a3mega-a3mega-2 is slow: 46.7 GB/s with a3mega-a3mega-3, 46.7 GB/s with a3mega-a3mega-0, where the fastest"
    assert f"\n{text} pair has 186.9.\n  to do: ./hpc nodes a3mega drain a3mega-a3mega-2 --reason nccl;" in ended.out
    assert ended.out.endswith("\nResult: fail, 5 of 6 nodes are sound, after 2 rounds\n")
    assert "round 1: 3 of 3 pairs ended, 0 run\n" in ended.err
    assert "round 1: a3mega-a3mega-2, a3mega-a3mega-3: 46.7 GB/s, " in ended.err
    assert site.submitted[3:] == [[NODES[0], NODES[2]], [NODES[1], NODES[3]]]


def test_sound_nodes_pass_and_the_document_has_every_pair(hpc: Hpc, site: Site):
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-3]", "--json")
    found = json.loads(ended.out)
    assert (ended.code, found["result"], found["rounds"], found["slow"]) == (0, "pass", 1, [])
    assert [one["nodes"] for one in found["pairs"]] == [NODES[:2], NODES[2:4]] == site.submitted
    assert {round(one["busbw"], 1) for one in found["pairs"]} == {186.9}


def test_where_all_are_slow_no_node_is_blamed(hpc: Hpc, site: Site):
    site.slow = set(NODES)
    ended = hpc("nccl", "run", "a3mega", "--pairs")
    assert ended.code == 1
    assert " is slow: " not in ended.out
    assert "Not known: a3mega-a3mega-0, " in ended.out


def test_a_job_that_fails_makes_its_pair_slow(hpc: Hpc, site: Site):
    site.ends = "FAILED"
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-1]")
    assert ended.code == 1
    assert "slow: the job ended as FAILED\n" in ended.out


def test_nodes_out_of_service_are_left_out(hpc: Hpc, site: Site):
    site.states[NODES[0]] = "IDLE+DRAIN"
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-2]")
    assert ended.code == 0
    assert "a3mega-a3mega-0 is left out: drained.\n" in ended.err
    assert "round 1: all_gather on 1 pair of 2 nodes, jobs 31 of " in ended.err
    assert site.submitted == [NODES[1:3]]
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-1]")
    assert (ended.code, ended.err.splitlines()[-2:]) == (
        1,
        ["error: --pairs: 1 of 2 nodes are in service, and a pair takes two.", "to do: ./hpc status a3mega"],
    )


@pytest.mark.parametrize("broken", [KeyboardInterrupt(), CliError("sbatch: error: no")])
def test_what_ends_it_cancels_the_jobs_of_the_round(
    hpc: Hpc, site: Site, monkeypatch: pytest.MonkeyPatch, broken: BaseException
):
    def wait(*_: object) -> None:
        raise broken

    monkeypatch.setattr("cli.cluster.jobs._LOST_SECONDS", -1.0)
    monkeypatch.setattr(Jobs, "wait", wait)
    ended = hpc("nccl", "run", "a3mega", "--pairs")
    assert ended.code == (130 if isinstance(broken, KeyboardInterrupt) else 1)
    assert site.cancelled == ["31", "32", "33"]
    assert "Jobs 31, 32, 33 were cancelled.\n" in ended.err


def test_options_of_one_run_are_refused(hpc: Hpc, site: Site):
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--nodes", "4", "-o", "x.log")
    assert ended.err == "error: --pairs goes without --nodes, --output. --nodelist names the nodes to pair.\n"
    assert not site.submitted


def test_a_dry_run_prints_the_job_of_a_pair(hpc: Hpc, site: Site):
    ended = hpc("nccl", "run", "a3mega", "--pairs", "--dry-run")
    assert "#SBATCH --nodes=2\n" in ended.out
    assert "#SBATCH --nodelist=a3mega-a3mega-[0-1]\n" in ended.out
    assert not site.submitted


def test_the_page_shows_what_is_printed(hpc: Hpc, site: Site):
    site.slow = {NODES[2]}
    shown = re.search(r"^\$ \./hpc nccl run a3mega --pairs\n((?:.*\n)*?)```", PAGE.read_text("utf-8"), re.MULTILINE)
    assert shown
    assert hpc("nccl", "run", "a3mega", "--pairs", "--nodelist", "a3mega-[0-3]").out == shown[1]
