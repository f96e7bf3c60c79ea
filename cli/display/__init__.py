"""What a run looks like: live on a terminal, plain lines in a pipe, one JSON document for programs."""

from cli import console
from cli.display.document import DocumentView
from cli.display.live import LiveView
from cli.display.plain import PlainView
from cli.display.view import View

__all__ = ["View", "choose"]


def choose(*, json: bool) -> View:
    """The view for where standard output goes."""
    if json:
        return DocumentView()
    out = console.stdout()
    return LiveView() if out.is_terminal and not out.is_dumb_terminal else PlainView()
