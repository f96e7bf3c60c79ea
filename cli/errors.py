"""The CLI's own error, and its hint about a name that does not exist."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class CliError(Exception):
    """An error that the user can correct; the text says where, what was given, what is allowed and what to do."""

    document: Mapping[str, Any] = {}
    """Further keys of the JSON document that --json prints about the error."""


def hint(given: str, known: Iterable[str]) -> str:
    """Return ` Did you mean ...?` if a known name is similar, else an empty text."""
    near = difflib.get_close_matches(given, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""
