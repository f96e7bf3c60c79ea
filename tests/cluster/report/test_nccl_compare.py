"""Many logs: the slow node among pairs, and a run beside earlier ones."""

from datetime import datetime, timezone
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.findings import Level
from cluster.report.nccl_compare import Entry, Folder, compare
from cluster.report.nccl_log import read_text
from cluster.report.nccl_result import ReportOutcome, check
from cluster.report.nccl_run import NcclLog
from tests.cluster.report.nccl_logs import A3_MEGA, GUIDE, MIB, log, measured

MODIFIED = datetime(2026, 1, 1, tzinfo=timezone.utc)


def saved(
    factor: float, *, hosts=("a3-0", "a3-1"), date="", collective="all_gather", name="x.log", machine=""
) -> NcclLog:
    facts = A3_MEGA.replace("all_gather", collective).replace("a3-megagpu-8g", machine or "a3-megagpu-8g") + (
        f" date={date}" if date else ""
    )
    rows = measured(collective, [busbw * factor for busbw in GUIDE])
    return read_text(log(collective, rows, hosts=hosts, facts=facts), name)


def folder(logs: list[NcclLog]) -> Folder:
    return Folder(tuple(Entry(content, check(content)) for content in logs), ())


@given(slow=st.integers(0, 5), count=st.integers(4, 6))
def test_the_node_that_is_slow_with_every_partner_is_named(slow, count):
    slow %= count
    logs = [
        saved(0.6 if slow in pair else 1.0, hosts=tuple(f"a3-{node}" for node in pair))
        for pair in combinations(range(count), 2)
    ]
    findings = list(folder(logs).findings())
    assert [(finding.where, finding.level) for finding in findings] == [(f"a3-{slow}", Level.ERROR)]
    assert f"in each of its {count - 1} runs" in findings[0].what


def test_both_nodes_of_a_slow_pair_that_ran_once_are_warnings():
    logs = [saved(1.0, hosts=("a", "b")), saved(1.0, hosts=("c", "d")), saved(0.6, hosts=("e", "f"))]
    findings = list(folder(logs).findings())
    assert [(finding.where, finding.level) for finding in findings] == [("e", Level.WARNING), ("f", Level.WARNING)]
    assert "fast in another pair" in findings[0].todo


def test_kinds_are_not_compared_with_each_other():
    logs = [saved(1.0), saved(1.0), saved(0.5, collective="broadcast", hosts=("a", "b"))]
    assert list(folder(logs).findings()) == []
    assert len({entry.result.subject for entry in folder(logs).entries}) == 2


def test_runs_over_the_fabric_are_not_compared_with_those_over_nvlink():
    facts = "machine_type=gpu-h100-sxm/8gpu-128vcpu-1600gb nodes=1 collective=all_reduce"
    logs = []
    for host in ("w-0", "w-1"):
        for busbw, over in ((460.0, ""), (48.0, " over=fabric")):
            rows = measured("all_reduce", [busbw] * 5, first=512 * MIB, ranks=8)
            logs.append(read_text(log("all_reduce", rows, hosts=(host,), facts=facts + over), f"{host}{over}.log"))
    assert list(folder(logs).findings()) == []
    assert folder(logs).outcome is ReportOutcome.PASS
    assert len({entry.result.subject for entry in folder(logs).entries}) == 2


@pytest.mark.parametrize("unlike", ["ranks", "GPU", "data type", "sizes"])
def test_runs_of_another_kind_do_not_make_a_node_slow(unlike: str):
    rows = measured(busbw=GUIDE[:6] if unlike == "sizes" else [0.5 * busbw for busbw in GUIDE])
    text = log(lines=rows, hosts=("e", "f"), per_host=4 if unlike == "ranks" else 8, facts=A3_MEGA)
    if unlike == "GPU":
        text = text.replace("] H100", "] H200")
    if unlike == "data type":
        text = text.replace("   float", "    half")
    logs = [saved(1.0, hosts=("a", "b")), saved(1.0, hosts=("c", "d")), read_text(text, "other.log")]
    assert list(folder(logs).findings()) == []


def test_logs_without_a_machine_type_are_compared_by_gpu():
    logs = [read_text(log().replace("] H100", f"] {gpu}"), "x.log") for gpu in ("NVIDIA H100", "NVIDIA H200")]
    assert [entry.kind for entry in folder(logs).entries] == [
        "2 nodes, NVIDIA H100, 16 ranks",
        "2 nodes, NVIDIA H200, 16 ranks",
    ]


def test_a_slow_node_fails_without_a_reference():
    pairs = combinations(range(4), 2)
    logs = [saved(0.6 if 0 in pair else 1.0, hosts=tuple(f"n-{n}" for n in pair), machine="x") for pair in pairs]
    assert {entry.result.outcome for entry in folder(logs).entries} == {ReportOutcome.NONE}
    assert folder(logs).outcome is ReportOutcome.FAIL


class TestAgainst:
    def history(self, *factors: float) -> list[tuple[NcclLog, datetime]]:
        return [
            (saved(factor, date=f"2026-11-{day:02}T09:00:00Z", name=f"{day}.log"), MODIFIED)
            for day, factor in enumerate(factors, 1)
        ]

    def compared(self, factor: float, logs: list[tuple[NcclLog, datetime]]):
        result = check(saved(factor))
        return compare(result.run, result.subject, logs)

    @pytest.mark.parametrize(
        ("factor", "said", "level"),
        [
            (1.0, "No change: 100%", Level.INFO),
            (0.97, "No change: 97%", Level.INFO),
            (0.8, "Slower: 20%", Level.WARNING),
            (1.2, "Faster: 20%", Level.INFO),
        ],
    )
    def test_a_finding_has_the_change_of_bandwidth(self, factor, said, level):
        finding = self.compared(factor, self.history(1.0, 1.0, 1.0)).finding("x.log")
        assert finding.what.startswith(said)
        assert finding.level is level

    def test_a_finding_has_the_run_since_which_bandwidth_is_lower(self):
        what = self.compared(0.8, self.history(1.0, 1.01, 0.99, 1.0, 0.8, 0.81)).finding("x.log").what
        assert "It is so since 2026-11-05 09:00 (5.log): from there on 20% less than before" in what
        assert "so something changed since the last one" in self.compared(0.8, self.history(1, 1)).finding("x").what

    def test_ratios_are_to_the_median_of_earlier_runs_by_size(self):
        comparison = self.compared(0.9, self.history(1.0, 0.5, 1.0))
        for median, share in comparison.ratios().values():
            assert share == pytest.approx(0.9, abs=0.01)
            assert median in [pytest.approx(busbw, abs=0.01) for busbw in GUIDE]

    def test_earlier_runs_are_sorted_by_date_of_the_log_else_of_the_file(self):
        logs = [*self.history(1.0, 1.0)[::-1], (saved(1.0, name="old.log"), MODIFIED)]
        assert [run.name for run in self.compared(1.0, logs).earlier] == ["old.log", "1.log", "2.log"]

    def test_logs_of_other_kinds_are_left_out(self):
        comparison = self.compared(1.0, [(saved(1.0, collective="broadcast"), MODIFIED)])
        assert (comparison.earlier, comparison.left_out) == ((), 1)
        assert comparison.finding("x.log").what == "No earlier run of the same kind"
        assert "none of the same" in comparison.lines()[0]
