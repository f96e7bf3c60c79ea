"""Plots: a PNG that can be opened, with everything inside of it."""

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cluster.report.plot import SIZE, Curve, drawable, save_png, select_ticks

RISING = Curve("today", [(2.0**n, 10.0 * n) for n in range(1, 12)])
REFERENCE = Curve("reference", [(2.0**n, 12.0 * n) for n in range(1, 12)], reference=True)
TICKS = {2.0**n: f"{2**n} B" for n in range(1, 12)}


def test_a_png_is_drawn_in_time_and_has_the_size(tmp_path):
    path = tmp_path / "plot.png"
    started = time.process_time()
    save_png([RISING, REFERENCE], path, title="a $b$ c", x_log=True, x_ticks=TICKS)
    assert time.process_time() - started < 2
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == SIZE


@pytest.mark.parametrize("title", ["$x", "\\frac{", "_private", "a\x1b[2Jb\nc", "日本語"])
def test_any_name_can_be_drawn(tmp_path, title):
    curves = [Curve(title, RISING.points), REFERENCE]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # the font of the PNG lacks some scripts
        save_png(curves, tmp_path / "plot.png", title=title, x_label=title, y_label=title)


@given(points=st.lists(st.tuples(st.floats(), st.floats()), max_size=20), x_log=st.booleans())
def test_points_that_can_be_drawn_are_kept_in_order(points, x_log):
    kept = sorted(p for p in points if all(abs(v) <= 1e30 for v in p) and (p[0] > 0 or not x_log))
    if kept:
        assert drawable([Curve("any", points)], x_log=x_log) == [Curve("any", kept)]
        return
    with pytest.raises(ValueError, match="no curve has a point"):
        drawable([Curve("any", points)], x_log=x_log)


def test_ticks_that_do_not_fit_are_left_out(tmp_path):
    ticks = {2.0**n: f"{n} bytes" for n in range(60)}
    shown = select_ticks(ticks, 1, 2.0**59, 60)
    assert list(shown.values()) == ["11 bytes", "23 bytes", "35 bytes", "47 bytes", "59 bytes"]
    save_png([Curve("many", [(2.0**n, n) for n in range(60)])], tmp_path / "plot.png", x_log=True, x_ticks=ticks)


@pytest.mark.parametrize("lowest", [0.0, -3.0])
def test_texts_and_points_of_a_png_are_inside_of_it(tmp_path, monkeypatch, lowest):
    """Points, a long title, and a legend of more curves than there are colours, with long names."""
    figures = []
    saved = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (saved(self, *a, **k), figures.append(self)))
    points = [(0.0, lowest), (1.0, 2.0), (2.0, 9.0)]
    names = [f"run {n} on {'a-node-' * 20}" for n in range(8)]
    save_png([Curve(name, points) for name in names], tmp_path / "plot.png", title="a title of " * 30, x_label="x")
    (figure,) = figures
    axes, renderer = figure.axes[0], figure.canvas.get_renderer()
    (x_low, x_high), (y_low, y_high) = axes.get_xlim(), axes.get_ylim()
    assert all(x_low <= x <= x_high and y_low <= y <= y_high for x, y in points)
    assert not any(line.get_clip_on() for line in axes.get_lines())
    whole = figure.bbox
    texts = [axes.title, axes.xaxis.label, *figure.legends[0].get_texts(), axes._left_title]
    for box in (text.get_window_extent(renderer) for text in texts):
        assert whole.x0 <= box.x0 <= box.x1 <= whole.x1
        assert whole.y0 <= box.y0 <= box.y1 <= whole.y1
    styles = {(line.get_color(), line.get_marker()) for line in axes.get_lines()}
    assert len(styles) == len(names)
