"""The checks: how each is started."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cli import console
from cli.checks.check import Check
from cli.stack import project

_SHELLS = (b"sh", b"bash", b"dash")
CLUSTERS = "tests/e2e"
"""Whole clusters, through the command."""
NAMES = ("format", "lint", "shell", "schema", "types", "tests")


def lanes(only: Sequence[str]) -> list[list[Check]]:
    """Everything but the tests, in two lanes that take about as long."""
    quick = [
        Check(name="format", command=[_tool("ruff"), "format", "--check"]),
        Check(name="lint", command=[_tool("ruff"), "check"]),
        # With what a script sources, which it would otherwise be told to know nothing of.
        Check(name="shell", command=[_tool("shellcheck"), "-x", *map(str, shell_scripts(project.ROOT))]),
        Check(name="schema", command=[sys.executable, "cli", "schema", "--check"]),
    ]
    types = [Check(name="types", command=[sys.executable, "-m", "basedpyright"])]
    return [[check for check in lane if check.name in only] for lane in (quick, types)]


def tests(arguments: Sequence[str], *, fast: bool) -> list[Check]:
    """Pytest, with the user's arguments last so that they win.

    The fast tests share nothing and run in two processes. Whole clusters wait for machines more than they work, and
    run in a process of their own beside all other tests, unless the arguments choose some.
    """
    colour = console.stdout().is_terminal and "NO_COLOR" not in os.environ
    command = [sys.executable, "-m", "pytest", f"--color={'yes' if colour else 'no'}"]
    if fast:
        return [Check(name="tests", command=[*command, "-m", "not e2e", "-n", "2", "--dist", "worksteal", *arguments])]
    if arguments:
        return [Check(name="tests", command=[*command, *arguments])]
    return [
        Check(name="clusters", command=[*command, CLUSTERS]),
        Check(name="tests", command=[*command, f"--ignore={CLUSTERS}"]),
    ]


def shell_scripts(root: Path) -> list[Path]:
    """Files of the project that begin with the name of a shell: those that git tracks or would, else all there are."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        files = [root / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        files = [path for path in root.rglob("*") if ".venv" not in path.parts]
    return sorted({path.relative_to(root) for path in files if path.is_file() and _is_shell(path)})


def _is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(200)
    words = first.removeprefix(b"#!").split() if first.startswith(b"#!") else []
    program = words[1] if len(words) > 1 and words[0].endswith(b"/env") else words[0] if words else b""
    return program.rpartition(b"/")[2] in _SHELLS


def _tool(name: str) -> str:
    """A program of the environment that runs this."""
    return str(Path(sys.executable).with_name(name))
