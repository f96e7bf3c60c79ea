"""Figures of pages, as inline SVG in the palette's colours: curves, bars, and machines on their networks."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cluster.report.html import Html, element, figure
from cluster.report.palette import DASHES, SERIES
from cluster.report.plot import Curve, drawable, round_values, scale, select_ticks, shorten

_WIDTH = 760
_LETTER = 7.4
"""Width of a character of 13 px, on average."""
_MARKERS = (
    "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0z",
    "M-3.5,-3.5h7v7h-7z",
    "M0,-5l5,5l-5,5l-5,-5z",
    "M0,-5l5,9h-10z",
    "M0,5l5,-9h-10z",
    "M-4,-4l8,8m0,-8l-8,8",
)
_MOST_MARKERS = 40
_LONGEST_NAME = 90


def _label(x: float, y: float, words: object, anchor: str = "start", class_: str | None = None) -> Html:
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def _path(d: str, stroke: str, width: float = 1, *, fill: str = "none", dash: Sequence[int] = (), at: str = "") -> Html:
    style = f"stroke:var(--{stroke});stroke-width:{width:g};fill:{fill}"
    style += f";stroke-dasharray:{','.join(map(str, dash))}" if dash else ""
    return element("path", d=d, style=style, transform=at or None)


def chart(
    name: str,
    title: str,
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    x_ticks: Mapping[float, str] | None = None,
) -> Html:
    """Return a figure of curves that differ by colour, marker and dash. Raises ValueError if no curve has a point."""
    lines = drawable(curves, x_log=x_log)
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    values = round_values(min(0.0, *ys), max(ys))
    texts = x_ticks or {x: f"{x:g}" for x in (xs if x_log else round_values(min(xs), max(xs)))}
    texts = select_ticks(texts, min(xs), max(xs), _WIDTH // 8) or {min(xs): f"{min(xs):g}"}
    left, right, top, bottom = 16 + _LETTER * max(len(f"{y:g}") for y in values), _WIDTH - 40.0, 34.0, 280.0
    x_at, y_at = scale(min(xs), max(xs), log=x_log), scale(values[0], values[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        return left + 8 + (right - left - 8) * x_at(x), bottom - (bottom - top) * y_at(y)

    parts = [_label(0, 14, y_label, class_="muted"), _label((left + right) / 2, 320, x_label, "middle", "muted")]
    for y in values:
        height = at(xs[0], y)[1]
        parts += [
            _path(f"M{left:.1f},{height:.1f}H{right:.1f}", "grid"),
            _label(left - 6, height + 4, f"{y:g}", "end"),
        ]
    parts += [_label(at(x, values[0])[0], bottom + 18, words, "middle") for x, words in texts.items()]
    parts.append(_path(f"M{left:.1f},{top}V{bottom}H{right:.1f}", "line"))
    measured, y = 0, 344.0
    for line in lines:
        places = [at(*point) for point in line.points]
        cycle, number = divmod(measured, len(SERIES))
        colour = "reference" if line.reference else f"series-{number}"
        dash = (5, 3) if line.reference else DASHES[number]
        route = "M" + "L".join(f"{px:.1f},{py:.1f}" for px, py in places)
        sample = [_path(f"M{left:.1f},{y - 4}h34", colour, 2, dash=dash)]
        drawn = [_path(route, colour, 2, dash=dash)]
        if not line.reference:
            measured += 1
            shape = _MARKERS[(number + cycle) % len(_MARKERS)]
            every = -(-len(places) // _MOST_MARKERS)
            drawn += [_marker(shape, colour, px, py) for px, py in places[::every]]
            sample.append(_marker(shape, colour, left + 17, y - 4))
        parts += [*drawn, *sample, _label(left + 44, y, shorten(line.name, _LONGEST_NAME))]
        y += 20
    ends = ", ".join(f"{line.name}: {line.points[-1][1]:.4g} at the right end" for line in lines[:12])
    return figure(name, title, f"{y_label} by {x_label}. {ends}.", _WIDTH, y - 8, *parts)


def _marker(shape: str, colour: str, x: float, y: float) -> Html:
    return _path(shape, colour, 1.5, fill=f"var(--{colour})", at=f"translate({x:.1f},{y:.1f})")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A quantity, with a filled part."""

    name: str
    value: float
    part: float | None = None
    """The filled share between 0 and 1; None: the whole bar is filled."""


