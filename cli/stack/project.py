"""The project: its folder, its stacks, and the engine's view of them."""

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli import ROOT
from cli.errors import CliError
from cli.stack import rehearsals, stackfile, state_dir
from engine import Stack, Workspace
from engine.project import Project
from engine.state.crypter import Crypter

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SALT = re.compile(r'"salt":\s*"(v1:[^"]+)"')
_HEAD = 4096
"""Number of characters at the beginning of a state file that contain its salt. The resources follow."""


def workspace(stack: str | None = None, *, as_new: bool = False) -> Workspace:
    """Return the embedded engine's workspace for the state. With `as_new`, state that is not in files is replaced by
    the default folder, in which the stack is new. Raises CliError: the state is not in files, or `stack` is no name."""
    if stack:
        rehearsals.checked(stack)  # it becomes a part of paths
    url, who = state_dir.located(stack)
    if not state_dir.on_files(stack):
        if not as_new:
            raise CliError(
                f"state is at {url} ({who}), and the embedded engine keeps it in files only. Use --engine pulumi; "
                f"or, to keep this stack's state on this machine, set PULUMI_BACKEND_URL={state_dir.own()}"
            )
        url = state_dir.own()
    return Workspace(ROOT, backend=url, passphrase=state_dir.passphrase)


def name() -> str:
    """Return the project's name in Pulumi.yaml."""
    return Project.read(ROOT).name


def known() -> list[str]:
    """Return the name of every stack that has a file or state."""
    urls = {state_dir.own(), *([state_dir.backend()] if state_dir.on_files() else [])}
    return sorted({*stackfile.named(ROOT), *(name for url in urls for name in Workspace(ROOT, backend=url).stacks())})


def require_file(name: str, config_file: Path | None = None) -> stackfile.StackFile:
    """Return the stack's file. Raises CliError: it does not exist; the message lists the stacks."""
    file = stackfile.read(ROOT, name, config_file)
    if file.settings is None:
        raise CliError(f"there is no stack {name!r}: {file.path.name} does not exist. {_there_are(known())}")
    return file


def require_state(name: str) -> Stack:
    """Return the embedded engine's stack. Raises CliError: it has no state, or there is no stack of that name."""
    space = workspace(name)
    if name not in space.stacks():
        if name in stackfile.named(ROOT):
            raise CliError(f"stack {name!r} has not been brought up. Do so with: ./hpc up {name}")
        raise CliError(f"there is no stack {name!r}. {_there_are(known())}")
    return space.stack(name)


def begin_unlock(name: str) -> None:
    """Start to derive the key of a stack's secrets, if it has any, while the command imports its modules: this takes a
    third of a second. Errors are ignored here and raised when the key is used."""
    with suppress(Exception):
        states = Path(state_dir.backend(name).removeprefix("file://"), ".pulumi/stacks")
        for file in states.glob(f"*/{name}.json") if _NAME.fullmatch(name) else ():
            with file.open(encoding="utf-8") as text:
                if match := _SALT.search(text.read(_HEAD)):
                    Crypter(state_dir.passphrase, match[1]).begin()


def state_salt(name: str) -> str:
    """Return the salt of the passphrase that encrypts a stack's secrets; empty without state or passphrase."""
    space = workspace(name)
    deployment = space.stack(name).export_state()["deployment"] if name in space.stacks() else {}
    provider = deployment.get("secrets_providers") or {}
    return provider["state"]["salt"] if provider.get("type") == "passphrase" else ""


def check_passphrase(file: stackfile.StackFile) -> None:
    """Check that the passphrase fits the secrets of a stack file, else of its state. Raises PassphraseError."""
    salt = stackfile.encryption_keys(file.path).get(stackfile.ENCRYPTION_KEYS[0]) or state_salt(file.stack)
    if salt:
        Crypter(state_dir.passphrase, salt).unlock()


@contextmanager
def held(name: str) -> Generator[None]:
    """Lock a stack, so that no `up` changes its machines meanwhile. State that is not in files is not locked. Raises
    StackLockedError: another process has locked it."""
    if not state_dir.on_files(name):
        yield
        return
    with require_state(name).hold():
        yield


def _there_are(stacks: list[str]) -> str:
    if not stacks:
        return "There are none yet: write a Pulumi.<stack>.yaml."
    return f"There {'is' if len(stacks) == 1 else 'are'}: {', '.join(stacks)}."
