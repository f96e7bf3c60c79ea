"""The bench can be started, and what it has measured is shown as it was."""

import os
from pathlib import Path

import pytest

from cluster.load import parse
from tests import programs
from tests.bench import __main__ as program
from tests.bench.__main__ import Result, main, page
from tests.bench.cases import CASES, Answer, Case
from tests.bench.clusters import Bench, Goal, free_network, ratio, sized


def answered(_bench: Bench) -> Answer:
    return {"ours": [3.0, 1.0, 2.0], "manually": [4.0, 4.0, 5.0]}, [Goal("up with 32 nodes", 70.0, 60.0)]


def broken(bench: Bench) -> Answer:
    bench.call("sh", "-c", "echo no disk; exit 1")
    raise AssertionError("not reached")


UP, BROKEN = Case("First `up`", answered), Case("Jobs <fast>", broken)


class TestNumbers:
    def test_a_ratio_is_the_median_of_the_rounds(self) -> None:
        """A round in which all was slow does not count for more."""
        assert ratio((1, 20, 1), (2, 40, 2)) == 0.5

    def test_a_goal_is_met_below_its_limit_only(self) -> None:
        assert [Goal("x", value, 1.0).met for value in (0.9, 1.0, 1.1)] == [True, False, False]


class TestPage:
    def test_has_machine_goals_and_problems(self) -> None:
        results = [Result(UP, *answered(Bench(Path(), quick=True))), Result(BROKEN, {}, [], "sbatch failed\nmore")]
        text = page(results)
        assert f"GiB of memory, Linux {os.uname().release}, " in text
        assert "| up with 32 nodes | 70.0 s | under 60.0 s | MISSED |" in text
        assert "| manually | 4.0 s | 4.0 s to 5.0 s | 3 |" in text
        assert text.endswith("## Jobs <fast>\n\nNo answer: sbatch failed\n")

    def test_has_no_host_name(self) -> None:
        assert os.uname().nodename not in program.machine().split()


class TestCalls:
    def test_a_failed_command_has_the_end_of_its_output(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, quick=True)
        with pytest.raises(RuntimeError, match=r"failed \(3\):\ngone"):
            bench.call("sh", "-c", "echo gone >&2; exit 3")
        assert bench.call("cat", stdin="typed")[1] == "typed"

    @pytest.mark.parametrize("nodes", [2, 64])
    def test_its_clusters_are_valid(self, nodes: int) -> None:
        network = {"network": {"cidr": free_network("n")}}
        assert parse({"hpc:cluster": {"platform": "local", "name": "n", **network, **sized(nodes)}})


class TestMeasure:
    def test_a_failed_case_is_reported_and_the_next_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(program, "PLACE", tmp_path / "place")
        found = list(program.measure([BROKEN, UP], quick=True, say=lambda _text: None))
        assert [bool(result.problem) for result in found] == [True, False]
        assert "no disk" in found[0].problem
        assert not (tmp_path / "place").exists()


class TestCommand:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["speed"], f"there is no case 'speed'. There are: {', '.join(CASES)}."),
            (["--quick", "--write"], "--write needs full rounds of all cases"),
            (["noop", "--write"], "--write needs full rounds of all cases"),
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
