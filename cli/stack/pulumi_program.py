"""The program `pulumi`: found, installed by the SDK's own installer, run with the embedded engine's state."""

import importlib.metadata
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cli import console
from cli.errors import CliError
from cli.interrupts import INTERRUPTED, left_to_child
from cli.stack import project, state_dir


def pulumi_version() -> str:
    """Version of the Pulumi SDK in the lock, which is the CLI's that fits."""
    return importlib.metadata.version("pulumi")


def private_pulumi() -> Path:
    """Return where the SDK's installer puts the CLI of that version."""
    return Path.home() / ".pulumi/versions" / pulumi_version() / "bin/pulumi"


def installed_pulumi() -> str | None:
    """The Pulumi CLI on PATH, or the one the SDK's installer made; None if there is neither."""
    return shutil.which("pulumi") or shutil.which(str(private_pulumi()))


def running_version() -> str:
    """Version of the Pulumi CLI that runs here: what `pulumi version` prints; the pinned one where there is none."""
    found = installed_pulumi()
    if found is None:
        return pulumi_version()
    try:
        answer = subprocess.run([found, "version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise CliError(f"{found} version: does not work ({error}). Install it with: ./hpc install-pulumi") from None
    return answer.stdout.strip()


def require_pulumi(why: str) -> str:
    """The Pulumi CLI on PATH, or the one the SDK's installer made; offers to install it.

    Raises:
        CliError: it is not there and not wanted.
    """
    found = installed_pulumi()
    if found:
        return found
    if console.interactive() and console.ask(f"{why}, which is not installed. Install {pulumi_version()} now?"):
        return install_pulumi()
    raise CliError(f"{why}, which is not installed. Install version {pulumi_version()} with: ./hpc install-pulumi")


def install_pulumi() -> str:
    """Download the pinned CLI with the SDK's own installer; its path.

    Raises:
        CliError: it did not work.
    """
    # The SDK takes a second to import.
    from pulumi.automation import PulumiCommand

    target = private_pulumi()
    if target.exists():
        console.note(f"The Pulumi CLI {pulumi_version()} is installed already: {target}")
        return str(target)
    console.note(f"Installing the Pulumi CLI {pulumi_version()} into {target.parent.parent} ...")
    try:
        command = PulumiCommand.install()
    except subprocess.CalledProcessError as error:
        said = (error.output or b"").decode(errors="replace").strip()
        raise CliError(f"the installer of the Pulumi CLI failed (exit code {error.returncode}): {said}") from None
    except OSError as error:
        raise CliError(f"the Pulumi CLI could not be downloaded: {error}. Check this machine's way out.") from None
    console.note(f"Installed {command.command}")
    return command.command


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
        [*command, "--non-interactive"],
        cwd=project.ROOT,
        env=state_dir.environment(stack),
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        printed = done.stderr.strip() or done.stdout.strip()
        subcommand = [word for word in command[1:] if not word.startswith("-")]
        source = f"\nThe passphrase was taken from {state_dir.passphrase_source()}." if "passphrase" in printed else ""
        raise CliError(f"{' '.join(subcommand[:2])} failed: {printed.removeprefix('error: ')}{source}")
    return done.stdout
