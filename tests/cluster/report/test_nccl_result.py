"""Results: what a curve means, and which rule decides."""

import pytest

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.nccl import REFERENCES
from cluster.report.nccl.log import read_file, read_text
from cluster.report.nccl.result import Given, NcclResult, Outcome, check
from tests.cluster.report.nccl_logs import A3_MEGA, GIB, GUIDE, MIB, SIZES, log, measured


def result_of(busbw=GUIDE, *, facts=A3_MEGA, extra="", **options) -> NcclResult:
    text = log(lines=measured(busbw=busbw, **options), facts=facts)
    return check(read_text(extra + text, "x.log"))


def ids(result: NcclResult) -> set[str]:
    return {one.id for one in result.findings}


def scaled(factor: float) -> list[float]:
    return [one * factor for one in GUIDE]


def test_the_guides_run_passes():
    result = check(read_file("tests/cluster/report/guide_nccl.log"), Given(machine_type="a3-megagpu-8g", nodes=2))
    assert result.outcome is Outcome.PASS
    assert [reason.text for reason in result.reasons[:2]] == [
        "average of 8 MiB to 8 GiB: 126.4 GB/s, at least 100",
        "8 GiB: 188.2 GB/s, at least 170",
    ]
    assert ids(result) == {"nccl-unchecked", "nccl-collective-assumed"}


@pytest.mark.parametrize(
    ("share", "word"), [(1.0, Outcome.PASS), (0.91, Outcome.PASS), (0.89, Outcome.FAIL), (0.5, Outcome.FAIL)]
)
def test_a_run_below_the_reference_fails(share, word):
    assert result_of(scaled(share)).outcome is word


@pytest.mark.parametrize(
    ("busbw", "extra", "said"),
    [
        ([3, 5, 8, 10, 12, 14, 16, 17, 17.5, 18, 18], "", "TCP's level (25 GB/s by one NIC)"),
        (GUIDE, "a3-0:1:1 [0] NCCL INFO Using network Socket\n", "it uses the network Socket"),
        (scaled(0.6), "", "below 80. Large sizes are above what TCP"),
    ],
)
def test_tcpxo_is_not_active(busbw, extra, said):
    result = result_of(busbw, extra=extra)
    assert result.outcome is Outcome.FAIL
    finding = next(one for one in result.findings if one.id == "nccl-fabric-inactive")
    assert finding.what.startswith("TCPXO not active: ")
    assert said in finding.what
    assert "NCCL_DEBUG=INFO" in finding.todo


def test_a_plateau_at_a_fraction_is_a_slow_member():
    busbw = [min(one, 141.0) for one in GUIDE]
    finding = next(one for one in result_of(busbw).findings if one.id == "nccl-one-slow")
    assert finding.what.startswith("Plateau at 141 GB/s, 75% of the reference, which is about what 6 of 8 NICs carry")
    assert "The log does not say which" in finding.what
    assert "--pairs" in finding.todo


def test_small_messages_say_nothing_about_bandwidth():
    result = result_of([0.01 * 2**number for number in range(16)], first=8)
    assert result.outcome is Outcome.NONE
    assert "nccl-small-only" in ids(result)
    assert all(reason.met is None for reason in result.reasons)


def test_wrong_results_fail_whatever_the_speed():
    text = log(facts=A3_MEGA).replace("      0  ", "     12  ", 1).replace("values : 0 OK", "values : 12 FAILED")
    result = check(read_text(text, "x.log"))
    assert result.outcome is Outcome.FAIL
    what = next(one.what for one in result.findings if one.id == "nccl-wrong-results")
    assert "12 wrong elements at 8 MiB" in what


def test_bandwidth_that_falls_is_found():
    falling = [*GUIDE[:-3], 150.0, GUIDE[-2], GUIDE[-1]]
    what = next(one.what for one in result_of(falling).findings if one.id == "nccl-drop")
    assert "from 181.7 GB/s at 1 GiB to 150.0 at 2 GiB" in what


