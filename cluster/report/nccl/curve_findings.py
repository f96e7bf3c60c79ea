"""What the curve of a run means: bandwidth over message size, beside a reference or the hardware's line rate."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from cluster.catalog.families import Fabric
from cluster.findings import Finding, Level
from cluster.report.nccl.collective import is_of_nodes, is_ring
from cluster.report.nccl.run import Run, text_of
from cluster.report.nccl.subject import Subject

LARGE = 256 * 2**20
"""From this size on a transfer takes milliseconds, and bandwidth decides instead of latency."""

_SLOW = 0.9
"""Share of the reference below which a plateau is too low: the guide's own rule for A3 Mega at 8 GiB."""
SLOW_OF_LINE = 0.65
"""Share of the line rate: the three curves of the catalog reach 71 to 94 % of it."""
FLOOR_NICS = 1.2
"""TCP over one NIC reaches what so many of a node's NICs carry, so the network of the GPUs need not be in use. On A3
Mega it is 30 GB/s, which Google's own test of the blueprint requires."""
_FLAT, _DROP, _SPREAD = 0.05, 0.05, 0.10
_GROWS_FROM = 8 * 2**20
"""Below, NCCL changes its protocol from size to size, and bandwidth may fall."""

_DEBUG = "run again with `NCCL_DEBUG=INFO`: the line `Using network` names the network that NCCL takes"
_ENVIRONMENT = {
    Fabric.TCPXO: "check that the job reads the cluster's env.sh and passes NCCL's variables and /var/lib/tcpxo/lib64 "
    "into the container, and that the prolog started the receive data path manager on every node",
    Fabric.TCPX: "check NCCL's variables of the job, and the receive data path manager on every node",
    Fabric.INFINIBAND: "check that the nodes have their InfiniBand devices (`ibstat`) and NCCL_IB_HCA names them",
    Fabric.RDMA: "check that the nodes have their RDMA devices (`ibv_devinfo`), and the gIB plugin of the job",
}


def curve_findings(run: Run, subject: Subject, where: str) -> Iterator[Finding]:
    """Findings about bandwidth; none where the log has no rows."""
    curve = run.curve()
    if not curve:
        return
    if run.complete and (largest := max(curve)) < LARGE:
        yield Finding(
            id="nccl-small-only",
            level=Level.INFO,
            at=where,
            what=f"Small messages only: the largest is {text_of(largest)}, so this is about latency, not bandwidth",
            todo="run sizes up to 8 GiB (`-b 8M -e 8G -f 2`) to measure the bandwidth",
        )
    inactive = _inactive(run, subject, curve)
    if inactive:
        yield Finding(
            id="nccl-fabric-inactive",
            at=where,
            what=f"{_name(subject.fabric)} not active: {inactive}",
            todo=f"{_ENVIRONMENT.get(subject.fabric, 'check the network of the GPUs')}; {_DEBUG}",
        )
    elif low := _plateau(subject, curve):
        yield Finding(
            id="nccl-one-slow",
            # Beside the line rate only it is a guess, and a minimum decides.
            level=Level.ERROR if subject.reference and subject.reference.busbw else Level.WARNING,
            at=where,
            what=f"{low}. A collective runs at the pace of its slowest member: one node slow, or one of its NICs, GPUs "
            "or links. The log does not say which",
            todo="measure pairs of nodes, which names the slow one: `./hpc nccl run STACK --pairs`",
        )
    yield from _growth(run, subject, where)
    yield from _spread(run, where)


