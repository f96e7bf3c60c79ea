"""Logs that are cut short, torn, of several programs, or no logs at all."""

import contextlib
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nccl_logs import A3_MEGA, FORMATS, SIZES, Cell, Line, log, measured

from cluster.report.nccl.log import NotALogError, read_file, read_text
from cluster.report.nccl.result import Outcome, check
from cluster.report.nccl.table import document_of, lines_of


@given(st.data())
def test_a_log_that_is_cut_short_never_passes(data):
    text = log(facts=A3_MEGA)
    cut = data.draw(st.integers(0, text.index("# Avg bus bandwidth")))
    try:
        whole, part = read_text(text, "x.log"), read_text(text[:cut], "x.log")
    except NotALogError:
        return
    assert check(whole).outcome is Outcome.PASS
    result = check(part)
    assert result.outcome is Outcome.FAIL
    assert "nccl-truncated" in {one.id for one in result.findings}
    full, rest = whole.last.rows, part.last.rows
    assert [row.size for row in rest] == [row.size for row in full][: len(rest)]
    assert rest[:-1] == full[: max(0, len(rest) - 1)]


def mixed(one: str, other: str, seed: int) -> str:
    """Two logs line by line, each in its order."""
    drawn, left = random.Random(seed), [one.split("\n"), other.split("\n")]  # noqa: S311
    order = [0] * len(left[0]) + [1] * len(left[1])
    drawn.shuffle(order)
    return "\n".join(left[which].pop(0) for which in order)


def test_two_programs_in_one_file_are_seen():
    for seed in range(100):
        text = mixed(log(), log(hosts=("a3-2", "a3-3")), seed)
        result = check(read_text(text, "x.log"))
        assert result.outcome is Outcome.FAIL, seed
    text = mixed(log(), log(), 1)
    finding = next(one for one in check(read_text(text, "x.log")).findings if one.id == "nccl-mixed")
    number = int(finding.where.rpartition(":")[2])
    row = text.split("\n")[number - 1].split()
    assert int(row[0]) in SIZES


def test_two_tasks_with_labels_are_told_apart():
    first = [f"0: {row}" for row in log(hosts=("a3-0",)).split("\n")]
    second = [f"1: {row}" for row in log(hosts=("a3-1",)).split("\n")]
    text = "\n".join(row for pair in zip(first, second, strict=True) for row in pair)
    found = read_text(text, "x.log")
    assert [(run.task, len(run.rows), run.hosts) for run in found.runs] == [("0", 11, ("a3-0",)), ("1", 11, ("a3-1",))]
    assert "nccl-runs-by-task" in {one.id for one in check(found).findings}


def test_torn_lines_are_named():
    text = log()
    rows = text.split("\n")
    at = next(number for number, row in enumerate(rows) if row.startswith(f"{SIZES[3]:12d}"))
    rows[at] = rows[at][:60] + rows[at + 1]
    del rows[at + 1]
    result = check(read_text("\n".join(rows), "x.log"))
    assert result.outcome is Outcome.FAIL
    finding = next(one for one in result.findings if one.id == "nccl-torn")
    assert finding.where == f"x.log:{at + 1}"


def test_a_row_of_the_end_is_kept_with_what_it_has():
    text = log()
    start = text.index(f"{SIZES[5]:12d}  ")
    run = read_text(text[: start + 90], "x.log").last
    assert len(run.rows) == 6
    assert run.rows[-1].out_of_place
    assert run.rows[-1].in_place is None
    assert run.unfinished


def test_several_runs_are_all_kept_and_the_last_is_compared():
    warm_up = log(lines=measured(busbw=(1.0,)))
    found = read_text(warm_up + "\n" + log(facts=A3_MEGA), "x.log")
    assert [len(run.rows) for run in found.runs] == [1, 11]
    result = check(found)
    assert result.outcome is Outcome.PASS
    assert result.run is found.runs[1]
    assert "begin at lines 1, " in next(one.what for one in result.findings if one.id == "nccl-several-runs")


