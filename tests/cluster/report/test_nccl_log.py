"""Reading logs of nccl-tests: formats of every version, and what else a log has."""

import contextlib
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.findings import Finding
from cluster.report.nccl_log import NotALogError, read_file, read_text
from cluster.report.nccl_report import report_document, report_lines
from cluster.report.nccl_result import NcclResult, ReportOutcome, check
from cluster.report.nccl_run import ProgramRun, SizeRow
from tests.cluster.report.nccl_logs import (
    A3_MEGA,
    FORMATS,
    GUIDE,
    KINDS,
    PLAIN,
    SIZES,
    Cell,
    Format,
    Line,
    log,
    measured,
)

NOISE = (
    "a3-0:4001:4100 [0] NCCL INFO Channel 00/0 : 0[4000] -> 8[4000] [send] via NET/FasTrak/0",
    "srun: job 17 queued and waiting for resources",
    "/usr/share/zoneinfo: using UTC",
)


def find(result: NcclResult, finding_id: str) -> Finding:
    return next(finding for finding in result.findings if finding.id == finding_id)


def rows_of(text: str) -> list[SizeRow]:
    return list(read_text(text, "x.log").last.rows)


def anywhere(rows: list[SizeRow]) -> list[SizeRow]:
    """Rows without the lines where they stand."""
    return [replace(row, line=0) for row in rows]


def expected(line: Line, form: Format, collective: str) -> tuple[object, ...]:
    """Return what a row has once it was printed."""

    def half(cell: Cell) -> tuple[object, ...]:
        numbers = (float(form.time(cell.time)), float(form.bandwidth(cell.algbw)), float(form.bandwidth(cell.busbw)))
        return (*numbers, None if cell.wrong is None else int(float(f"{cell.wrong:g}")))

    return line.size, line.count, line.type, half(line.out), half(line.inside)


def found(row: SizeRow) -> tuple[object, ...]:
    assert row.out_of_place
    assert row.in_place
    return row.size, row.count, row.type, tuple(row.out_of_place), tuple(row.in_place)


cells = st.builds(
    Cell,
    time=st.floats(0, 1e9),
    algbw=st.floats(0, 9999),
    busbw=st.floats(0, 9999),
    wrong=st.none() | st.integers(0, 10**9),
)
lines = st.builds(
    Line,
    size=st.integers(0, 2**40),
    count=st.integers(0, 2**40),
    out=cells,
    inside=cells,
    type=st.sampled_from(("float", "half", "bfloat16", "int8", "f8e4m3")),
)


@given(form=st.sampled_from(FORMATS), collective=st.sampled_from(sorted(KINDS)), rows=st.lists(lines, max_size=12))
def test_rows_of_every_format_are_read_as_printed(form, collective, rows):
    kind = KINDS[collective]
    unique = {row.size: row for row in rows}
    rows = [
        Line(row.size, row.count, row.out, row.inside, row.type, kind.redop, kind.root)
        for row in sorted(unique.values(), key=lambda row: row.size)
    ]
    run = read_text(log(collective, rows, form=form), "x.log").last
    assert [found(row) for row in run.rows] == [expected(row, form, collective) for row in rows]
    assert run.complete
    assert not run.torn
    assert run.collective == (collective if form.era == "new" else "")
    assert run.ranks == 16
    assert run.hosts == ("a3-0", "a3-1")


def test_the_log_of_the_guide_is_read(tmp_path):
    run = read_file("tests/cluster/report/guide_nccl.log").last
    assert run.average == 126.358
    assert list(run.curve().items()) == list(zip(SIZES, GUIDE, strict=True))
    assert run.mean() == pytest.approx(run.average, abs=0.01)
    assert not run.checked


def decorate(text: str, kind: str) -> str:
    rows = text.split("\n")
    if kind == "crlf":
        return "\r\n".join(rows)
    return "\n".join(f"{PREFIXES[kind]}{row}" for row in rows)


PREFIXES = {
    "label": "0: ",
    "kubectl --timestamps": "2026-11-22T09:00:00.123Z ",
    "mpirun": "[1,0]<stdout>:",
    "kubectl": "[pod/nccl-launcher-x7k2p/nccl] [1,0]<stdout>: ",
}


@pytest.mark.parametrize("kind", ["crlf", *PREFIXES])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_prefixes_and_line_ends_do_not_matter(kind, form):
    text = log(form=form)
    assert anywhere(rows_of(decorate(text, kind))) == anywhere(rows_of(text))


