"""The project: its folder, its stacks, and the engine's view of them."""

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli import ROOT
from cli.errors import CliError
from cli.stack import rehearsals, stackfile, state_dir
from engine import KubernetesTools, Stack, Workspace
from engine.project import Project
from engine.state.crypter import Crypter

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SALT = re.compile(r'"salt":\s*"(v1:[^"]+)"')
_HEAD = 4096
"""Characters of a state file in which it has its salt: before the resources, which may be megabytes."""


def workspace(stack: str | None = None, *, as_new: bool = False) -> Workspace:
    """The embedded engine's workspace over the state. `as_new`: where that can't be read, over our own folder, in which
    the stack is a new one. Raises CliError: the state is not in files."""
    url, who = state_dir.located(stack)
    if not state_dir.on_files(stack):
        if not as_new:
            raise CliError(
                f"state is at {url} ({who}), and the embedded engine keeps it in files only. Use --engine pulumi; "
                f"or, to keep this stack's state on this machine, set PULUMI_BACKEND_URL={state_dir.own()}"
            )
        url = state_dir.own()
    programs = rehearsals.programs(stack) if stack else {}
    tools = KubernetesTools(kubectl=programs["kubectl"], helm=programs["helm"]) if programs else None
    return Workspace(ROOT, backend=url, passphrase=state_dir.passphrase, kubernetes=tools)


def name() -> str:
    """The project's name, as Pulumi.yaml has it."""
    return Project.read(ROOT).name


def known() -> list[str]:
    """Every stack that has a file or state."""
    kept = {state_dir.own(), *([state_dir.backend()] if state_dir.on_files() else [])}
    return sorted({*stackfile.named(ROOT), *(name for url in kept for name in Workspace(ROOT, backend=url).stacks())})


def require_file(name: str, config_file: Path | None = None) -> stackfile.StackFile:
    """The stack's file, which must be there. Raises CliError: there is none; the text lists the stacks that there
    are."""
    file = stackfile.read(ROOT, name, config_file)
    if file.settings is None:
        raise CliError(f"there is no stack {name!r}: {file.path.name} does not exist. {_there_are(known())}")
    return file


def require_state(name: str) -> Stack:
    """The embedded engine's stack, which must have been brought up before. Raises CliError: it has not, or there is
    none of that name."""
    space = workspace(name)
    if name not in space.stacks():
        if name in stackfile.named(ROOT):
            raise CliError(f"stack {name!r} has not been brought up. Do so with: ./hpc up {name}")
        raise CliError(f"there is no stack {name!r}. {_there_are(known())}")
    return space.stack(name)


def begin_unlock(name: str) -> None:
    """Begin to make the key of a stack's secrets, where it has any: that takes a third of a second of a core, in which
    a command imports what it needs. What is wrong is raised where the key is needed."""
    with suppress(Exception):
        states = Path(state_dir.backend(name).removeprefix("file://"), ".pulumi/stacks")
        for file in states.glob(f"*/{name}.json") if _NAME.fullmatch(name) else ():
            with file.open(encoding="utf-8") as text:
                if found := _SALT.search(text.read(_HEAD)):
                    Crypter(state_dir.passphrase, found[1]).begin()


def state_salt(name: str) -> str:
    """The salt under which a stack's state encrypts its secrets; empty if there is none, or no passphrase."""
    space = workspace(name)
    row = space.stack(name).export_state()["deployment"] if name in space.stacks() else {}
    kept = row.get("secrets_providers") or {}
    return kept["state"]["salt"] if kept.get("type") == "passphrase" else ""


@contextmanager
def held(name: str) -> Generator[None]:
    """Hold a stack, so that no `up` changes its machines meanwhile; state that is not in files has no lock of ours.
    Raises StackLockedError: somebody else holds it."""
    if not state_dir.on_files(name):
        yield
        return
    with require_state(name).hold():
        yield


def _there_are(stacks: list[str]) -> str:
    if not stacks:
        return "There are none yet: write a Pulumi.<stack>.yaml."
    return f"There {'is' if len(stacks) == 1 else 'are'}: {', '.join(stacks)}."
