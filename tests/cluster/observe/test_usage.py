"""Usage adds up: nothing is counted twice, nothing is lost, however it is arranged."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observe.usage import GROUP_KEYS, UsageRecord, parse_records, table, total
from scripts.node.slurm.output import count_gpus, parse_tres

NAME = st.sampled_from(["alice", "bob", "ml", "cpu"])
RECORD = st.builds(
    UsageRecord, job=st.integers(1, 9).map(str), user=NAME, account=NAME, partition=NAME,
    seconds=st.integers(1, 10**6), cpus=st.integers(0, 512), gpus=st.integers(0, 64),
)  # fmt: skip
SUBSETS = [*chain.from_iterable(combinations(GROUP_KEYS, size) for size in (1, 2, 3))]
LINES = """\
1|alice|research|cpu|3600|billing=2,cpu=2,mem=2048M,node=1|1|COMPLETED|2026-11-02T00:00:00|2026-11-03T00:00:00|01:00:00|
5|alice|research|gpu|1800|billing=1,cpu=1,gres/gpu:standin=1,gres/gpu=1,mem=1024M,node=1|5|NODE_FAIL|2026-11-01T00:00:00|2026-11-03T00:00:00|00:30:00|
5|alice|research|gpu|1800|billing=1,cpu=1,gres/gpu:standin=1,gres/gpu=1,mem=1024M,node=1|5|COMPLETED|2026-11-02T00:00:00|2026-11-03T00:00:00|00:30:00|
5.batch|||gpu|1800|cpu=1|5.batch|COMPLETED|2026-11-02T00:00:00|2026-11-03T00:00:00|00:30:00|cpu=00:30:00,gres/gpuutil=40,mem=1M
5.0|||gpu|1800|cpu=1|5.0|COMPLETED|2026-11-02T00:00:00|2026-11-03T00:00:00|00:30:00|cpu=00:30:00,gres/gpuutil=80,mem=1M
6|bob|teaching|gpu|7200|cpu=1,gres/gpu:a100=2,gres/gpu:t4=1|6|RUNNING|2026-11-02T00:00:00|Unknown|00:30:00|
7|bob|teaching|cpu|0||7|CANCELLED by 2002|2026-11-02T00:00:00|2026-11-03T00:00:00|00:30:00|
8|bob|teaching|cpu|0|cpu=1|8|FAILED|2026-11-02T00:00:00|2026-11-03T00:00:00|00:30:00|
9_1|bob|teaching|cpu|86400|cpu=64|10|RUNNING|2026-11-02T00:00:00|Unknown|00:30:00|
"""
# As sacct prints it with the mark as delimiter, and the jobs of squeue.
TEXT = "".join(f"{line.replace('|', 'MARK')}MARK\n" for line in LINES.splitlines()) + "MARK-\n6\n"


def test_records_of_sacct_are_parsed():
    read = parse_records(TEXT, "MARK")
    found = read.records
    assert read.runaways == 1, "job 9_1, which slurmctld does not know"
    rows = table(found, ["user"])
    assert [(row.keys, row.cpu_hours, row.gpu_hours, row.jobs) for row in rows] == [
        (("bob",), 2.0, 6.0, 2),
        (("alice",), 3.0, 1.0, 2),
    ]
    assert (total(found).gpu_hours, total(found).jobs) == (7.0, 4)


def test_efficiency_is_of_whole_jobs_and_utilization_of_measured_gpus():
    """Job 1 used 1 h of 2 h. Of job 5 only the second run began within the time, and its best step kept 80 % busy."""
    found = parse_records(TEXT, "MARK", "2026-11-01T00:00:00", "2026-12-01T00:00:00").records
    rows = {row.keys: row for row in table(found, ["user"])}
    assert rows[("alice",)].cpu_efficiency == pytest.approx(1.5 / 2.5)
    assert rows[("alice",)].gpu_utilization == pytest.approx(0.8)
    assert rows[("bob",)].gpu_utilization is None
    nobody = total(())
    assert (nobody.cpu_efficiency, nobody.gpu_utilization) == (None, None)


def test_use_of_gpus_is_that_of_dcgm_where_slurmd_has_no_nvml():
    """slurmd without NVML has no gres/gpuutil, or 0. Job 5 was measured, and did nothing; 6 was not measured."""
    use = "".join(f"{line}\n" for line in (
        '{"job": "5", "seconds": 1800.0, "until": 1.0, "gpus": 1, "busy": 0.0, "memory_mib": 100.0}',
        '{"job": "1", "seconds": 10.0, "until": 1.0, "gpus": 1, "busy": 5.0, "memory_mib": 100.0}',
        '{"job": "6", "seconds": 0.0, "until": 1.0, "gpus": 3, "memory_mib": 0}', "cut off",
    ))  # fmt: skip
    for slurms in ("gres/gpuutil=0", "cpu=1"):
        text = TEXT.replace("gres/gpuutil=40", slurms).replace("gres/gpuutil=80", slurms)
        rows = {row.keys: row for row in table(parse_records(f"{text}MARK-\n{use}", "MARK").records, ["user"])}
        assert (rows["alice",].gpu_utilization, rows["bob",].gpu_utilization) == (0.0, None)
    (measured, *_) = table(parse_records(f"{TEXT}MARK-\n{use}", "MARK").records, ["account"])[1:]
    assert measured.gpu_utilization == 0.8


@given(st.lists(RECORD, max_size=30), st.sampled_from(SUBSETS))
def test_rows_add_up_to_the_total(found: list[UsageRecord], by: tuple):
    rows = table(found, by)
    whole = total(found)
    assert sum(row.cpu_seconds for row in rows) == whole.cpu_seconds == sum(r.seconds * r.cpus for r in found)
    assert sum(row.gpu_seconds for row in rows) == whole.gpu_seconds == sum(r.seconds * r.gpus for r in found)
    assert len({row.keys for row in rows}) == len(rows)
    assert sum(row.jobs for row in rows) >= whole.jobs == len({r.job for r in found})


@given(st.lists(RECORD, max_size=30).flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_the_order_of_records_does_not_matter(both: tuple[list[UsageRecord], list[UsageRecord]]):
    assert table(both[0]) == table(both[1])


@given(st.dictionaries(st.sampled_from(["a100", "h100", "t4"]), st.integers(1, 8), max_size=3), st.booleans())
def test_gpus_of_all_types_are_counted_once(types: dict[str, int], with_total: bool):
    parts = [f"gres/gpu:{kind}={count}" for kind, count in types.items()]
    parts += [f"gres/gpu={sum(types.values())}"] if with_total else []
    assert count_gpus(parse_tres(",".join(["cpu=4", *parts, "mem=1M"]))) == sum(types.values())


@pytest.mark.parametrize("line", ["1|alice|", "sacct: error: nothing|", "1|2|3|4|5|6|7|8|9|", "Connection refused"])
def test_an_invalid_line_is_refused(line: str):
    with pytest.raises(ValueError, match="not rows of 12"):
        parse_records(line, "|")