def test_cycles_and_sizes_that_are_rounded_to_nothing_are_no_mixture():
    cycles = [*measured(), *measured()]
    assert not read_text(log(lines=cycles), "x.log").last.mixed
    nothing = [Line(0, 0, Cell(0.3, 0, 0), Cell(0.3, 0, 0))] * 5
    run = read_text(log(lines=[*nothing, *measured()]), "x.log").last
    assert not run.mixed
    assert run.sizes == SIZES


def test_an_operation_and_a_root_of_its_own_each_begin_with_the_smallest_size():
    rows = [replace(one, root=root) for root in range(3) for one in measured("broadcast")]
    run = read_text(log("broadcast", rows), "x.log").last
    assert not run.mixed
    assert {row.root for row in run.rows} == {0, 1, 2}


def test_a_last_run_that_ended_before_its_first_row_is_no_pass():
    whole, cut = log(facts=A3_MEGA), log().partition("     8388608")[0]
    result = check(read_text(whole + cut, "x.log"))
    assert result.outcome is Outcome.FAIL
    finding = next(one for one in result.findings if one.id == "nccl-truncated")
    assert "The last run of the log ends before its first row" in finding.what
    assert check(read_text(cut + whole, "x.log")).outcome is Outcome.PASS


def test_errors_are_quoted_once_with_their_line():
    text = log().split("\n")
    text[3:3] = [
        f"a3-0:4{n}:4100 [{n}] misc/socket.cc:50{where} NCCL WARN Net : Connection refused"
        for n, where in enumerate(["", " (connect)"] * 4)
    ]
    text += ["slurmstepd: error: *** STEP 17.0 ON a3-0 CANCELLED AT 2026-11-22T09:00:00 ***"]
    finding = next(one for one in check(read_text("\n".join(text), "x.log")).findings if one.id == "nccl-complaints")
    assert "line 4: NCCL WARN Net : Connection refused (8 times)" in finding.what
    assert "slurmstepd: error" in finding.what


@pytest.mark.parametrize(
    ("content", "given"),
    [
        (b"", "an empty file"),
        (b"\x1f\x8b\x08\x00abc", "compressed by gzip"),
        (b"\x00\x01\x02\xff\xfe" * 1000, "binary data"),
        (b"hello\nworld\n", "begins with hello"),
        (b'{"version": 3, "args": ["all_gath', "not complete"),
        (b'{"a": 1}', "another program"),
        (b'{"a":' * 100_000, "another program"),
        (b'{"args": ["x_perf"], "results": [], "out_of_bounds": {"count": 1e999}}', "another program"),
        (b"slurmstepd: error: execve(): all_gather_perf: No such file or directory\n", "line 1 has: slurmstepd"),
    ],
)
def test_what_is_no_log_says_what_it_is(tmp_path, content, given):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(NotALogError) as raised:
        read_file(path)
    assert given in raised.value.finding.given
    assert raised.value.finding.todo


@given(st.binary(max_size=2000) | st.text(max_size=500).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_content_ends_in_another_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.log"
    for data in (content, log(facts=A3_MEGA).encode() + content, content + log(facts=A3_MEGA).encode()):
        path.write_bytes(data)
        with contextlib.suppress(NotALogError):
            check(read_file(path))


PIECES = (
    "nan",
    "inf",
    "1e309",
    "9" * 5000,
    "N/A",
    "\u00b2",
    "\r",
    "\n",
    "\0",
    "# Using devices",
    "# hpc: nodes=\u00b2",
    "{",
)


@given(data=st.data(), form=st.sampled_from(FORMATS))
def test_a_damaged_log_can_still_be_reported(data, form):
    text = log(form=form, facts=A3_MEGA)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(PIECES)) + text[at + data.draw(st.integers(0, 150)) :]
    with contextlib.suppress(NotALogError):
        found = read_text(text, "x.log")
        result = check(found)
        assert lines_of(found, result)
        json.dumps(document_of(found, result), allow_nan=False)
