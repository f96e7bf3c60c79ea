"""The bench can be started, and what it has measured is shown as it was."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from cluster.load import parse
from tests import programs
from tests.bench import cases, report
from tests.bench.__main__ import main
from tests.bench.cases import CASES, Answer, Case, CommandError, Environment, free_network, sized
from tests.bench.report import Claim, Report, Result, Series, ratio

UP = Result(
    case="up",
    title="First `up`",
    series=(Series(name="ours", values=(3.0, 1.0, 2.0)), Series(name="manually", values=(4.0, 4.0, 5.0))),
    claims=(Claim(what="up to by hand", value=0.4, limit=1.0, unit="x"),),
    seconds=30,
)
NODES = Result(
    case="nodes",
    title="By number of nodes",
    series=(Series(name="2 nodes", values=(8.0, 9.0)), Series(name="32 nodes", values=(70.0,))),
    claims=(Claim(what="up with 32 nodes", value=70.0, limit=60.0),),
)
BROKEN = Result(case="jobs", title="Jobs <fast>", problem="sbatch failed\nmore")
MACHINE = {"processor": "A <CPU> & more", "cores": "2", "memory": "4 GiB", "kernel": "Linux 6"}
MACHINE |= {"distribution": "Debian", "python": "3.11"}
REPORT = Report(machine=MACHINE, date="2026-01-02", results=(UP, NODES, BROKEN))


class TestNumbers:
    def test_a_ratio_is_the_median_of_the_rounds(self) -> None:
        """A round in which all was slow does not count for more."""
        slow = ratio(Series(name="a", values=(1, 20, 1)), Series(name="b", values=(2, 40, 2)))
        assert slow == 0.5

    def test_a_claim_is_met_below_its_limit_only(self) -> None:
        assert [Claim(what="x", value=value, limit=1.0).met for value in (0.9, 1.0, 1.1)] == [True, False, False]
        assert [result.ok for result in REPORT.results] == [True, False, False]


class TestReport:
    def test_survives_json(self) -> None:
        assert Report.from_json(json.loads(json.dumps(asdict(REPORT)))) == REPORT

    def test_page_has_machine_and_goals(self) -> None:
        text = report.page(REPORT)
        assert "2026-01-02: A <CPU> & more, 2 cores, 4 GiB of memory, Linux 6, Debian, Python 3.11." in text
        assert "| up with 32 nodes | 70.0 s | under 60.0 s | MISSED |" in text
        assert "| manually | 4.0 s | 4.0 s to 5.0 s | 3 |" in text
        assert "No answer: sbatch failed" in text

    def test_description_has_no_host_name(self) -> None:
        told = report.description()
        assert set(told) == set(MACHINE)
        assert all(told.values())
        assert os.uname().nodename not in "".join(told.values()).split()


class TestEnvironment:
    def test_a_failed_command_has_the_end_of_its_output(self, tmp_path: Path) -> None:
        here = Environment(root=tmp_path, quick=True, say=print)
        with pytest.raises(CommandError, match=r"failed \(3\):\ngone"):
            here.call(["sh", "-c", "echo gone >&2; exit 3"])
        assert here.call(["cat"], stdin="typed") == "typed"
        assert not here.running

    @pytest.mark.parametrize("nodes", [2, 64])
    def test_its_clusters_are_valid(self, nodes: int) -> None:
        network = {"network": {"cidr": free_network("n")}}
        assert parse({"hpc:cluster": {"platform": "local", "name": "n", **network, **sized(nodes)}})


class TestRunner:
    def test_a_failed_case_is_reported_and_the_next_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cases, "PLACE", tmp_path / "place")

        def broken(here: Environment) -> Answer:
            here.call(["sh", "-c", "echo no disk; exit 1"])
            raise AssertionError("not reached")

        asked = [
            Case(name="one", title="One", run=broken),
            Case(name="two", title="Two", run=lambda _here: ([*UP.series], [*UP.claims])),
        ]
        found = cases.run(asked, quick=True, say=lambda _text: None)
        assert [(result.case, result.ok) for result in found.results] == [("one", False), ("two", True)]
        assert "no disk" in found.results[0].problem
        assert not (tmp_path / "place").exists()


class TestCommand:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["speed"], f"there is no case 'speed'. There are: {', '.join(case.name for case in CASES)}."),
            (["--quick", "--write"], "--write: not allowed with argument --quick"),
        ],
    )
    def test_what_it_does_not_measure_is_refused(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert message in capsys.readouterr().err

    def test_the_script_refuses_unknown_actions(self) -> None:
        script = Path(__file__).with_name("by-hand.sh")
        done = programs.run([str(script), "sideways", "a", "b", "c"])
        assert done.returncode == 2
        assert done.stderr.startswith("usage: by-hand.sh up|down FOLDER NAME CIDR")
