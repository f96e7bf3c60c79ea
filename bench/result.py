"""What a case has measured."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Series:
    """One thing measured several times."""

    name: str
    values: tuple[float, ...]
    unit: str = "s"
    at: float | None = None
    """Where on the x axis, if the series is a point of a curve."""

    @property
    def median(self) -> float:
        """The middle value, which one slow round does not move."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The greatest value."""
        return max(self.values)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a case holds us to: that `value` stays below `limit`."""

    what: str
    value: float
    limit: float
    unit: str = "s"
    """`s`, or `x` for a ratio."""

    @property
    def met(self) -> bool:
        """Whether it is so."""
        return self.value < self.limit


@dataclass(frozen=True, kw_only=True)
class Result:
    """A case's answer."""

    case: str
    title: str
    series: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()
    seconds: float = 0.0
    """What the whole case took."""
    problem: str = ""
    """Why there is no answer, if there is none."""

    @property
    def ok(self) -> bool:
        """Whether there is an answer, and every claim is met."""
        return not self.problem and all(claim.met for claim in self.claims)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The answers of one run, and where they were found."""

    machine: Mapping[str, str]
    date: str
    results: Sequence[Result] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Report":
        """The opposite of `to_json`, after a trip through a file."""
        results = [
            Result(
                **{
                    **row,
                    "series": tuple(Series(**{**one, "values": tuple(one["values"])}) for one in row["series"]),
                    "claims": tuple(Claim(**one) for one in row["claims"]),
                }
            )
            for row in document["results"]
        ]
        return cls(machine=document["machine"], date=document["date"], results=tuple(results))

    def merged(self, newer: "Report") -> "Report":
        """This report with the answers of a newer run in the place of its own, in this one's order."""
        there = {result.case: result for result in newer.results}
        kept = [there.pop(result.case, result) for result in self.results]
        return Report(machine=newer.machine, date=newer.date, results=(*kept, *there.values()))


def ratio(ours: Series, theirs: Series) -> float:
    """The median of ours to theirs, round by round, so that what slows the machine down for a while slows both."""
    return statistics.median(a / b for a, b in zip(ours.values, theirs.values, strict=True))
