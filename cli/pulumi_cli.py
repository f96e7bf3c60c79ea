"""Runs the Pulumi CLI in the project's folder, with the same state and passphrase as the embedded engine."""

import json as jsonlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cli import console, home, project
from cli.effects import Effects
from cli.errors import CliError
from cli.interrupts import left_to_child
from cli.stackfile import StackFile


def update(
    pulumi: str,
    kind: str,
    file: StackFile,
    *,
    json: bool,
    parallel: int | None,
    config_file: Path | None,
    yes: bool,
    told: Effects | None = None,
) -> int:
    """Run `pulumi KIND` for a stack, which is made first if it is new; the CLI's exit code. A preview ends with what
    the edit does to running jobs, if that is known."""
    config = ["--config-file", str(config_file.absolute())] if config_file else []
    if home.on_files() and kind != "preview":
        project.workspace().stack(file.stack, file.path).hand_over()
    if kind in ("preview", "up"):
        _ensure_stack(pulumi, file.stack, config)
    command = [pulumi, kind, "--stack", file.stack, *config]
    command += ["--json"] if json else []
    command += ["--parallel", str(parallel)] if parallel else []
    command += ["--yes"] if yes and kind != "preview" else []
    if told is None or kind != "preview":
        return passed_through(command)
    if json:
        return _with_effects(command, told)
    code = passed_through(command)
    for text, style in told.lines(steps=True) if code == 0 and told.changes else ():
        console.line(text, style=style)
    return code


def _with_effects(command: Sequence[str], told: Effects) -> int:
    """Run a preview that prints one JSON document, and put `effects` into it; the CLI's exit code."""
    with (
        left_to_child(),
        subprocess.Popen(
            command, cwd=project.ROOT, env=home.environment(), stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        text, _ = process.communicate()
    try:
        document = jsonlib.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict):
        text = jsonlib.dumps({**document, "effects": told.document()}, indent=2, ensure_ascii=False) + "\n"
    sys.stdout.write(text)
    return process.returncode


def passed_through(command: Sequence[str]) -> int:
    """Run a command of the CLI on this process's own streams; its exit code."""
    with left_to_child(), subprocess.Popen(command, cwd=project.ROOT, env=home.environment()) as process:
        return process.wait()


def captured(command: Sequence[str], given: str = "") -> str:
    """Run a command of the CLI with `given` on its standard input; what it printed.

    Raises:
        CliError: it failed; the text is the CLI's own.
    """
    done = subprocess.run(
        [*command, "--non-interactive"],
        cwd=project.ROOT,
        env=home.environment(),
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise CliError(f"{' '.join(command[1:3])} failed: {said.removeprefix('error: ')}")
    return done.stdout


def _ensure_stack(pulumi: str, stack: str, config: list[str]) -> None:
    """Make the stack if the backend does not have it, encrypting its secrets with our passphrase."""
    if home.on_files():
        names = project.workspace().stacks()
    else:
        rows = jsonlib.loads(captured([pulumi, "stack", "ls", "--json"]))
        names = [str(row["name"]).rpartition("/")[2] for row in rows]
    if stack not in names:
        captured([pulumi, "stack", "init", stack, "--no-select", "--secrets-provider", "passphrase", *config])