def format_number(value: float) -> str:
    """Return a number as text: `12,345` or `1.234`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def bars(name: str, title: str, description: str, rows: Sequence[Bar], *, unit: str) -> Html:
    """Return a figure of horizontal bars, each with its number."""
    left = min(300.0, 12 + _LETTER * max(min(len(row.name), 40) for row in rows))
    most = max(1e-9, *(row.value for row in rows))
    room, parts = _WIDTH - left - 170, list[Html]()
    for number, row in enumerate(rows):
        y, width = 8 + 26 * number, room * max(0.0, row.value) / most
        filled = width * min(1.0, max(0.0, 1 if row.part is None else row.part))
        share = "" if row.part is None else f" ({row.part:.0%})"
        parts += [
            _label(left - 8, y + 14, shorten(row.name, 38), "end"),
            _path(f"M{left:.1f},{y}h{width:.1f}v18h{-width:.1f}z", "series-0", fill="var(--page)"),
            _path(f"M{left:.1f},{y}h{filled:.1f}v18h{-filled:.1f}z", "series-0", fill="var(--series-0)"),
            _label(left + width + 8, y + 14, f"{format_number(row.value)} {unit}{share}"),
        ]
    return figure(name, title, description, _WIDTH, 16 + 26 * len(rows), *parts)


# -- a cluster --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Machines:
    """A column of the drawing: the controller, the login machines or a nodeset."""

    name: str
    kind: str
    states: Mapping[str, str]
    """A state of `STATES` for each machine, by its name."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A network, a mount or a partition."""

    name: str
    detail: str
    on: Collection[str]
    """Names of the columns that are connected to it."""


STATES = {
    "idle": ("good", "var(--page)", ""),
    "busy": ("series-0", "var(--series-0)", ""),
    "drained": ("warning", "var(--page)", "M1,5.5h9"),
    "down": ("bad", "var(--page)", "M1,1l9,9m0,-9l-9,9"),
    "off": ("line", "var(--page)", "M5,5.5h1"),
    "unknown": ("line", "var(--grid)", ""),
}
"""Colour, fill and sign of a machine's square. States differ not only by colour."""
_MOST_SQUARES = 256
_LABELS, _COLUMN, _COLUMNS, _ROW = 290, 165, 4, 38
MOST_COLUMNS = 16
"""Columns that are drawn; further ones are left out."""


def cluster(
    name: str,
    title: str,
    machines: Sequence[Machines],
    *,
    networks: Sequence[Link],
    mounts: Sequence[Link],
    partitions: Sequence[Link],
) -> list[Html]:
    """Return figures of machines in columns, four in each, between their networks above and their mounts and partitions
    below, and a figure of the signs of states. A dot marks the connection of a column to a line."""
    shown = machines[:MOST_COLUMNS]
    parts = [shown[at : at + _COLUMNS] for at in range(0, len(shown), _COLUMNS)]
    below = (("Mounts", "series-2", mounts), ("Partitions", "series-1", partitions))
    found = [
        _cluster(f"{name}-{number}", f"{title}{f', part {number}' if len(parts) > 1 else ''}", part, networks, below)
        for number, part in enumerate(parts, 1)
    ]
    signs, x = list[Html](), 0.0
    for state in STATES:
        signs += [*_square(state, x, 3), _label(x + 18, 13, state)]
        x += 36 + _LETTER * len(state)
    return [*found, figure(f"{name}-states", "Signs of states", f"In order: {', '.join(STATES)}.", x, 20, *signs)]


