"""Results: what a curve means, and which rule decides."""

from collections.abc import Callable
from typing import Any

import pytest

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.nccl import REFERENCES
from cluster.report.nccl_log import read_file, read_text
from cluster.report.nccl_result import NcclResult, ReportOptions, ReportOutcome, check
from tests.cluster.report.nccl_logs import A3_MEGA, FORMATS, GIB, GUIDE, MIB, SIZES, log, measured

A4 = "machine_type=a4-highgpu-8g nodes=2 collective=all_gather"


def result_of(busbw=GUIDE, *, facts=A3_MEGA, extra="", **options) -> NcclResult:
    text = log(lines=measured(busbw=busbw, **options), facts=facts)
    return check(read_text(extra + text, "x.log"))


def ids(result: NcclResult) -> set[str]:
    return {finding.id for finding in result.findings}


def adapters(host: str, ports: int) -> str:
    """The line that ncclIbInit prints (NVIDIA/nccl v2.30.7-1, src/transport/net_ib/init.cc)."""
    found = "".join(f" [{number}]mlx5_{number}:1/IB" for number in range(ports))
    return f"{host}:1:1 [0] NCCL INFO NET/IB : Using{found} [RO]; OOB eth0:10.0.0.1<0>\n"


def scaled(factor: float) -> list[float]:
    return [busbw * factor for busbw in GUIDE]


def edited(*changes: tuple[str, str], given: ReportOptions | None = None, **options: Any) -> NcclResult:
    """The result of a log of the guide's run, or of another, that was edited."""
    options.setdefault("facts", A3_MEGA)
    text = log(**options)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return check(read_text(text, "x.log"), *([given] if given else []))


