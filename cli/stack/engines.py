"""Which engine runs a stack: the Pulumi CLI, or the embedded one."""

import shutil

from cli import console
from cli.options import EngineName
from cli.stack import project, state_dir
from cli.stack.pulumi_install import require_pulumi
from cli.stack.stack_config import needs_cli, platform
from cli.stack.stackfile import StackFile
from cluster.platforms.base import Credentials


def choose(wanted: EngineName | None, file: StackFile, kind: str) -> str | None:
    """The Pulumi CLI to run this with, or None for the embedded engine.

    Without `wanted`, the CLI on PATH; without one, the embedded engine as far as it goes: it keeps state in files, and
    creates nothing where a provider has to log in (a preview creates nothing at all). It also runs what `./hpc
    rehearse` wrote, and a preview without credentials, for which the CLI would need them.

    Raises:
        CliError: the CLI is needed, not there, and not wanted.
    """
    on_path = shutil.which("pulumi")
    lacking = wanted is None and kind == "preview" and not file.rehearses and _lacks_credentials(file, on_path)
    if wanted is EngineName.EMBEDDED or file.rehearses or lacking:
        return None
    if on_path:
        return on_path
    if wanted is EngineName.PULUMI:
        return require_pulumi("--engine pulumi asks for the Pulumi CLI")
    if not state_dir.on_files(file.stack):
        url, who = state_dir.located(file.stack)
        here = "" if needs_cli(file) else f"; PULUMI_BACKEND_URL={state_dir.own()} would keep it on this machine"
        return require_pulumi(f"state at {url} ({who}{here}) needs the Pulumi CLI")
    if needs_cli(file) and kind != "preview":
        return _for_cloud(file, kind)
    return None


def passed_over(wanted: EngineName | None, file: StackFile, kind: str) -> str | None:
    """The Pulumi CLI on PATH that a preview did without, for lack of credentials; its state is in files, and somebody
    chose where: a stack in our own folder by default would stay there after a `pulumi login` elsewhere."""
    lacking = wanted is None and kind == "preview" and not file.rehearses and _missing(file)
    chosen = state_dir.on_files(file.stack) and state_dir.located(file.stack)[1] != "the default"
    return shutil.which("pulumi") if lacking and chosen else None


def _missing(file: StackFile) -> Credentials | None:
    """Credentials that the CLI needs and nobody has here."""
    found = platform(file)
    credentials = found.credentials if found else None
    return None if credentials is None or credentials.found(file.settings or {}) else credentials


def _lacks_credentials(file: StackFile, on_path: str | None) -> bool:
    """Whether a preview needs credentials with the CLI that nobody has here; that is said."""
    credentials = _missing(file)
    if credentials is None:
        return False
    url, who = state_dir.located(file.stack)
    new = (
        ""
        if state_dir.on_files(file.stack)
        else f" It shows a new stack, since it can't read the state at {url} ({who})."
    )
    if on_path or new:
        console.note(
            f"No {credentials.title} credentials are here, so the embedded engine shows this preview.{new} The Pulumi "
            f"CLI does with --engine pulumi, or once there are some: {credentials.todo}"
        )
    return True


def _for_cloud(file: StackFile, kind: str) -> str | None:
    """The Pulumi CLI for what only it can create; None where nothing was created.

    Raises:
        CliError: it is needed and not there.
    """
    if kind != "up" and file.settings is not None and file.stack not in project.workspace(file.stack).stacks():
        return None
    return require_pulumi(
        f"{kind} of a stack on {file.platform} is for `pulumi {kind} --stack {file.stack}`, since the embedded engine "
        "creates machines on this host only. That needs the Pulumi CLI"
    )