def _cluster(
    name: str,
    title: str,
    machines: Sequence[Machines],
    networks: Sequence[Link],
    below: Sequence[tuple[str, str, Sequence[Link]]],
) -> Html:
    width, y, parts = _LABELS + _COLUMN * len(machines), 4.0, list[Html]()
    centre = {column.name: _LABELS + _COLUMN * (at + 0.5) for at, column in enumerate(machines)}
    connected = [link for link in networks if set(link.on) & set(centre)]
    top = y + _links_height(connected)
    parts += _links("Networks", "series-0", connected, y=y, end=top, centre=centre, width=width)
    rows = max((-(-len(column.states) // 10) for column in machines if len(column.states) <= _MOST_SQUARES), default=0)
    lines = max(len(_count_states(column)) for column in machines)
    height = 52 + 13 * rows + 13 * lines
    for column in machines:
        parts += _column(column, centre[column.name], top, height)
    y = top + height
    for heading, colour, links in below:
        connected = [link for link in links if set(link.on) & set(centre)]
        parts += _links(heading, colour, connected, y=y, end=top + height - 6, centre=centre, width=width)
        y += _links_height(connected)
    description = "; ".join(f"{column.name}: {', '.join(_count_states(column))}" for column in machines)
    return figure(name, title, f"{description}.", width, y + 4, *parts)


_SIDES = {"series-0": 0, "series-2": -32, "series-1": 32}
"""Distance of the stubs of networks, mounts and partitions from a column's centre, in pixels."""


def _links_height(links: Sequence[Link]) -> float:
    return 24.0 + _ROW * len(links) if links else 0.0


def _links(
    title: str, colour: str, links: Sequence[Link], *, y: float, end: float, centre: Mapping[str, float], width: float
) -> list[Html]:
    """Return a heading, and a line for each link, with a dot and a stub to `end` at each connected column."""
    if not links:
        return []
    parts = [_label(0, y + 16, title, class_="muted")]
    for number, link in enumerate(links):
        at = y + 38 + _ROW * number
        parts += [
            _label(0, at - 3, shorten(link.name, 34)),
            _label(0, at + 11, shorten(link.detail, 44), class_="muted small"),
            _path(f"M{_LABELS - 20},{at - 2:.1f}H{width - 10:g}", colour),
        ]
        for name in (name for name in centre if name in link.on):
            # Stubs are beside each other, so that none crosses the dots of other lines.
            x = centre[name] + _SIDES[colour] + 50 * ((number + 1) / (len(links) + 1) - 0.5)
            parts += [_path(f"M{x:.1f},{at - 2:.1f}V{end:g}", colour), _marker(_MARKERS[0], colour, x, at - 2)]
    return parts


def _column(column: Machines, x: float, top: float, height: float) -> list[Html]:
    left = x - _COLUMN / 2 + 5
    parts = [
        _path(f"M{left:.1f},{top:g}h{_COLUMN - 10}v{height - 6:g}h{10 - _COLUMN}z", "line", fill="var(--page)"),
        _label(x, top + 18, shorten(column.name, 18), "middle"),
        _label(x, top + 33, shorten(column.kind, 22), "middle", "muted small"),
    ]
    if len(column.states) <= _MOST_SQUARES:
        for at, (name, state) in enumerate(column.states.items()):
            square = _square(state, left + 6 + 13 * (at % 10), top + 42 + 13 * (at // 10))
            parts.append(element("g", element("title", f"{name}: {state}"), *square))
    counts = _count_states(column)
    first = top + height - 14 - 13 * (len(counts) - 1)
    return [*parts, *(_label(x, first + 13 * at, line, "middle", "muted small") for at, line in enumerate(counts))]


def _square(state: str, x: float, y: float) -> list[Html]:
    colour, fill, sign = STATES[state]
    at = f"translate({x:.1f},{y:.1f})"
    return [_path("M0,0h11v11h-11z", colour, fill=fill, at=at), *([_path(sign, colour, 1.6, at=at)] if sign else [])]


def _count_states(column: Machines) -> list[str]:
    """Return the numbers of machines by state, with two states on a line: `60 idle, 1 busy`, `2 down`."""
    counts = Counter(column.states.values())
    words = [f"{counts[state]} {state}" for state in STATES if counts[state]] or ["no machines"]
    return [", ".join(words[at : at + 2]) for at in range(0, len(words), 2)]
