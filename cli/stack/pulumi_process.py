"""Runs commands of the Pulumi CLI with the state and passphrase that the embedded engine uses."""

import subprocess
from collections.abc import Sequence

from cli.errors import CliError
from cli.interrupts import INTERRUPTED, left_to_child
from cli.stack import project, state_dir


def run_on_terminal(command: Sequence[str], stack: str) -> int:
    """Run a command of the CLI on this process's own streams. Returns its exit code, or that of an interrupt."""
    env = state_dir.environment(stack)
    with left_to_child() as interrupts, subprocess.Popen(command, cwd=project.ROOT, env=env) as process:
        code = process.wait()
    return INTERRUPTED if code and interrupts else code


def run_captured(command: Sequence[str], stack: str, given: str = "") -> str:
    """Run a command of the CLI for a stack with `given` on its standard input. Returns its output. Raises CliError: it
    failed; the text is the CLI's own."""
    done = subprocess.run(
        [*command, "--non-interactive"], cwd=project.ROOT, env=state_dir.environment(stack), input=given,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        printed = done.stderr.strip() or done.stdout.strip()
        subcommand = [word for word in command[1:] if not word.startswith("-")]
        source = f"\nThe passphrase was taken from {state_dir.passphrase_source()}." if "passphrase" in printed else ""
        raise CliError(f"{' '.join(subcommand[:2])} failed: {printed.removeprefix('error: ')}{source}")
    return done.stdout