def _inactive(run: Run, subject: Subject, curve: Mapping[int, float]) -> str:
    """Why the GPUs' network seems not to be in use; empty if it does not seem so."""
    if subject.fabric is Fabric.NONE:
        return ""
    if "Socket" in run.networks:
        return "NCCL says that it uses the network Socket, which is TCP through the kernel"
    best, rate, reference = best_large(curve), subject.line_rate, subject.reference
    if best is None:
        return ""
    if rate and best <= FLOOR_NICS * rate.nic and is_of_nodes(subject.collective):
        beside = f"the reference has {max(reference.busbw.values()):.0f} and " if reference and reference.busbw else ""
        return (
            f"at most {best:.1f} GB/s at large sizes, where {beside}the GPUs' NICs carry {rate.total:.0f}. "
            f"That is TCP's level ({rate.nic:.0f} GB/s by one NIC)"
        )
    if reference and reference.inactive and set(reference.busbw) <= set(curve):
        average = run.mean(reference.busbw)
        if average is not None and average < reference.inactive:
            return (
                f"the average is {average:.1f} GB/s, below {reference.inactive:.0f}. Large sizes are above what TCP "
                "reaches, so some NICs may be in use and others not"
            )
    return ""


def best_large(curve: Mapping[int, float]) -> float | None:
    """The highest busbw at large sizes; None where none was measured."""
    return max((busbw for size, busbw in curve.items() if size >= LARGE), default=None)


def _plateau(subject: Subject, curve: Mapping[int, float]) -> str:
    """A plateau that is too low, in words; empty if there is none."""
    large = {size: busbw for size, busbw in curve.items() if size >= LARGE}
    if len(large) < 3:
        return ""
    top = dict(list(large.items())[-3:])
    flat = max(top.values()) - min(top.values()) <= _FLAT * max(top.values())
    level = sum(top.values()) / len(top)
    reference = subject.reference.busbw if subject.reference else {}
    if common := [size for size in top if size in reference]:
        share = sum(top[size] / reference[size] for size in common) / len(common)
        if share < _SLOW:
            shape = "Plateau" if flat else "Large sizes are"
            return f"{shape} at {level:.0f} GB/s, {share:.0%} of the reference{_nics(share, subject)}"
    elif flat and subject.line_rate and is_ring(subject.collective):
        share = level / subject.line_rate.total
        if share < SLOW_OF_LINE and not reference:
            return f"Plateau at {level:.0f} GB/s, {share:.0%} of the line rate{_nics(share, subject)}"
    return ""


def _nics(share: float, subject: Subject) -> str:
    """How many NICs would carry that share, where it is close to a whole number of them."""
    nics = subject.line_rate.nics if subject.line_rate else 0
    whole = round(share * nics)
    if nics < 2 or not 0 < whole < nics or abs(share * nics - whole) > 0.2:
        return ""
    return f", which is about what {whole} of {nics} NICs carry"


def _growth(run: Run, subject: Subject, where: str) -> Iterator[Finding]:
    curve = {size: busbw for size, busbw in run.curve().items() if size >= _GROWS_FROM}
    drops = [
        f"from {low:.1f} GB/s at {text_of(one)} to {high:.1f} at {text_of(other)}"
        for (one, low), (other, high) in pairwise(curve.items())
        if high < low * (1 - _DROP)
    ]
    if drops:
        yield Finding(
            id="nccl-drop",
            level=Level.ERROR if subject.reference else Level.WARNING,
            at=where,
            what=f"Bandwidth falls with the size: {'; '.join(drops)}. It should grow, up to a plateau",
            todo="run it again while no other job uses these nodes; if it falls again, compare pairs of nodes",
        )


def _spread(run: Run, where: str) -> Iterator[Finding]:
    apart = [
        text_of(row.size)
        for row in run.rows
        if row.size >= LARGE
        and row.out_of_place
        and row.in_place
        and abs(row.out_of_place.time_us - row.in_place.time_us)
        > _SPREAD * max(row.out_of_place.time_us, row.in_place.time_us)
    ]
    if len(apart) >= 2:
        yield Finding(
            id="nccl-unsteady",
            level=Level.WARNING,
            at=where,
            what=f"Out of place and in place differ by more than {_SPREAD:.0%} at {', '.join(apart)}: something else "
            "used the network or a GPU was throttled for a part of the run",
            todo="run it again, with more iterations (`-n 200`) and no other job on these nodes",
        )


def _name(fabric: Fabric) -> str:
    """TCPXO of GPUDirect-TCPXO."""
    return fabric.value.removeprefix("GPUDirect").strip("- ") or fabric.value
