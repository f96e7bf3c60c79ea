"""Where state and its passphrase live: `$HPC_HOME` (default ~/.hpc), unless Pulumi's own variables say otherwise.

Both engines get the same answer, so that a stack begun on one goes on with the other.
"""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from cli import console
from cli.errors import CliError

_BACKEND = "PULUMI_BACKEND_URL"
_PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of a variable
_PASSPHRASE_FILE = "PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105 - the name of a variable
_FILE_SCHEME = "file://"


def directory() -> Path:
    """The folder of state, passphrase and logs."""
    return Path(os.environ.get("HPC_HOME") or Path.home() / ".hpc").expanduser().absolute()


def backend() -> str:
    """URL of the state: PULUMI_BACKEND_URL, else the folder itself."""
    return os.environ.get(_BACKEND) or f"{_FILE_SCHEME}{directory()}"


def on_files() -> bool:
    """Whether the state is in files, which every command here can read without the Pulumi CLI."""
    return backend().startswith(_FILE_SCHEME)


def passphrase() -> str:
    """What the secrets in the state are encrypted with; generated on first use.

    Raises:
        CliError: it is lost (there are stacks, but the file is gone), or a file can't be read.
    """
    if _PASSPHRASE in os.environ:
        return os.environ[_PASSPHRASE]
    chosen = os.environ.get(_PASSPHRASE_FILE)
    file = Path(chosen) if chosen else passphrase_file()
    try:
        return file.read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise CliError(
            f"{file}: the passphrase can't be read: {error.strerror}. Correct {_PASSPHRASE_FILE}."
        ) from error


def passphrase_source() -> str:
    """Where `passphrase` takes it from, in words."""
    if _PASSPHRASE in os.environ:
        return f"the variable {_PASSPHRASE}"
    chosen = os.environ.get(_PASSPHRASE_FILE)
    return f"{chosen} ({_PASSPHRASE_FILE})" if chosen else str(directory() / "passphrase")


def passphrase_file() -> Path:
    """Path of our own passphrase file, made on first use with mode 0600."""
    file = directory() / "passphrase"
    if file.exists():
        return file
    states = sorted(directory().glob(".pulumi/stacks/*/*.json")) if on_files() else []
    if states:
        raise CliError(
            f"{file}: gone, but there is state whose secrets are encrypted ({states[0]}).\n"
            f"Put the file back, or set {_PASSPHRASE} or {_PASSPHRASE_FILE} to the passphrase that was used."
        )
    make_directory()
    descriptor, name = tempfile.mkstemp(prefix=".passphrase-", dir=file.parent)  # mode 0600
    new = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(secrets.token_urlsafe(32) + "\n")
    # Of two first runs at once, one links and both read that one's.
    with suppress(FileExistsError):
        os.link(new, file)
        console.note(f"Generated the passphrase that encrypts the state's secrets: {file} (keep a copy of it)")
    new.unlink()
    return file


def make_directory() -> Path:
    """Make the folder, readable by its owner only."""
    directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory()


def environment() -> dict[str, str]:
    """This process's environment, with what the Pulumi CLI needs to find the same state and passphrase."""
    env = dict(os.environ)
    env[_BACKEND] = backend()
    if not env.get(_PASSPHRASE) and not env.get(_PASSPHRASE_FILE):
        env[_PASSPHRASE_FILE] = str(passphrase_file())
    env.setdefault("PULUMI_SKIP_UPDATE_CHECK", "true")
    return env
