"""Finds, installs and runs the Pulumi CLI."""

import importlib.metadata
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cli import console
from cli.errors import CliError
from cli.interrupts import INTERRUPTED, leave_ctrl_c_to_child
from cli.stack import project, state_dir


def pulumi_version() -> str:
    """Return the locked version of the Pulumi SDK, which is also the version of the CLI to install."""
    return importlib.metadata.version("pulumi")


def private_pulumi() -> Path:
    """Return the path to which the SDK's installer installs the CLI of that version."""
    return Path.home() / ".pulumi/versions" / pulumi_version() / "bin/pulumi"


def installed_pulumi() -> str | None:
    """Return the path of the Pulumi CLI: on PATH, else as the SDK's installer installs it; None if there is none."""
    return shutil.which("pulumi") or shutil.which(str(private_pulumi()))


def running_version() -> str:
    """Return the output of `pulumi version`, or the locked version if the CLI is not installed."""
    pulumi = installed_pulumi()
    if pulumi is None:
        return pulumi_version()
    try:
        done = subprocess.run([pulumi, "version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise CliError(f"{pulumi} version: does not work ({error}). Install it with: ./hpc install-pulumi") from None
    return done.stdout.strip()


def require_pulumi(why: str) -> str:
    """Return the path of the Pulumi CLI, and offer to install it. `why` is the reason in messages.

    Raises:
        CliError: it is not installed, and the user does not install it.
    """
    pulumi = installed_pulumi()
    if pulumi:
        return pulumi
    if console.interactive() and console.ask(f"{why}, which is not installed. Install {pulumi_version()} now?"):
        return install_pulumi()
    raise CliError(f"{why}, which is not installed. Install version {pulumi_version()} with: ./hpc install-pulumi")


def install_pulumi() -> str:
    """Install the CLI of the locked version with the SDK's installer, and return its path.

    Raises:
        CliError: the installation failed.
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
        output = (error.output or b"").decode(errors="replace").strip()
        raise CliError(f"the installer of the Pulumi CLI failed (exit code {error.returncode}): {output}") from None
    except OSError as error:
        raise CliError(f"the Pulumi CLI could not be downloaded: {error}. Check this machine's way out.") from None
    console.note(f"Installed {command.command}")
    return command.command


def run_on_terminal(command: Sequence[str], stack: str) -> int:
    """Run a command of the CLI on this process's own streams. Returns its exit code, or that of an interrupt."""
    env = state_dir.environment(stack)
    with leave_ctrl_c_to_child() as interrupts, subprocess.Popen(command, cwd=project.ROOT, env=env) as process:
        code = process.wait()
    return INTERRUPTED if code and interrupts else code


def run_captured(command: Sequence[str], stack: str, stdin: str = "") -> str:
    """Run a command of the CLI for a stack and return its output. Raises CliError: it failed; the message is the
    CLI's."""
    done = subprocess.run(
        [*command, "--non-interactive"],
        cwd=project.ROOT,
        env=state_dir.environment(stack),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        printed = done.stderr.strip() or done.stdout.strip()
        subcommand = [word for word in command[1:] if not word.startswith("-")]
        raise CliError(f"{' '.join(subcommand[:2])} failed: {with_source(printed.removeprefix('error: '))}")
    return done.stdout


def with_source(message: str) -> str:
    """Return an error of the CLI; if it is about the passphrase, with the variable or file that this comes from."""
    source = f"\nThe passphrase was taken from {state_dir.passphrase_source()}." if "passphrase" in message else ""
    return f"{message}{source}"
