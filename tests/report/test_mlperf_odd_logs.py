"""MLPerf logs that are cut short, have several runs or ranks, are in disorder, or are no logs at all."""

import gzip
import io
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.printable import document
from cluster.report.mlperf_log import NotAnMlperfLogError, scan
from cluster.report.mlperf_report import MlperfReport, report_of
from cluster.report.plot import print_plot
from tests.report.mlperf_logs import DURATIONS, FIRST_MS, GUIDE, blocks, event, preamble, reference, text

START = event(FIRST_MS - 875, "run_start")
NEXT_MS = FIRST_MS + 3_600_000


def of(lines: list[str]) -> MlperfReport:
    return report_of(io.BytesIO(text(lines)))


def durations(found: MlperfReport, run: int = 0) -> list[int]:
    return [one.ms for one in found.log.runs[run].intervals]


def test_a_log_cut_within_a_block_says_where() -> None:
    lines = [*preamble(), START, *blocks()][:-1]
    found = of(lines)
    assert durations(found) == list(DURATIONS[:-1])
    line = next(number for number, one in enumerate(lines, 1) if '"step_num": 900' in one and "block_start" in one)
    assert f"the log ends within a block: line {line} starts it at 900, and no block_stop follows" in found.notes()


def test_a_log_cut_within_a_line_says_where() -> None:
    whole = text([*preamble(), START, *blocks()])
    found = report_of(io.BytesIO(whole[:-40]))
    assert durations(found) == list(DURATIONS[:-1])
    assert found.notes()[0] == f"line {len(whole.splitlines())} is left out: :::MLLOG is cut short"


def test_a_run_that_stopped_before_its_training_fails() -> None:
    found = of([*preamble(), START])
    assert found.lines() == [" no training steps"]
    assert found.result == "empty"


def test_two_runs_in_one_file_are_reported_each_and_the_last_one_counts() -> None:
    again = preamble(at=NEXT_MS - 176_000)
    found = of([*reference(), *again, event(NEXT_MS - 875, "run_start"), *blocks([22_000] * 3, at=NEXT_MS)])
    assert [len(run.intervals) for run in found.log.runs] == [10, 3]
    assert [run.ranks for run in found.log.runs] == [16, 16]
    assert [one.result for one in found.comparisons if one] == ["pass", "fail"]
    assert found.result == "fail"
    lines = found.lines()
    assert lines[0] == "Run 1 of 2: Stable Diffusion, from line 2, 2024-07-05 07:11:23 UTC"
    assert "".join(f"{line}\n" for line in lines[1:17]) == GUIDE
    assert lines[18].startswith("Run 2 of 2: Stable Diffusion, from line ")
    assert found.notes()[-1] == "run 2: the log has no end of this run: it goes on still, or was stopped"
    assert [one.name for one in found.curves()[0]] == ["run 1", "run 2", "target for 2xH100"]


def test_a_run_begins_where_the_steps_begin_again() -> None:
    """Only the training was kept of both."""
    found = of([*blocks(DURATIONS[:3]), *blocks(DURATIONS[3:6], at=NEXT_MS)])
    assert [durations(found, run) for run in (0, 1)] == [list(DURATIONS[:3]), list(DURATIONS[3:6])]


def test_a_run_that_goes_on_from_a_checkpoint_in_the_same_file_is_another_run() -> None:
    again = [*preamble(at=NEXT_MS - 176_000), event(NEXT_MS - 1, "run_start"), *blocks([20_000], at=NEXT_MS, first=900)]
    found = of([*reference(), *again])
    assert [one.first for one in found.log.runs[1].intervals] == [900]


@pytest.mark.parametrize("labelled", [True, False])
def test_events_of_several_ranks_count_once(labelled: bool) -> None:
    lines = [*preamble(ranks=1), START]
    for line in blocks():
        lines += [f"{rank}: {_later(line, rank)}" if labelled else _later(line, rank) for rank in range(4)]
    found = of(lines)
    assert durations(found) == list(DURATIONS)
    whose = "of task 0" if labelled else "of the first rank"
    assert f"several ranks wrote blocks: those {whose} count, 60 others are left out" in found.notes()


def _later(line: str, rank: int) -> str:
    """An event of another rank, some milliseconds later."""
    one = json.loads(line.removeprefix(":::MLLOG "))
    return f":::MLLOG {json.dumps({**one, 'time_ms': one['time_ms'] + 7 * rank})}"


def test_ranks_that_write_into_each_others_lines() -> None:
    lines = [line.replace(":::MLLOG", "Deleting key model.out.0.bias :::MLLOG") + "NCCL INFO" for line in blocks()]
    assert durations(of([*preamble(), START, *lines])) == list(DURATIONS)
    glued = "".join(blocks())
    assert durations(of([*preamble(), START, glued])) == list(DURATIONS)


def test_blocks_out_of_order_are_sorted_by_their_steps() -> None:
    lines = [*preamble(), START, *blocks()[9:], *blocks()[:9]]
    found = of(lines)
    assert durations(found) == list(DURATIONS)
    assert any(note.startswith("blocks are out of order at line ") for note in found.notes())


def test_a_clock_that_goes_back_leaves_its_block_out() -> None:
    lines = [*blocks(DURATIONS[:2]), *blocks([-5000], at=FIRST_MS + 44_198, first=200), *blocks([20_000], first=300)]
    found = of([*preamble(), START, *lines])
    assert durations(found) == [*DURATIONS[:2], 20_000]
    assert any("time goes back between line" in note and "block 200-300 is left out" in note for note in found.notes())


