"""Commands print no control sequences of others; questions; tables on narrow terminals."""

import ast
import io
import sys
from pathlib import Path

import pytest

from cli import console
from cli.display.views import LiveView
from engine.events import LogLine

ROOT = Path(__file__).parents[2]
EVIL = "a\x1b[2J\x1b]0;title\x07\x9b1mb\r\u2028\u202ec"

PRINTS = {
    "cli/bootstrap.py": "runs before rich is installed, and prints only texts of this program",
    "cli/commands/test.py": "passes on the output of this program's own tests and linters, colours included",
    "cli/console.py": "prints for all others",
    "cli/commands/nebius_token.py": "prints JSON, which escapes control sequences",
    "cli/commands/installation.py": "prints the JSON Schema of this program",
    "cli/commands/state.py": "writes the state unchanged",
}


def test_only_these_modules_print_without_the_console() -> None:
    printing = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING
    }
    assert printing == set(PRINTS)


PRINTING = {"print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "sys.stderr.buffer.write"}


@pytest.mark.parametrize(
    "print_text",
    [
        console.line,
        console.note,
        console.error,
        console.json,
        lambda text: console.lines([text]),
        lambda text: console.table([("NAME",), (text,)]),
        lambda text: console.line(text, style="bold red"),
    ],
)
def test_control_sequences_are_escaped(print_text, capsys: pytest.CaptureFixture[str]) -> None:
    console.stdout.cache_clear()
    console.stderr.cache_clear()
    print_text(EVIL)
    printed = "".join(capsys.readouterr())
    assert "[2J" in printed
    assert not set(printed) & set("\x1b\x07\x9b\r\u2028\u202e")


def test_a_cell_of_a_table_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.stdout.cache_clear()
    console.table([("ID", "NAME"), ("7", "a\n8   innocent"), ("9", "b")])
    assert capsys.readouterr().out.splitlines() == ["ID  NAME", "7   a\\n8   innocent", "9   b"]


def test_control_sequences_in_lines_of_the_live_view_are_escaped() -> None:
    view = LiveView()
    view.event_lines(LogLine(severity="info", message=f"one\n{EVIL}", urn="urn:pulumi:s::p::t::n"))
    (row,) = view.rows.values()
    assert next(iter(row.log)) == "one"
    assert not set("".join(row.log)) & set("\x1b\x07\x9b\r\u2028\u202e")


@pytest.mark.parametrize(("line", "printed"), [("y\n", "Sure? [y/N] "), ("", "Sure? [y/N] \n")])
def test_a_line_end_is_printed_after_a_question_without_an_answer(
    line: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(line))
    assert console.ask("Sure?") is bool(line)
    assert capsys.readouterr().err == printed


def test_a_table_is_wrapped_on_a_narrow_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "Kill task failed and not resumed since"
    rows = [("NODES", "COUNT", "REASON"), ("dev-cpu-[0-1]", "2", reason), ("b", "", "")]
    monkeypatch.setenv("COLUMNS", "40")
    wide = [f"{'NODES':13}  COUNT  REASON", "dev-cpu-[0-1]  2      Kill task failed and not resumed since", "b"]
    narrow = [wide[0], "dev-cpu-[0-1]  2      Kill task failed", " " * 22 + "and not resumed", " " * 22 + "since", "b"]
    for forced, lines in (("", wide), ("1", narrow)):
        monkeypatch.setenv("FORCE_COLOR", forced)
        monkeypatch.setenv("NO_COLOR", "1")
        console.stdout.cache_clear()
        console.table(rows)
        printed = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert printed.splitlines() == lines
    console.stdout.cache_clear()


def test_a_narrow_table_breaks_lines_between_words_as_long_as_there_is_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "32")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    console.stdout.cache_clear()
    console.table([("NODES", "WHO ACTS"), ("hc-cpu-0 hc-cpu-1", "an administrator or a user")])
    console.table([("NODES",), ("hc-cpu-" + "0" * 40,)])
    lines = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    console.stdout.cache_clear()
    assert max(map(len, lines)) <= 32
    assert {"hc-cpu-0", "hc-cpu-1", "administrator"} <= {word for line in lines for word in line.split()}
