"""What a run looks like in a pipe, on a terminal and to a program."""

import io
import json
import re
import sys

import pytest
from rich.console import Console

from cli import console
from cli.display import views
from cli.display.changes import is_interrupted, summary
from cli.display.views import DocumentView, LiveView, PlainView, RunView
from engine.events import Event, LogLine, Result, StepDone, StepStarted
from tests.cli import events
from tests.waiting import wait_for


def show(view: RunView, run: list[Event]) -> None:
    with view:
        for event in run:
            view.on_event(event)
        view.close(events.result(run))


class TestPipe:
    def test_output_matches_the_golden_files(self, capsys: pytest.CaptureFixture[str], reviewed) -> None:
        shown = {}
        for kind, run in {"preview": events.preview(), "up": events.up(), "failed": events.failed()}.items():
            show(PlainView(), run)
            shown[kind] = capsys.readouterr().out
        reviewed("cli/views", shown)

    @pytest.mark.parametrize("machines", [1, 30])
    def test_warnings_of_a_preview_are_printed_once_below_the_tree(
        self, machines: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        started, *rest = events.preview()
        new = [events.planned(f"m-{number}", "create") for number in range(machines)]
        show(PlainView(), [started, LogLine("warning", "little memory"), *new, *rest])
        lines = capsys.readouterr().out.splitlines()
        assert [number for number, line in enumerate(lines) if "warning" in line] == [len(lines) - 2]
        assert lines[-2] == "  warning: little memory"

    def test_a_preview_that_fails_prints_its_warnings(self, capsys: pytest.CaptureFixture[str]) -> None:
        with PlainView() as view:
            for event in (events.preview()[0], LogLine("warning", "little memory")):
                view.on_event(event)
            view.fail("the program ended")
        assert capsys.readouterr().out.splitlines()[-1] == "  warning: little memory"

    def test_plain_view_is_chosen_for_pipes_and_neither_wraps_nor_colours(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        console.stdout.cache_clear()
        view = views.choose_view(json=False)
        assert isinstance(view, PlainView)
        long = events.planned("x" * 300, "create")
        show(view, [*events.up()[:-1], long, StepDone(long.urn, "create", 0), events.up()[-1]])
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert f"+ created   {'x' * 300}  command:remote:Command\n" in out

    def test_running_steps_are_listed_after_a_silence(self, capsys: pytest.CaptureFixture[str]) -> None:
        printed: list[str] = []
        with PlainView(silence=0.02) as view:
            view.on_event(events.NEW)
            view.on_event(StepStarted(events.NEW.urn, "create"))
            wait_for(lambda: printed.append(capsys.readouterr().out) or "so far" in "".join(printed))
        assert re.match(r"  creating dev-cpu-2, [0-9.]+ s so far\n", "".join(printed))


def shown_on(screen: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


class TestTerminal:
    @pytest.fixture
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            monkeypatch.delenv(name, raising=False)
        screen = io.StringIO()
        terminal = Console(
            file=screen, force_terminal=True, width=60, height=10, markup=False, _environ={"TERM": "xterm"}
        )
        monkeypatch.setattr(console, "stdout", lambda: terminal)
        return screen

    def test_finished_steps_are_printed_and_logs_of_steps_are_not(self, terminal: io.StringIO) -> None:
        view = views.choose_view(json=False)
        assert isinstance(view, LiveView)
        show(view, events.up())
        text = shown_on(terminal)
        assert "~ updated   slurm-conf" in text
        assert "  warning: little memory" in text
        assert "1 created, 1 updated, 3 unchanged" in text
        assert "\n  slurm-conf: copying" not in text

    @pytest.mark.parametrize("terminal_too", [True, False])
    def test_a_message_on_standard_error_is_a_separate_line(
        self, terminal_too: bool, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        errors = io.StringIO()
        monkeypatch.setattr(errors, "isatty", lambda: terminal_too)
        monkeypatch.setattr(sys, "stderr", errors)
        with LiveView():
            console.note("careful")
        lines = shown_on(terminal).replace("\r", "\n").splitlines()
        assert ("careful" in lines) is terminal_too
        assert errors.getvalue() == ("" if terminal_too else "careful\n")

    def test_running_steps_are_drawn_with_their_last_line_within_the_screen(self, terminal: io.StringIO) -> None:
        view = LiveView()
        for number in range(20):
            machine = events.planned(f"m-{number}", "create")
            view.on_event(machine)
            view.on_event(StepStarted(machine.urn, "create"))
        view.row(events.urn("command:remote:Command", "m-0")).log.append("unpacking " + "x" * 100)
        console.stdout().print(view)
        lines = shown_on(terminal).splitlines()
        assert len(lines) == 8
        assert max(map(len, lines)) < 60
        assert re.match(r"\+ creating  m-0  command:remote:Command  \d+\.\d s  unpacking …", lines[0])
        assert lines[-1].endswith("0 done, 20 at work (13 not shown)")


class TestDocument:
    def test_a_preview_lists_exactly_the_edit(self, capsys: pytest.CaptureFixture[str]) -> None:
        show(views.choose_view(json=True), events.preview())
        document = json.loads(capsys.readouterr().out)
        assert (document["stack"], document["kind"], document["ok"]) == ("dev", "preview", True)
        assert {step["name"]: step["op"] for step in document["steps"]} == {
            "slurm-conf": "update",
            "dev-cpu-2": "create",
        }
        change = {"path": "environment.KEY", "kind": "add", "old": None, "new": "[secret]", "replaces": False}
        assert document["steps"][0]["changes"][2] == change
        assert "outputs" not in document

    def test_an_up_has_outputs_and_messages(self, capsys: pytest.CaptureFixture[str]) -> None:
        show(DocumentView(), events.up())
        document = json.loads(capsys.readouterr().out)
        assert document["outputs"]["login"] == "dev-login-0"
        assert {"severity": "warning", "message": "little memory", "urn": None} in document["messages"]
        assert all(row["severity"] != "debug" for row in document["messages"])

    def test_an_error_is_in_the_document_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        with DocumentView() as view:
            view.fail("stack dev is in use")
        out, err = capsys.readouterr()
        assert json.loads(out) == {"ok": False, "error": "stack dev is in use", "messages": []}
        assert err == "error: stack dev is in use\n"


class TestSummary:
    def test_summary_names_the_outcome(self, reviewed) -> None:
        results = (
            Result("up", True, {"same": 18}, seconds=0.44), Result("preview", True, {"same": 18}, seconds=1),
            Result("destroy", True, {}, seconds=0.1), Result("destroy", True, {"delete": 7}, seconds=59.96),
            Result("refresh", True, {"same": 3}, seconds=1),
            Result("preview", True, {"delete": 1, "create": 2, "replace": 1, "same": 0}, seconds=1),
        )  # fmt: skip
        reviewed(
            "cli/summaries", {f"{result.kind} {dict(result.counts)}": summary(result, "dev") for result in results}
        )

    def test_an_interrupted_run_is_distinguished_from_a_failed_one(self) -> None:
        stopped = Result("destroy", False, {"delete": 3}, seconds=2)
        assert is_interrupted(stopped)
        assert not is_interrupted(events.result(events.failed()))
        assert summary(stopped, "dev", done=1).splitlines() == [
            "interrupted, 1 done, in 2.0 s",
            "What was done is kept: ./hpc destroy dev goes on from here.",
        ]
