"""The CLI's own error, and its hint about a name that does not exist."""

import difflib
from collections.abc import Iterable


class CliError(Exception):
    """An error that the user can correct; the text says where, what was given, what is allowed and what to do."""


def hint(given: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, with a blank before it, where a known name is near."""
    near = difflib.get_close_matches(given, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""
