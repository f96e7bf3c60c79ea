"""A property's change shows exactly the edit: nothing more, nothing hidden."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.display.changes import change_lines
from engine.events import Change


def texts(old: Any, new: Any, kind: Any = "update") -> list[str]:
    return [text for text, _ in change_lines(Change("a.b", kind, old, new))]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (Change("count", "update", 2, 3), ["~ count: 2 -> 3"]),
        (Change("count", "update", "2", 2), ['~ count: "2" -> 2']),
        (Change("on", "update", True, None), ["~ on: true -> null"]),
        (Change("key", "update", "[secret]", "[secret]"), ["~ key: [secret] -> [secret]"]),
        (Change("ip", "update", "10.0.0.1", "[unknown]"), ['~ ip: "10.0.0.1" -> [unknown]']),
        (Change("x", "add", None, {"a": 1}), ['+ x: {"a": 1}']),
        (Change("x", "delete", "gone", None), ['- x: "gone"']),
        (Change("t", "update", "a", "b", replaces=True), ['~ t: "a" -> "b" (forces replacement)']),
        (Change("f", "update", "one\ntwo\n", "[unknown]"), ["~ f: [2 lines] -> [unknown]"]),
        (
            Change("k", "add", None, f"ssh-ed25519 AAAAC3NzaC1l{'x' * 50}abcdef me"),
            ['+ k: "ssh-ed25519 AAAAC3NzaC1l...abcdef me"'],
        ),
        (Change("f", "add", None, "one\ntwo\n"), ["+ f:", "    +one", "    +two"]),
        (Change("f", "update", "one\n", "one"), ["~ f:", "    the text differs in its line ends only"]),
    ],
)
def test_short_values_are_on_one_line(change: Change, shown: list[str]) -> None:
    assert [text for text, _ in change_lines(change)] == shown


def test_a_document_is_compared_line_by_line() -> None:
    old = '{"partitions": {"cpu": {"max_time": 60, "default": true, "nodesets": ["cpu"], "exclusive": false}}}'
    shown = texts(old, old.replace("60", "90"))
    assert [line.strip() for line in shown if line.strip()[0] in "+-"] == [
        '-      "max_time": 60,',
        '+      "max_time": 90,',
    ]


def test_long_lines_are_shown_around_their_first_difference() -> None:
    old = "x" * 200 + "old" + "y" * 200
    head, before, after = texts(old, old.replace("old", "new"))
    assert head == "~ a.b:"
    assert "old" in before
    assert "new" in after
    assert max(len(before), len(after)) < 100


def test_very_long_diffs_are_cut() -> None:
    shown = texts("\n".join("a" * 500), "\n".join("b" * 500))
    assert len(shown) < 70
    assert shown[-1].strip().endswith("more lines")


@given(st.lists(st.text("ab =", min_size=1), min_size=1, max_size=40), st.data())
def test_a_diff_shows_only_the_edited_line(text: list[str], data: st.DataObject) -> None:
    where = data.draw(st.integers(0, len(text) - 1))
    edited = [*text[:where], "edited", *text[where + 1 :]]
    shown = texts("\n".join([*text, ""]), "\n".join([*edited, ""]))
    signed = [line.removeprefix("    ") for line in shown if line.startswith(("    -", "    +"))]
    assert sorted(signed) == ["+edited", f"-{text[where]}"]