@given(form=st.sampled_from(FORMATS), seed=st.integers(0, 2**32), noise=st.sampled_from(NOISE))
def test_other_programs_may_write_between_the_parts_of_a_row(form, seed, noise):
    drawn = random.Random(seed)  # noqa: S311
    rows = measured()
    whole = log(lines=rows, form=form)
    for row in rows:
        first, second, third = form.before(row), form.cell(row.out), form.cell(row.inside)
        parts = drawn.choice((f"{first}{noise}\n{second}{third}", f"{first}{second}\n{noise}\n{third}"))
        if "NCCL" not in noise:  # only NCCL's own lines can be cut off from what stands before them
            parts = f"{first}\n{noise}\n{second}\n{third}"
        whole = whole.replace(first + second + third, parts)
    assert anywhere(rows_of(whole)) == anywhere(rows_of(log(form=form)))
    assert not read_text(whole, "x.log").last.torn


def test_lines_of_nccl_that_are_left_out_of_a_large_log_are_no_others(tmp_path):
    lines = [
        "a3-0:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "a3-0:1:1 [0] NCCL INFO Using network IB",
        *["a3-0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"] * 3,
        "1: a3-1:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
    ]
    path = tmp_path / "x.log"
    path.write_text("\n".join([*lines, log()]))
    run = read_file(path).last
    assert (run.adapters, run.networks, run.environment) == ({"a3-0": 2}, {"IB"}, {"NCCL_ALGO": "Ring"})
    assert len(run.rows) == 11


def test_facts_of_the_header_belong_to_the_following_runs():
    run: ProgramRun = read_text(log(facts=A3_MEGA), "x.log").last
    assert run.facts["machine_type"] == "a3-megagpu-8g"
    assert run.nodes == 2
    assert read_text(log(facts="machine_type= nodes"), "x.log").last.facts == {}
    assert read_text(log(form=PLAIN), "x.log").last.nodes == 2


RANKS = [line for line in log().split("\n") if line.startswith("#  Rank")]


@pytest.mark.parametrize(
    "kept",
    [
        [RANKS[0], "..."],
        [RANKS[0], "#  ...", RANKS[-1]],
        [RANKS[0], "# ... 14 more ranks", RANKS[-1]],
        [RANKS[0], "[…]", RANKS[-1]],
        [RANKS[0], RANKS[-1]],
        # writeDeviceReport (NVIDIA/nccl-tests v2.19.6, src/util.cu): 2 KiB of each process, the last line cut.
        [*RANKS[:3], "#  Rank  3 Group  0 Pid   4003 on       a3-0 device  3 [0000:0b:00] NVID..."],
    ],
)
def test_ranks_that_are_elided_are_not_counted_as_if_they_were_all(kept):
    text = log().replace("\n".join(RANKS), "\n".join(kept))
    run = read_text(text, "x.log").last
    assert (run.nodes, run.ranks, run.gpu, len(run.rows)) == (None, None, "H100", 11)
    found = check(read_text(f"# hpc: {A3_MEGA}\n{text}", "x.log"))
    assert (found.outcome, {finding.id for finding in found.findings}) == (ReportOutcome.PASS, set())


def test_results_that_were_not_checked_are_not_reported_as_sound():
    """nccl-tests ends with `Out of bounds values : 0 OK` under `-c 0` too."""
    unchecked = read_text(log(check=False, facts=A3_MEGA), "x.log")
    found = check(unchecked)
    assert "average busbw of all rows: 126.504 GB/s, results not checked" in report_lines(unchecked, found)
    assert report_document(unchecked, found)["runs"][0]["out_of_bounds"] is None
    assert "--check" in find(found, "nccl-unchecked").todo


def test_dots_of_other_programs_elide_no_ranks():
    text = log().replace(RANKS[3], f"{RANKS[3]}\nLoading modules ...").replace("# (B)", "Waiting...\n# (B)")
    assert read_text(f"Starting ...\n...\n{text}\n...\n", "x.log").last.ranks == 16


def test_a_program_names_its_collective_whatever_the_header_says():
    text = log("all_reduce", form=FORMATS[2], facts=A3_MEGA)
    assert read_text(text, "x.log").last.collective == "all_reduce"
    text = log("all_reduce", form=FORMATS[2], facts=A3_MEGA).replace("all_reduce_perf", "/usr/bin/all_reduce_perf_mpi")
    assert read_text(text, "x.log").last.collective == "all_reduce"


