"""An edit of the users in a stack file: checked as a whole, shown, written."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cli import console
from cli.errors import CliError
from cli.stack import project, stack_config
from cli.stack.stackfile import StackFile
from cli.stack.text import file as text_file
from cluster.config import ClusterConfig
from cluster.findings import ROOT, ConfigError, Finding
from cluster.load.parse import parse

USERS, FORMER, ACCOUNTS = (
    ("config", ROOT, *keys) for keys in (("users",), ("former_users",), ("accounting", "accounts"))
)
"""Where these lists are in a stack file."""
Change = Callable[[StackFile, ClusterConfig, str], tuple[str, list[Finding]]]
"""Makes the new text from the file, its configuration and its text; and what is wrong besides."""


def edit(stack: str, config_file: Path | None, change: Change) -> bool:
    """Change a stack file and show the difference; False if there is none.

    The new text is checked as every stack file is, before it is written. Raises CliError: with everything that is wrong
    at once; the file is as it was.
    """
    path = project.require_file(stack, config_file).path
    with text_file.alone(path):
        file = project.require_file(stack, config_file)
        config = stack_config.parse(file)
        before = text_file.read(path)
        after, wrong = change(file, config, before)
        if after != before:
            wrong = [*wrong, *_findings(after)]
        if wrong:
            several = "1 error" if len(wrong) == 1 else f"{len(wrong)} errors"
            lines = "\n\n".join(map(str, wrong))
            raise CliError(f"{several}, and {path.name} was left as it is:\n\n{lines}")
        if after == before:
            return False
        _show(path, before, after)
        text_file.write(path, after)
    if file.rehearses:
        console.note(f"The next `./hpc rehearse {file.rehearses}` takes users from that stack's own file again.")
    return True


def _findings(text: str) -> list[Finding]:
    from engine import yamlfile

    settings = yamlfile.parse(text)["config"]
    found = _errors(settings)
    # Of a user with a wrong name or shell, what the user names was not looked for: it is, beside stand-ins.
    wrong = {one.at[1:3] for one in found if one.at[:1] == ("users",) and len(one.at) > 2}
    for number, key in wrong:
        user = settings[ROOT]["users"][number]
        user.pop(key, None)
        user.update({key: _STAND_INS[key]} if key in _STAND_INS else {})
    known = {one.where for one in found}
    return [*found, *(one for one in _errors(settings) if wrong and one.where not in known)]


_STAND_INS: Mapping[str | int, Any] = {"name": "a-user-to-be", "uid": 524_287}
"""Of required fields; this uid is the last one of REGULAR_UIDS."""


def _errors(settings: Mapping[str, Any]) -> list[Finding]:
    try:
        parse(settings)
    except ConfigError as error:
        return [replace(one, todo=one.todo + _HINTS.get(one.id, "")) for one in error.findings]
    return []


_HINTS = {"user-account-unknown": ", or give --create-account"}


def _show(path: Path, before: str, after: str) -> None:
    console.line(str(path), style="bold")
    for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]:
        console.line(f"  {line}", style={"+": "green", "-": "red", "@": "dim"}.get(line[:1], ""))