def test_halves_that_differ_are_unsteady():
    assert "nccl-unsteady" in ids(result_of(in_place=0.8))
    assert "nccl-unsteady" not in ids(result_of(in_place=0.97))


def test_the_networks_line_rate_is_named_without_a_reference():
    facts = "machine_type=a3-megagpu-8g nodes=4 collective=all_gather"
    text = log(lines=measured(busbw=scaled(0.5), ranks=32), hosts=tuple("abcd"), facts=facts)
    result = check(read_text(text, "x.log"))
    assert result.outcome is Outcome.NONE
    assert "nccl-one-slow" in ids(result)
    assert "nccl-no-reference" in ids(result)
    assert "47% of the line rate of the GPUs' NICs (200 GB/s), at least 65%" in result.reasons[-1].text


@pytest.mark.parametrize("nodes", [2, 4, 16])
@pytest.mark.parametrize("name", [name for name, kind in MACHINE_TYPES.items() if kind.line_rate])
def test_a_fabric_that_is_not_used_fails_on_any_number_of_nodes(name, nodes):
    kind = MACHINE_TYPES[name]
    rate, collective = kind.line_rate, kind.family.fabric.collective
    assert rate
    facts = f"machine_type={name} nodes={nodes} collective={collective}"
    hosts = tuple(f"n-{number}" for number in range(nodes))

    def word(busbw):
        lines = measured(collective, [busbw] * 5, first=512 * MIB, ranks=nodes * rate.nics)
        text = log(collective, lines, hosts=hosts, per_host=rate.nics, facts=facts)
        result = check(read_text(text, "x.log"))
        assert ("nccl-fabric-inactive" in ids(result)) == (busbw <= 1.2 * rate.nic)
        return result.outcome

    assert word(3.1) is Outcome.FAIL
    assert word(1.19 * rate.nic) is Outcome.FAIL
    if (name, collective, nodes, False) not in REFERENCES:
        assert word(1.3 * rate.nic) is Outcome.NONE
        assert word(0.7 * rate.total) is Outcome.PASS


def test_machines_without_all_gpus_of_a_host_have_no_fabric():
    """They can't join a GPU cluster: TCP is what they should use."""
    facts = "machine_type=gpu-h100-sxm/1gpu-16vcpu-200gb nodes=2 collective=all_reduce"
    lines = measured("all_reduce", [3.0] * 5, first=512 * MIB, ranks=2)
    text = "a3-0:1:1 [0] NCCL INFO Using network Socket\n" + log("all_reduce", lines, per_host=1, facts=facts)
    result = check(read_text(text, "x.log"))
    assert "nccl-fabric-inactive" not in ids(result)
    assert result.outcome is Outcome.NONE


def test_sizes_in_other_steps_are_not_averaged():
    """Small sizes weigh less, or more, in them than in what the minimum was measured with."""
    every = [one for one in measured() if one.size in SIZES[::5]]
    result = check(read_text(log(lines=every, facts=A3_MEGA), "x.log"))
    texts = [reason.text for reason in result.reasons if reason.met is None]
    assert texts[0].startswith("average of 8 MiB to 8 GiB: not measured at 16 MiB, 32 MiB")
    assert result.outcome is Outcome.PASS, "8 GiB is met"
    # Sizes between do not count.
    more = sorted([*measured(), *(one for one in measured(first=12 * MIB)[:-1])], key=lambda one: one.size)
    result = check(read_text(log(lines=more, facts=A3_MEGA), "x.log"))
    assert result.reasons[0].text == "average of 8 MiB to 8 GiB: 126.5 GB/s, at least 100"


@pytest.mark.parametrize("collective", ["sendrecv", "alltoall"])
def test_a_collective_in_which_each_gpu_has_one_nic_may_be_at_one_nics_level(collective):
    facts = f"machine_type=a3-megagpu-8g nodes=2 collective={collective}"
    busbw = [min(one, 23.5) for one in GUIDE]
    text = log(collective, measured(collective, busbw), facts=facts)
    result = check(read_text(text, "x.log"))
    assert "nccl-fabric-inactive" not in ids(result)
    assert result.outcome is Outcome.NONE
    result = check(read_text("a3-0:1:1 [0] NCCL INFO Using network Socket\n" + text, "x.log"))
    assert "nccl-fabric-inactive" in ids(result)