def of(machine_type: str, nodes: int, collective: str, busbw: list[float], *, ranks: int, **more: Any) -> NcclResult:
    """A log of another machine type."""
    hosts = more.pop("hosts", ("a3-0", "a3-1", "a3-2", "a3-3")[:nodes])
    facts = f"machine_type={machine_type} nodes={nodes} collective={collective}{more.pop('over', '')}"
    lines = measured(collective, busbw, first=more.pop("first", SIZES[0]), ranks=ranks)
    text = more.pop("extra", "") + log(collective, lines, hosts=hosts, per_host=ranks // nodes, facts=facts)
    return check(read_text(text, "x.log"))


SOCKET = "a3-0:1:1 [0] NCCL INFO Using network Socket\n"
H100 = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
RING = "a3-0:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
SOUND = [356.0, 402.0, 431.0, 449.0, 459.0, 465.0, 469.0]
ONE_NIC = [min(busbw, 23.5) for busbw in GUIDE]
ROW = next(row for row in log().split("\n") if row.startswith(f"{SIZES[9]:12d}"))
CASES: dict[str, Callable[[], NcclResult]] = {
    "the guide's run": lambda: check(
        read_file("tests/cluster/report/guide_nccl.log"),
        ReportOptions(machine_type="a3-megagpu-8g", nodes=2, collective="all_gather"),
    ),
    "91 % of it": lambda: result_of(scaled(0.91)),
    "89 % of it": lambda: result_of(scaled(0.89)),
    "60 % of it": lambda: result_of(scaled(0.6)),
    "TCP's level": lambda: result_of([3, 5, 8, 10, 12, 14, 16, 17, 17.5, 18, 18]),
    "over sockets": lambda: result_of(extra=SOCKET),
    "a plateau at six of eight NICs": lambda: result_of([min(busbw, 141.0) for busbw in GUIDE]),
    "small messages alone": lambda: result_of([0.01 * 2**number for number in range(16)], first=8),
    "wrong results": lambda: edited(("      0  ", "     12  "), ("values : 0 OK", "values : 12 FAILED")),
    "bandwidth that falls": lambda: result_of([*GUIDE[:-3], 150.0, GUIDE[-2], GUIDE[-1]]),
    "in place at 80 %": lambda: result_of(in_place=0.8),
    "in place at 97 %": lambda: result_of(in_place=0.97),
    "four nodes, for which there is no reference": lambda: of("a3-megagpu-8g", 4, "all_gather", scaled(0.5), ranks=32),
    # They can't join a GPU cluster: TCP is what they should use.
    "machines with one GPU of a host": lambda: of(
        "gpu-h100-sxm/1gpu-16vcpu-200gb", 2, "all_reduce", [3.0] * 5, first=512 * MIB, ranks=2, extra=SOCKET
    ),
    # Small sizes weigh less, or more, in them than in what the minimum was measured with.
    "sizes in other steps": lambda: edited(lines=[row for row in measured() if row.size in SIZES[::5]]),
    "sizes between": lambda: edited(
        lines=sorted([*measured(), *measured(first=12 * MIB)[:-1]], key=lambda row: row.size)
    ),
    **{
        f"{name} at one NIC's level, which each GPU has": lambda name=name: of(
            "a3-megagpu-8g", 2, name, ONE_NIC, ranks=16
        )
        for name in ("sendrecv", "alltoall")
    },
    "sendrecv over sockets": lambda: of("a3-megagpu-8g", 2, "sendrecv", ONE_NIC, ranks=16, extra=SOCKET),
    "a minimum that is met below 65 % of the line rate": lambda: result_of(
        [254.0, 255.0, 256.0], first=2 * GIB, facts=A4
    ),
    "a minimum that is met above it": lambda: result_of([262.0, 263.0, 264.0], first=2 * GIB, facts=A4),
    # Half of the NICs and all of them: NVLSTree makes no difference visible that a verdict could stand on.
    **{
        f"all_reduce on two nodes, {name}": lambda busbw=busbw, extra=extra: of(
            H100, 2, "all_reduce", busbw, first=256 * MIB, ranks=16, extra=extra
        )
        for name, busbw, extra in (
            ("4 of 8 NICs", [322.0, 345.0, 356.0, 358.0, 359.0, 360.0, 360.0], ""),
            ("sound", SOUND, ""),
            ("4 of 8 NICs in a ring", [181.0, 188.0, 190.0, 191.0, 192.0, 192.0, 192.0], RING),
        )
    },
    "all_gather on two nodes with InfiniBand, 5 of 8 NICs": lambda: of(
        H100, 2, "all_gather", [232.0, 238.0, 240.0, 241.0, 242.0], first=512 * MIB, ranks=16
    ),
    "NVLink between the nodes": lambda: of(
        H100, 2, "all_gather", [650.0, 680.0, 690.0, 695.0, 700.0], first=512 * MIB, ranks=16
    ),
    "6 of 8 ports active on one node": lambda: of(
        H100,
        2,
        "all_gather",
        [279.0, 285.0, 287.0, 289.0, 290.0],
        first=512 * MIB,
        ranks=16,
        extra=adapters("a3-0", 8) + adapters("a3-1", 6),
    ),
    "a minimum that is not met": lambda: result_of([245.0] * 3, first=2 * GIB, facts=A4),
    **{
        f"one node{over}": lambda over=over: of(
            H100, 1, "all_reduce", [46.0, 47.0, 48.0, 48.5, 48.5], first=512 * MIB, ranks=8, over=over
        )
        for over in ("", " over=fabric")
    },
    "a footer that does not agree with its rows": lambda: edited((f"{ROW}\n", "")),
    "nodes that were given": lambda: edited(given=ReportOptions(nodes=4)),
    "fewer nodes than it is compared with": lambda: edited(lines=measured(busbw=scaled(2.0)), hosts=("a",)),
    "more nodes": lambda: edited(lines=measured(busbw=scaled(2.0)), hosts=tuple("abcd")),
    "a collective that nothing names": lambda: edited(facts="machine_type=a3-megagpu-8g nodes=2"),
    "a machine type that is none": lambda: edited(
        facts="", given=ReportOptions(machine_type="a3-mega-8g", nodes=2, collective="all_gather")
    ),
}


def shown(result: NcclResult) -> str:
    """Outcome, reasons and findings."""
    marks = {True: "met", False: "not met", None: "not compared"}
    reasons = [f"{marks[reason.met]}: {reason.text}" for reason in result.reasons]
    return "\n".join(
        [
            result.outcome.name,
            *reasons,
            *(f"{finding.id}: {finding.what}. To do: {finding.todo}" for finding in result.findings),
        ]
    )


def test_results_of_curves(reviewed):
    reviewed("report/results", {case: shown(made()) for case, made in CASES.items()})


@pytest.mark.parametrize("word", ["starting", "concluded"])
def test_all_reduce_between_nodes_is_never_a_pass_nor_a_fail_whichever_line_names_it(word):
    busbw = [322.0, 345.0, 356.0, 358.0, 359.0, 360.0, 360.0]
    text = log("all_reduce", measured("all_reduce", busbw, first=256 * MIB), form=FORMATS[2])
    other = {"starting": "concluded", "concluded": "starting"}[word]
    text = "\n".join(line for line in text.split("\n") if f"Collective test {other}" not in line)
    result = check(read_text(text, "x.log"), ReportOptions(machine_type=H100, nodes=2))
    assert (result.outcome, result.subject.collective) == (ReportOutcome.NONE, "all_reduce")
    assert "nccl-nics-unproven" in ids(result)


@pytest.mark.parametrize("nodes", [2, 4, 16])
@pytest.mark.parametrize("name", [name for name, kind in MACHINE_TYPES.items() if kind.line_rate])
def test_a_fabric_that_is_not_used_fails_on_any_number_of_nodes(name, nodes):
    kind = MACHINE_TYPES[name]
    rate, collective = kind.line_rate, "all_gather"
    assert rate
    facts = f"machine_type={name} nodes={nodes} collective={collective}"
    hosts = tuple(f"n-{number}" for number in range(nodes))

    def word(busbw):
        lines = measured(collective, [busbw] * 5, first=512 * MIB, ranks=nodes * rate.nics)
        text = log(collective, lines, hosts=hosts, per_host=rate.nics, facts=facts)
        result = check(read_text(text, "x.log"))
        assert ("nccl-fabric-inactive" in ids(result)) == (busbw <= 1.2 * rate.nic)
        return result.outcome

    assert word(3.1) is ReportOutcome.FAIL
    assert word(1.19 * rate.nic) is ReportOutcome.FAIL
    if (name, collective, nodes, False) not in REFERENCES:
        assert word(1.3 * rate.nic) is word(0.64 * rate.total) is ReportOutcome.FAIL
        assert word(0.7 * rate.total) is ReportOutcome.PASS


class TestReferences:
    @pytest.mark.parametrize("row", REFERENCES.values(), ids=lambda row: f"{row.machine_type}-{row.collective}")
    def test_a_reference_has_sources_and_meets_its_minimums(self, row):
        assert row.minimums or row.busbw
        assert all(minimum.source and minimum.low <= minimum.high and minimum.busbw > 0 for minimum in row.minimums)
        assert bool(row.busbw) == bool(row.curve_source)
        for minimum in row.minimums:
            inside = [busbw for size, busbw in row.busbw.items() if minimum.low <= size <= minimum.high]
            if {minimum.low, minimum.high} <= set(row.busbw):
                assert sum(inside) / len(inside) >= minimum.busbw
        assert list(row.busbw.values()) == sorted(row.busbw.values())

    def test_machine_types_are_in_the_catalog_or_azures(self):
        names = {row.machine_type for row in REFERENCES.values()}
        assert {name for name in names if not name.startswith("Standard_")} <= set(MACHINE_TYPES)

    def test_the_guides_average(self):
        row = REFERENCES["a3-megagpu-8g", "all_gather", 2, False]
        assert row.average == pytest.approx(126.4, abs=0.2)
        assert row.busbw[8 * MIB] == 22.52
        assert row.busbw[8 * GIB] == 188.23
