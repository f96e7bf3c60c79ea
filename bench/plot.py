"""The answers as a picture: what was measured against its goal, and the curve of the cluster sizes. Plain SVG."""

from collections.abc import Iterator, Sequence
from html import escape

from bench.report import quantity
from bench.result import Claim, Report, Series

WIDTH = 860
ROW = 44
LEFT, RIGHT = 290, 110
CURVE = 280
_FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
_INK, _DIM, _GRID, _GOOD, _BAD = "#1f2933", "#616e7c", "#e4e7eb", "#2f7d6d", "#c2410c"


def svg(report: Report) -> str:
    """The whole picture."""
    claims = [claim for result in report.results for claim in result.claims]
    curve = next((result.series for result in report.results if result.case == "nodes" and result.series), ())
    top = 84 + ROW * len(claims)
    height = top + (CURVE + 70 if curve else 10)
    parts = [*_bars(claims), *(_curve(curve, top) if curve else ())]
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' "
        f"{_FONT} font-size='14' fill='{_INK}'>\n"
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _bars(claims: Sequence[Claim]) -> Iterator[str]:
    """Every claim as a bar whose goal is at the same place for all."""
    room = WIDTH - LEFT - RIGHT
    most = max([1.25, *(min(claim.value / claim.limit, 2.0) for claim in claims)])
    goal = LEFT + room / most
    yield _text(24, 34, "Measured, as a share of its goal", size=17, weight=600)
    foot = 70 + ROW * len(claims)
    yield f"<line x1='{goal:.1f}' y1='66' x2='{goal:.1f}' y2='{foot}' stroke='{_DIM}' stroke-dasharray='4 4'/>"
    yield _text(goal, 58, "goal", anchor="middle", fill=_DIM, size=12)
    for number, claim in enumerate(claims):
        y = 74 + ROW * number
        length = room / most * min(claim.value / claim.limit, most)
        yield _text(LEFT - 14, y + 14, claim.what, anchor="end")
        yield _text(LEFT - 14, y + 30, f"under {quantity(claim.limit, claim.unit)}", anchor="end", fill=_DIM, size=12)
        yield (
            f"<rect x='{LEFT}' y='{y + 4}' width='{max(length, 2):.1f}' height='24' rx='3' "
            f"fill='{_GOOD if claim.met else _BAD}'/>"
        )
        yield _text(LEFT + max(length, 2) + 9, y + 21, quantity(claim.value, claim.unit), weight=600, halo=True)


def _curve(series: Sequence[Series], top: float) -> Iterator[str]:
    """Seconds by number of nodes: the median as a line, least and most as whiskers."""
    points = sorted((one for one in series if one.at is not None), key=lambda one: one.at or 0)
    right = max(one.at or 0 for one in points) * 1.06
    step = _step(max(one.high for one in points))
    upper = step * (int(max(one.high for one in points) / step) + 1)
    x0, x1, y0, y1 = 74.0, WIDTH - 40.0, top + CURVE, top + 40.0

    def at(nodes: float, seconds: float) -> tuple[float, float]:
        return x0 + (x1 - x0) * nodes / right, y0 - (y0 - y1) * seconds / upper

    yield _text(24, top + 18, "First up, seconds by number of nodes", size=17, weight=600)
    for number in range(int(upper / step) + 1):
        y = at(0, number * step)[1]
        yield f"<line x1='{x0}' y1='{y:.1f}' x2='{x1}' y2='{y:.1f}' stroke='{_GRID}'/>"
        yield _text(x0 - 10, y + 4, f"{number * step:g}", anchor="end", fill=_DIM, size=12)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(one.at or 0, one.median) for one in points))
    yield f"<polyline points='{line}' fill='none' stroke='{_GOOD}' stroke-width='2.5'/>"
    for one in points:
        x, y = at(one.at or 0, one.median)
        low, high = at(one.at or 0, one.low)[1], at(one.at or 0, one.high)[1]
        yield f"<line x1='{x:.1f}' y1='{low:.1f}' x2='{x:.1f}' y2='{high:.1f}' stroke='{_GOOD}' stroke-width='1.5'/>"
        yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4.5' fill='{_GOOD}'/>"
        yield _text(x, y - 12, quantity(one.median, one.unit), anchor="middle", weight=600, size=13)
        yield _text(x, y0 + 20, f"{one.at:g}", anchor="middle", fill=_DIM, size=12)
    yield _text((x0 + x1) / 2, y0 + 42, "nodes", anchor="middle", fill=_DIM, size=12)


def _step(most: float) -> float:
    """A round distance of grid lines that gives about five of them."""
    return next((step for step in (0.5, 1, 2, 5, 10, 20, 50, 100) if most / step <= 6), 200)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    fill: str = _INK,
    size: int = 14,
    weight: int = 400,
    halo: bool = False,
) -> str:
    """A line of text; with a halo it can be read where a line runs behind it."""
    around = " stroke='#ffffff' stroke-width='5' paint-order='stroke'" if halo else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{fill}' font-size='{size}' "
        f"font-weight='{weight}'{around}>{escape(text)}</text>"
    )
