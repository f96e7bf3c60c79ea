"""Reading logs of nccl-tests: every collective and format, and what else a job's log has."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nccl_logs import A3_MEGA, FORMATS, GUIDE, KINDS, PLAIN, SIZES, Cell, Format, Line, log, measured

from cluster.report.nccl.log import read_file, read_text
from cluster.report.nccl.result import Outcome, check
from cluster.report.nccl.run import Row, Run, candidates

NOISE = (
    "a3-0:4001:4100 [0] NCCL INFO Channel 00/0 : 0[4000] -> 8[4000] [send] via NET/FasTrak/0",
    "srun: job 17 queued and waiting for resources",
    "/usr/share/zoneinfo: using UTC",
)


def rows_of(text: str) -> list[Row]:
    return list(read_text(text, "x.log").last.rows)


def anywhere(rows: list[Row]) -> list[Row]:
    """Rows without the lines where they stand."""
    return [replace(row, line=0) for row in rows]


def expected(line: Line, form: Format, collective: str) -> tuple[object, ...]:
    """What a row has once it was printed."""

    def half(cell: Cell) -> tuple[object, ...]:
        numbers = (float(form.time(cell.time)), float(form.bandwidth(cell.algbw)), float(form.bandwidth(cell.busbw)))
        return (*numbers, None if cell.wrong is None or form.era == "old" else int(float(f"{cell.wrong:g}")))

    return line.size, line.count, line.type, half(line.out), half(line.inside)


def found(row: Row) -> tuple[object, ...]:
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
def test_what_is_printed_is_read(form, collective, rows):
    kind = KINDS[collective]
    unique = {row.size: row for row in rows}
    rows = [
        Line(row.size, row.count, row.out, row.inside, row.type, kind.redop, kind.root)
        for row in sorted(unique.values(), key=lambda one: one.size)
    ]
    run = read_text(log(collective, rows, form=form), "x.log").last
    assert [found(row) for row in run.rows] == [expected(row, form, collective) for row in rows]
    assert run.complete
    assert not run.torn
    assert not run.mixed
    assert len(run.devices) == 16
    assert run.hosts == ("a3-0", "a3-1")


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("collective", KINDS)
def test_the_collective_is_known_by_its_columns(collective, form):
    run = read_text(log(collective, form=form), "x.log").last
    assert collective in candidates(run)
    assert len(candidates(run)) <= 3
    if form.era == "new":
        assert candidates(run) == (collective,)


def test_the_guide(tmp_path):
    run = read_file("tests/report/guide_nccl.log").last
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
    "stamp": "2026-11-22T09:00:00.123Z ",
    "bracket": "[09:00:00] ",
    "tag": "[1,0]<stdout>:",
    "PRRTE": "[prterun-a3-0-4001@1,0]<stdout>: ",
    "Hydra": "[0] ",
    "kubectl": "[pod/nccl-launcher-x7k2p/nccl] [1,0]<stdout>: ",
    "pdsh": "a3-0: ",
    "colours": "\x1b[1;32m2026-11-22T09:00:00Z\x1b[0m ",
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
        first, second, third = form.before(row, "all_gather"), form.cell(row.out), form.cell(row.inside)
        parts = drawn.choice((f"{first}{noise}\n{second}{third}", f"{first}{second}\n{noise}\n{third}"))
        if "NCCL" not in noise:  # only NCCL's own lines can be cut off from what stands before them
            parts = f"{first}\n{noise}\n{second}\n{third}"
        whole = whole.replace(first + second + third, parts)
    assert anywhere(rows_of(whole)) == anywhere(rows_of(log(form=form)))
    assert not read_text(whole, "x.log").last.torn


def test_the_json_of_nccl_tests():
    rows = measured(check=True)
    half = lambda cell: {"time": cell.time, "alg_bw": cell.algbw, "bus_bw": cell.busbw, "nwrong": cell.wrong}  # noqa: E731
    document = {
        "version": 3,
        "args": ["/nccl/build/all_gather_perf", "-J", "x"],
        "env": ["SECRET=1", "NCCL_P2P_DISABLE=1"],
        "config": {"iterations": 20, "devices": [{"rank": 0, "hostname": "a3-0", "device_info": "NVIDIA H100"}]},
        "results": [
            {"size": one.size, "count": one.count, "type": "float", "redop": "none", "root": "    -1",
             "out_of_place": half(one.out), "in_place": None}
            for one in rows
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 126.0, "okay": "unchecked"},
    }  # fmt: skip
    run = read_text(json.dumps(document), "x.json").last
    assert candidates(run) == ("all_gather",)
    assert list(run.curve()) == list(SIZES)
    assert run.environment == {"NCCL_P2P_DISABLE": "1"}
    assert run.complete
    del document["average_bus_bandwidth"]
    assert check(read_text(json.dumps(document), "x.json")).outcome is Outcome.FAIL


def test_the_first_format_has_milliseconds_and_no_marks():
    text = "\n".join([
        "# NCCL Tests compiled with NCCL 2.0", "# Using devices",
        "#   Rank  0 on       dgx1 device  0 [0x06] Tesla V100", "",
        "#                                                 out-of-place                    in-place",
        "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res",
        "    67108864      16777216   float     sum    1.234  54.38  95.17    1e-06    1.230  54.56  95.48    1e-06",
        " Out of bounds values : 0 OK", " Avg bus bandwidth    : 95.3 ",
    ])  # fmt: skip
    run = read_text(text, "x.log").last
    assert run.rows[0].out_of_place == (1234.0, 54.38, 95.17, None)
    assert run.checked
    assert run.complete


def test_facts_of_the_header_are_those_of_the_runs_that_follow():
    run: Run = read_text(log(facts=A3_MEGA), "x.log").last
    assert run.facts["machine_type"] == "a3-megagpu-8g"
    assert run.nodes == 2
    assert read_text(log(facts="machine_type= nodes"), "x.log").last.facts == {}
    assert read_text(log(form=PLAIN), "x.log").last.nodes == 2


def test_a_program_names_its_collective_whatever_the_header_says():
    text = log("all_reduce", form=FORMATS[3], facts=A3_MEGA)
    assert candidates(read_text(text, "x.log").last) == ("all_reduce",)
    text = log("all_reduce", form=FORMATS[3], facts=A3_MEGA).replace("all_reduce_perf", "/usr/bin/all_reduce_perf_mpi")
    assert candidates(read_text(text, "x.log").last) == ("all_reduce",)


@pytest.mark.parametrize(
    "command",
    [
        "+ srun --mpi=pmix --ntasks=16 reduce_scatter_perf_mpi -b 8M -e 8G -f 2",
        "$ mpirun -np 16 /opt/nccl-tests/build/reduce_scatter_perf -b 8M -e 8G",
        "kubectl exec -it host-0 -- /usr/local/gib/scripts/run_nccl_tests.sh -t reduce_scatter -b 1K host-0 host-1",
    ],
)
def test_the_echoed_command_names_the_collective(command):
    text = log("all_gather") + f"\n{command}\n" + log("reduce_scatter")
    first, second = read_text(text, "x.log").runs
    assert candidates(first) == ("all_gather", "alltoall", "alltoallv")
    assert candidates(second) == ("reduce_scatter",)
    assert candidates(read_text("make: build/all_reduce_perf\n" + log("broadcast"), "x.log").last) == ("broadcast",)


def test_old_headers_leave_fewer_collectives():
    old = {one: candidates(read_text(log(one, form=FORMATS[0]), "x.log").last) for one in ("all_gather", "alltoall")}
    assert old == {"all_gather": ("all_gather",), "alltoall": ("alltoall",)}
    two = log("all_reduce", hosts=("a", "b"), per_host=1, form=FORMATS[0])
    assert candidates(read_text(two, "x.log").last) == ("all_reduce",)


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