def test_the_line_rate_does_not_overrule_a_minimum_that_is_met():
    facts = "machine_type=a4-highgpu-8g nodes=2 collective=all_gather"
    result = result_of([254.0, 255.0, 256.0], first=2 * GIB, facts=facts)
    assert "nccl-one-slow" in ids(result)
    assert result.outcome is Outcome.PASS
    assert result_of([245.0, 245.0, 245.0], first=2 * GIB, facts=facts).outcome is Outcome.FAIL


def test_over_the_fabric_on_one_node_another_minimum_holds():
    facts = "machine_type=gpu-h100-sxm/8gpu-128vcpu-1600gb nodes=1 collective=all_reduce"
    busbw = [46.0, 47.0, 48.0, 48.5, 48.5]
    lines = measured("all_reduce", busbw, first=512 * MIB, ranks=8)
    for over, word in (("", Outcome.FAIL), (" over=fabric", Outcome.PASS)):
        text = log("all_reduce", lines, hosts=("worker-0",), facts=facts + over)
        assert check(read_text(text, "x.log")).outcome is word


def test_the_footer_and_the_rows_must_agree():
    text = log(facts=A3_MEGA)
    rows = [row for row in text.split("\n") if not row.startswith(f"{SIZES[9]:12d}")]
    assert "nccl-average-differs" in ids(check(read_text("\n".join(rows), "x.log")))


def test_what_is_given_is_taken_before_what_the_log_says():
    text = log(facts=A3_MEGA)
    result = check(read_text(text, "x.log"), Given(nodes=4))
    assert result.subject.nodes == 4
    assert "nccl-nodes-differ" in ids(result)
    assert result.subject.reference is None


@pytest.mark.parametrize(
    ("hosts", "word"), [(("a", "b"), Outcome.PASS), (("a",), Outcome.FAIL), (tuple("abcd"), Outcome.PASS)]
)
def test_a_run_on_fewer_nodes_than_it_is_compared_with_fails(hosts, word):
    text = log(lines=measured(busbw=scaled(2.0)), hosts=hosts, facts=A3_MEGA)
    result = check(read_text(text, "x.log"))
    assert ("nccl-nodes-differ" in ids(result)) == (len(hosts) != 2)
    assert result.outcome is word


class TestReferences:
    @pytest.mark.parametrize("row", REFERENCES.values(), ids=lambda row: f"{row.machine_type}-{row.collective}")
    def test_has_its_sources_and_meets_itself(self, row):
        assert row.minimums or row.busbw
        assert all(one.source and one.low <= one.high and one.busbw > 0 for one in row.minimums)
        assert bool(row.busbw) == bool(row.curve_source)
        for minimum in row.minimums:
            inside = [busbw for size, busbw in row.busbw.items() if minimum.low <= size <= minimum.high]
            if {minimum.low, minimum.high} <= set(row.busbw):
                assert sum(inside) / len(inside) >= minimum.busbw
        assert list(row.busbw.values()) == sorted(row.busbw.values())

    def test_machine_types_are_the_catalogs_or_azures(self):
        names = {row.machine_type for row in REFERENCES.values()}
        assert {name for name in names if not name.startswith("Standard_")} <= set(MACHINE_TYPES)

    def test_the_guides_average(self):
        row = REFERENCES["a3-megagpu-8g", "all_gather", 2, False]
        assert row.average == pytest.approx(126.4, abs=0.2)
        assert row.busbw[8 * MIB] == 22.52
        assert row.busbw[8 * GIB] == 188.23


def test_an_unknown_machine_type_gets_the_nearest_names():
    result = check(read_text(log(), "x.log"), Given(machine_type="a3-mega-8g", nodes=2))
    (finding,) = (one for one in result.findings if one.id == "nccl-no-reference")
    assert "'a3-mega-8g' is no machine type of the catalog" in finding.what
    assert finding.todo.startswith("write a3-megagpu-8g")
