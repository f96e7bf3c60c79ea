"""Curves as a picture: a PNG, by matplotlib."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.printable import one_line
from cluster.report.palette import DASHES, LIGHT, REFERENCE, SERIES

SIZE = (1080, 600)
"""Width and height of a PNG in pixels."""

_DPI = 120
_MARKERS = "osD^v*"
_MOST = 1e30
"""Largest number that is drawn. No measurement is larger, and larger numbers overflow in matplotlib."""
_CHARACTERS = 120
"""Characters that fit below a PNG's x axis."""
_TITLE, _NAME = 72, 90
"""Characters that fit into a PNG's title, which is bold, and into a name of its legend."""
_MOST_MARKERS = 40
"""Most markers on a curve of a PNG."""


@dataclass(frozen=True)
class Curve:
    """A named line."""

    name: str
    points: Sequence[tuple[float, float]]
    """x and y. Points are not drawn if they are not finite or above 1e30, or if x <= 0 on a logarithmic axis."""
    reference: bool = False
    """True for a reference, to compare others with: dashed."""


def save_png(
    curves: Sequence[Curve],
    path: Path | str,
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    x_log: bool = False,
    x_ticks: Mapping[float, str] | None = None,
) -> None:
    """Write `curves` to `path` as a PNG of `SIZE`.

    `x_ticks`: texts for positions of the x axis, such as {8388608: "8 MiB"}; by default numbers.
    Raises OSError if the file can't be written, ValueError if no curve has a point, ModuleNotFoundError without
    matplotlib.
    """
    lines = drawable(curves, x_log=x_log)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"text.parse_math": False, "font.size": 10}):  # names of files may contain a $
        figure = Figure(figsize=(SIZE[0] / _DPI, SIZE[1] / _DPI), dpi=_DPI, layout="constrained")
        axes = FigureCanvasAgg(figure).figure.add_subplot()
        measured = 0
        for number, line in enumerate(lines):
            drawn: dict[str, Any] = {"color": REFERENCE, "linestyle": (0, (5, 3)), "linewidth": 1.8}
            if not line.reference:
                cycle, at = divmod(measured, len(SERIES))
                many = len(line.points) > _MOST_MARKERS
                drawn = {
                    "color": SERIES[at],
                    "linestyle": (0, DASHES[at]) if DASHES[at] and not many else "solid",
                    "linewidth": 1.2 if many else 2.2,
                    "marker": _MARKERS[(at + cycle) % len(_MARKERS)],  # a repeated colour has another marker
                    "markersize": 5,
                    "markevery": -(-len(line.points) // _MOST_MARKERS),
                }
                measured += 1
            # Without clipping, a marker on the axis is complete.
            axes.plot(*zip(*line.points, strict=True), label=str(number), clip_on=False, zorder=3, **drawn)
        if x_log:
            axes.set_xscale("log", base=2)
        xs = [x for line in lines for x, _ in line.points]
        if ticks := select_ticks(x_ticks or {}, min(xs), max(xs), _CHARACTERS):
            axes.set_xticks(list(ticks), [one_line(text) for text in ticks.values()])
            axes.minorticks_off()
        axes.set_ylim(bottom=None if min(y for line in lines for _, y in line.points) < 0 else 0)
        axes.grid(visible=True, color=LIGHT["grid"], linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(shorten(title, _TITLE), loc="left", fontweight="bold")
        axes.set_xlabel(one_line(x_label))
        axes.set_ylabel(one_line(y_label))
        if len(lines) > 1:  # matplotlib omits names that begin with an underscore, so they are set afterwards
            names = [shorten(line.name, _NAME) for line in lines]
            columns = min(3, len(lines), max(1, _CHARACTERS // (max(map(len, names)) + 8)))
            legend = figure.legend(loc="outside lower center", ncols=columns, frameon=False)
            for text, name in zip(legend.get_texts(), names, strict=True):
                text.set_text(name)
        figure.savefig(path, format="png")


def shorten(text: str, longest: int) -> str:
    """Return text on one line, cut at `longest` characters."""
    line = one_line(text)
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def drawable(curves: Sequence[Curve], *, x_log: bool) -> list[Curve]:
    """Return the curves with the points that can be drawn. Raises ValueError if there are none."""
    found: list[Curve] = []
    for curve in curves:
        points = [(x, y) for x, y in curve.points if abs(x) <= _MOST and abs(y) <= _MOST and (x > 0 or not x_log)]
        if points:
            found.append(Curve(curve.name, sorted(points), curve.reference))
    if not found:
        raise ValueError("no curve has a point to draw")
    return found


def select_ticks(ticks: Mapping[float, str], low: float, high: float, width: int) -> dict[float, str]:
    """Return every n-th tick between `low` and `high`, counted from the last one, so that texts do not touch."""
    inside = {x: text for x, text in sorted(ticks.items()) if low <= x <= high}
    if not inside:
        return {}
    room = max(1, (width - 8) // (max(map(len, inside.values())) + 2))
    every = -(-len(inside) // room)
    return dict(list(inside.items())[::-every][::-1])
