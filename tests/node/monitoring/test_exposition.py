"""The text that node_exporter reads: escaped, bounded, one value a series."""

import re

from hypothesis import given
from hypothesis import strategies as st
from monitoring import exposition
from monitoring.exposition import LONGEST, Sample, render

_LINE = re.compile(r'(?P<name>[a-z_]+)\{node="(?P<value>(?:[^"\\\n]|\\["\\n])*)"\} (?P<number>[0-9.e+-]+)')


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


@given(st.lists(st.text(), max_size=5), st.floats(0, 1e15, allow_nan=False))
def test_a_hostile_name_is_one_series_and_nothing_more(names: list[str], value: float):
    lines = render(Sample("hpc_test", value, {"node": name}) for name in names).split("\n")
    assert lines.pop() == ""
    shown = list(dict.fromkeys(exposition.printable(name)[:LONGEST] for name in names))
    if names:
        assert lines.pop(0) == "# TYPE hpc_test gauge"
    found = [_LINE.fullmatch(line) for line in lines]
    assert [unescaped(one["value"]) for one in found if one] == shown
    assert all(found)
    assert all(abs(float(one["number"]) - value) <= value * 1e-12 for one in found if one)
    assert "".join(lines).isprintable() or not "".join(names).isprintable()


def test_a_metric_has_no_more_series_than_are_allowed(monkeypatch):
    monkeypatch.setattr(exposition, "MOST", 3)
    text = render(Sample("hpc_test", number, {"node": str(number)}) for number in range(9))
    assert text.count("hpc_test{") == 3


def test_the_samples_of_a_metric_stand_together_and_the_last_of_a_series_counts():
    text = render([Sample("b", 1, {"x": "1"}), Sample("a", 2), Sample("b", 3), Sample("b", 4, {"x": "1"})])
    assert text == '# TYPE a gauge\na 2\n# TYPE b gauge\nb{x="1"} 4\nb 3\n'
