"""The project: its folder, its stacks, and the engine's view of them."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli import home, stackfile
from cli.errors import CliError

if TYPE_CHECKING:
    from engine import Stack, Workspace

ROOT = Path(__file__).resolve().parent.parent


def workspace() -> "Workspace":
    """The embedded engine's workspace over the state of `home`.

    Raises:
        CliError: the state is not in files.
    """
    if not home.on_files():
        raise CliError(
            f"PULUMI_BACKEND_URL is {home.backend()}: the embedded engine keeps state in files only. "
            "Use file://DIR, or --engine pulumi."
        )
    from engine import Workspace

    return Workspace(ROOT, backend=home.backend(), passphrase=home.passphrase)


def known() -> list[str]:
    """Every stack that has a file or state."""
    return sorted({*stackfile.named(ROOT), *(workspace().stacks() if home.on_files() else [])})


def require_file(name: str, config_file: Path | None = None) -> stackfile.StackFile:
    """The stack's file, which must be there.

    Raises:
        CliError: there is none; the text lists the stacks that there are.
    """
    file = stackfile.read(ROOT, name, config_file)
    if file.settings is None:
        raise CliError(f"there is no stack {name!r}: {file.path.name} does not exist. {_there_are(known())}")
    return file


def require_state(name: str) -> "Stack":
    """The embedded engine's stack, which must have been brought up before.

    Raises:
        CliError: it has not, or there is none of that name.
    """
    space = workspace()
    if name not in space.stacks():
        if name in stackfile.named(ROOT):
            raise CliError(f"stack {name!r} has not been brought up. Do so with: ./hpc up {name}")
        raise CliError(f"there is no stack {name!r}. {_there_are(known())}")
    return space.stack(name)


@contextmanager
def held(name: str) -> Generator[None]:
    """Hold a stack, so that no `up` changes its machines meanwhile; state that is not in files has no lock of ours.

    Raises:
        StackLocked: somebody else holds it.
    """
    if not home.on_files():
        yield
        return
    with require_state(name).hold():
        yield


def _there_are(stacks: list[str]) -> str:
    if not stacks:
        return "There are none yet: write a Pulumi.<stack>.yaml."
    return f"There {'is' if len(stacks) == 1 else 'are'}: {', '.join(stacks)}."