def test_ends_without_their_other_end_are_named() -> None:
    lines = blocks()
    found = of([START, *lines[:3], *lines[5:9], *lines[9:11]])
    notes = "\n".join(found.notes())
    assert durations(found) == [DURATIONS[0], DURATIONS[2]]
    assert "line 5 stops a block at 200 that has no block_start" in notes
    assert "line 9 starts it at 300, and no block_stop follows" in notes


UNREADABLE = {
    "no JSON": ("Weight initialization: dict_keys([])", "has no JSON object"),
    "cut": ('{"namespace": "", "key": "block_start"', "is cut short"),
    "a list": ("[1, 2]", "has no key"),
    "no key": ('{"time_ms": 1}', "has no key"),
    "no time": ('{"key": "block_start", "value": "training_step"}', "has no time_ms"),
    "a text as time": ('{"key": "block_start", "time_ms": "1"}', "has no time_ms"),
    "a time of no year": ('{"key": "block_start", "time_ms": 1e300}', "has no time_ms"),
    "no number": ('{"key": "block_start", "time_ms": NaN}', "has no time_ms"),
    "a number too long": ('{"key": "block_start", "time_ms": ' + "9" * 5000 + "}", "is cut short"),
    "nested too deep": ('{"key": ' + "[" * 60_000, "is cut short"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_events_that_cant_be_read_are_left_out_and_named(name: str) -> None:
    given, reason = UNREADABLE[name]
    bad = f":::MLLOG {given}"
    found = of([bad, *preamble(), START, bad, *blocks()])
    assert durations(found) == list(DURATIONS)
    assert found.notes()[0] == f"line 1 is left out, and 1 more lines: :::MLLOG {reason}"


def test_blocks_without_steps_are_left_out_and_named() -> None:
    odd = [event(FIRST_MS, "block_start", "training_step", step_num=value) for value in (None, "1", True, -1)]
    found = of([*odd, *blocks()])
    assert durations(found) == list(DURATIONS)
    assert "line 1 has no step: 4 such events are left out" in found.notes()


NO_LOGS = {
    "empty": (b"", "is empty"),
    "binary": (b"\x7fELF\0\0" * 100, "is a binary file, not the text of a log"),
    "compressed": (gzip.compress(b":::MLLOG"), "is compressed: decompress it first"),
    "another log": (b"# nThread 1\n8388608 22.5\n", "has no line with :::MLLOG: it is no log of an MLPerf"),
    "no event": (b"x\n:::MLLOG hello\n", "has 1 lines with :::MLLOG, and none can be read: in line 2"),
    "one long line": (b"a" * 20_000_000, "has no line with :::MLLOG"),
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_is_no_log_is_refused_with_what_it_is(name: str) -> None:
    given, reason = NO_LOGS[name]
    with pytest.raises(NotAnMlperfLogError) as raised:
        report_of(io.BytesIO(given))
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1" + "0" * 400, "true", '"9"', "null", "[1]"])
def test_values_that_are_no_numbers_are_left_out(value: str) -> None:
    odd = event(FIRST_MS + 1, "eval_accuracy", "HERE", step_num=1).replace('"HERE"', value)
    stats = event(FIRST_MS + 1, "tracked_stats", {"throughput": "HERE"}).replace('"HERE"', value)
    (run,) = of([*reference(), odd, stats]).log.runs
    assert (run.evaluations, run.throughput) == ((), ())


CUTS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 300), st.binary(max_size=20)), max_size=8)
WHOLE = text([*reference(), *preamble(at=NEXT_MS - 9000), event(NEXT_MS - 1, "run_start"), *blocks(at=NEXT_MS)])


@settings(deadline=None, max_examples=200)
@given(cuts=CUTS, twice=st.booleans())
def test_a_damaged_log_is_reported_or_refused(cuts: list[tuple[int, int, bytes]], twice: bool) -> None:
    damaged = WHOLE
    for at, length, new in cuts:
        damaged = damaged[:at] + new + damaged[at + length :]
    try:
        found = report_of(io.BytesIO(damaged * (1 + twice)))
    except NotAnMlperfLogError:
        return
    assert found.result in ("pass", "fail", "none", "empty")
    assert all(one.ms > 0 and one.last > one.first for run in found.comparisons if run for one in run.intervals)
    assert "".join(found.lines() + found.notes()).isprintable()
    json.loads(document(found.document()), parse_constant=pytest.fail)
    curves, _, _ = found.curves()
    if curves:
        print_plot(curves)


def test_lines_are_found_wherever_the_file_is_cut_into_pieces(monkeypatch) -> None:
    whole = text(reference())
    expected = list(scan(io.BytesIO(whole)))
    for size in (7, 64, 1000, 4096):
        monkeypatch.setattr("cluster.report.mlperf_log._CHUNK", size)
        assert list(scan(io.BytesIO(whole))) == expected


def test_what_others_wrote_cant_act_on_the_terminal(tmp_path) -> None:
    file = tmp_path / "log"
    odd = event(FIRST_MS, "eval_accuracy", 1.5, step_num=1, metric="\x1b[2J\u202eFID")
    status = event(FIRST_MS, "status", "\x1b]0;x\x07")
    name = event(FIRST_MS, "submission_benchmark", "\x1b[1mstable\n\rdiffusion")
    file.write_bytes(text([*reference(), odd, status, name]))
    done = subprocess.run([sys.executable, "-m", "cli", "mlperf", "report", file], capture_output=True, check=False)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"evaluation at step 1: \\x1b[2J\\u202eFID 1.5" in done.stdout
    assert rb"no time is published for \x1b[1mstable\n\x0ddiffusion." in done.stderr
    assert done.returncode == 0