def test_networks_and_variables_of_nccl_are_noted():
    lines = [
        "a3-0:1:1 [0] NCCL INFO Using network FasTrak",
        "a3-0:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.",
        "[2026-11-22 09:00:00] a3-0:1:1 [0] NCCL INFO NCCL_SHM_DISABLE set by environment to 1",
    ]
    for text in ("\n".join([*lines, log()]), log().replace("# Using devices", "\n".join(["# Using devices", *lines]))):
        run = read_text(text, "x.log").last
        assert run.networks == {"FasTrak"}
        assert run.environment == {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
        assert len(run.rows) == 11


@given(st.data())
def test_a_log_that_is_cut_short_never_passes(data):
    text = log(facts=A3_MEGA)
    cut = data.draw(st.integers(0, text.index("# Avg bus bandwidth")))
    try:
        whole, part = read_text(text, "x.log"), read_text(text[:cut], "x.log")
    except NotALogError:
        return
    assert check(whole).outcome is ReportOutcome.PASS
    result = check(part)
    assert result.outcome is ReportOutcome.FAIL
    assert "nccl-truncated" in {finding.id for finding in result.findings}
    full, rest = whole.last.rows, part.last.rows
    assert [row.size for row in rest] == [row.size for row in full][: len(rest)]
    assert rest[:-1] == full[: max(0, len(rest) - 1)]


def mixed(first: str, second: str, seed: int) -> str:
    """Two logs line by line, each in its order."""
    drawn, left = random.Random(seed), [first.split("\n"), second.split("\n")]  # noqa: S311
    order = [0] * len(left[0]) + [1] * len(left[1])
    drawn.shuffle(order)
    return "\n".join(left[which].pop(0) for which in order)


def test_two_programs_in_one_file_fail():
    for seed in range(100):
        text = mixed(log(), log(hosts=("a3-2", "a3-3")), seed)
        result = check(read_text(text, "x.log"))
        assert result.outcome is ReportOutcome.FAIL, seed
    text = mixed(log(), log(), 1)
    number = read_text(text, "x.log").last.torn[0].line
    assert int(text.split("\n")[number - 1].split()[0]) in SIZES


def test_torn_lines_fail_with_their_line():
    text = log()
    rows = text.split("\n")
    at = next(number for number, row in enumerate(rows) if row.startswith(f"{SIZES[3]:12d}"))
    rows[at] = rows[at][:60] + rows[at + 1]
    del rows[at + 1]
    result = check(read_text("\n".join(rows), "x.log"))
    assert result.outcome is ReportOutcome.FAIL
    assert f"line {at + 1}: " in find(result, "nccl-torn").what


def test_several_runs_are_all_kept_and_the_last_is_compared():
    warm_up = log(lines=measured(busbw=(1.0,)))
    found = read_text(warm_up + "\n" + log(facts=A3_MEGA), "x.log")
    assert [len(run.rows) for run in found.runs] == [1, 11]
    result = check(found)
    assert result.outcome is ReportOutcome.PASS
    assert result.run is found.runs[1]
    assert "begin at lines 1, " in next(
        finding.what for finding in result.findings if finding.id == "nccl-several-runs"
    )


def test_cycles_and_sizes_of_zero_are_not_mixed():
    cycles = [*measured(), *measured()]
    assert not read_text(log(lines=cycles), "x.log").last.torn
    nothing = [Line(0, 0, Cell(0.3, 0, 0), Cell(0.3, 0, 0))] * 5
    run = read_text(log(lines=[*nothing, *measured()]), "x.log").last
    assert not run.torn
    assert tuple(run.curve()) == SIZES


def test_a_last_run_without_rows_fails():
    whole, cut = log(facts=A3_MEGA), log().partition("     8388608")[0]
    result = check(read_text(whole + cut, "x.log"))
    assert result.outcome is ReportOutcome.FAIL
    finding = find(result, "nccl-truncated")
    assert "The last run of the log, from line" in finding.what
    assert check(read_text(cut + whole, "x.log")).outcome is ReportOutcome.PASS


def test_errors_are_quoted_once_with_their_line():
    text = log().split("\n")
    text[3:3] = [
        f"a3-0:4{n}:4100 [{n}] misc/socket.cc:50{where} NCCL WARN Net : Connection refused"
        for n, where in enumerate(["", " (connect)"] * 4)
    ]
    text += ["slurmstepd: error: *** STEP 17.0 ON a3-0 CANCELLED AT 2026-11-22T09:00:00 ***"]
    finding = next(
        finding for finding in check(read_text("\n".join(text), "x.log")).findings if finding.id == "nccl-complaints"
    )
    assert "line 4: NCCL WARN Net : Connection refused (8 times)" in finding.what
    assert "slurmstepd: error" in finding.what


@pytest.mark.parametrize(
    ("content", "given"),
    [
        (b"", "an empty file"),
        (b"\x1f\x8b\x08\x00abc", "compressed by gzip"),
        (b"hello\nworld\n", "begins with hello"),
        (b'{"version": 3, "args": ["all_gather_perf"]}', "begins with"),
        (b"slurmstepd: error: execve(): all_gather_perf: No such file or directory\n", "line 1 has: slurmstepd"),
    ],
)
def test_a_file_that_is_no_log_is_described(tmp_path, content, given):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(NotALogError) as raised:
        read_file(path)
    assert given in raised.value.finding.given
    assert raised.value.finding.todo


@given(st.binary(max_size=2000) | st.text(max_size=500).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_content_is_read_or_raises_not_a_log_error(tmp_path_factory, content):
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
        assert report_lines(found, result)
        json.dumps(report_document(found, result), allow_nan=False)
