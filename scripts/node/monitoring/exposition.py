"""Metrics as text of Prometheus (format 0.0.4), as node_exporter's textfile collector reads it. Pure functions.

Values of labels come from Slurm and from people: each is escaped and shortened, and a metric has a limited number of
series, so that nothing that somebody chooses as a name makes the file unreadable or Prometheus large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from system.host import printable

LONGEST = 128  # characters of a label's value
MOST = 20_000  # series of a metric: more than a cluster has nodes
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """A value of a gauge. Names of metrics and labels are constants of ours."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


def render(samples: Iterable[Sample]) -> str:
    """The samples as text, those of one metric together. Of two with the same labels the last counts."""
    metrics: dict[str, dict[str, float]] = {}
    for name, value, labels in samples:
        series = metrics.setdefault(name, {})
        text = f"{{{','.join(f'{key}={_quoted(labels[key])}' for key in labels)}}}" if labels else ""
        if text in series or len(series) < MOST:
            series[text] = value
    lines: list[str] = []
    for name, series in sorted(metrics.items()):
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name}{text} {value:.15g}" for text, value in series.items()]
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str) -> str:
    return f'"{printable(value)[:LONGEST].translate(_ESCAPES)}"'
