"""`./hpc config set`."""

import getpass
import sys
from typing import Annotated

from typer import Argument, Option

from cli import console, options
from cli.errors import CliError
from cli.stack import edits as text_file
from cli.stack import project, stackfile, state_dir
from cli.stack.edits import with_setting
from cli.stack.stackfile import StackFile
from cluster.config.monitoring import SECRETS
from engine.state.crypter import Crypter

_FOREIGN = "secretsprovider"
_HEAD = "hpc:"


def set_(
    stack: options.Stack,
    key: Annotated[str, Argument(metavar="KEY", help="Such as gcp:credentials.")],
    value: Annotated[
        str | None, Argument(metavar="[VALUE]", help="Left out: asked for, or read from standard input.")
    ] = None,
    *,
    secret: Annotated[bool, Option("--secret", help="Encrypt it with the stack's passphrase.")] = False,
    config_file: options.ConfigFile = None,
) -> None:
    """Write a provider's setting into the stack file, which stays as it is otherwise.

    The cluster itself (hpc:cluster) is for an editor. A secret's value never stands on the command line, where every
    user of this machine could read it.
    """
    file = project.require_file(stack, config_file)
    if key in SECRETS and not secret:
        raise CliError(f"{key} is a secret: add --secret, and leave VALUE out.")
    if ":" not in key or (key.startswith(_HEAD) and key not in SECRETS):
        raise CliError(
            f"{key!r}: give a provider's setting, such as gcp:credentials; the cluster is edited in {file.path}."
        )
    if secret and value is not None:
        raise CliError("a secret on the command line is read by others: leave VALUE out, and give it when asked for.")

    crypter = _crypter(file) if secret else None
    given = value
    if given is None:
        # A person types it without its being shown; a pipe gives all but its last line end.
        given = getpass.getpass(f"{key}: ", stream=sys.stderr) if console.interactive() else sys.stdin.read()
        given = given.removesuffix("\n")
    shown = {"secure": crypter.encrypt(given)} if crypter else given

    with text_file.alone(file.path):
        text_file.write(file.path, with_setting(text_file.read(file.path), key, shown))
    console.note(f"Set {key} in {file.path.name}{', encrypted' if secret else ''}")


def _crypter(file: StackFile) -> Crypter:
    """The crypter of the stack's salt, which the file gets where it lacks one."""
    kept = stackfile.encryption_keys(file.path)
    if _FOREIGN in kept or not (state_dir.on_files(file.stack) or kept):
        who = kept.get(_FOREIGN, state_dir.backend(file.stack))
        raise CliError(f"secrets of stack {file.stack} are kept by {who}: use `pulumi config set --secret`")
    known = kept.get(stackfile.ENCRYPTION_KEYS[0]) or project.state_salt(file.stack)
    crypter = Crypter(state_dir.passphrase, known)
    crypter.unlock()
    stackfile.add_encryption_keys(file.path, {stackfile.ENCRYPTION_KEYS[0]: crypter.salt})
    return crypter
