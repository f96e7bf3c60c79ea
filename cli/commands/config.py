"""`./hpc config set`."""

import getpass
import sys
from typing import Annotated

from typer import Argument, Option

from cli import console, options
from cli.errors import CliError
from cli.stack import edits, project, stackfile, state_dir
from cli.stack.stackfile import StackFile
from cluster.config.monitoring import SECRETS
from engine.state.crypter import Crypter

_SECRETS_PROVIDER = "secretsprovider"


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
    if ":" not in key or (key.startswith("hpc:") and key not in SECRETS):
        raise CliError(
            f"{key!r}: give a provider's setting, such as gcp:credentials; the cluster is edited in {file.path}."
        )
    if secret and value is not None:
        raise CliError("a secret on the command line is read by others: leave VALUE out, and give it when asked for.")

    crypter = _crypter(file) if secret else None
    if value is None:
        # A terminal does not show what is typed. Of a pipe's text the last line end is left out.
        value = getpass.getpass(f"{key}: ", stream=sys.stderr) if console.interactive() else sys.stdin.read()
        value = value.removesuffix("\n")
    setting = {"secure": crypter.encrypt(value)} if crypter else value

    with edits.alone(file.path):
        edits.write(file.path, edits.with_setting(edits.read(file.path), key, setting))
    console.note(f"Set {key} in {file.path.name}{', encrypted' if secret else ''}")


def _crypter(file: StackFile) -> Crypter:
    """Return the crypter with the stack's salt, which is written to a file that has none."""
    keys = stackfile.encryption_keys(file.path)
    if _SECRETS_PROVIDER in keys or not (state_dir.on_files(file.stack) or keys):
        provider = keys.get(_SECRETS_PROVIDER, state_dir.backend(file.stack))
        raise CliError(f"secrets of stack {file.stack} are kept by {provider}: use `pulumi config set --secret`")
    salt_key = stackfile.ENCRYPTION_KEYS[0]
    crypter = Crypter(state_dir.passphrase, keys.get(salt_key) or project.state_salt(file.stack))
    crypter.unlock()
    stackfile.add_encryption_keys(file.path, {salt_key: crypter.salt})
    return crypter
