"""Finds state and its passphrase: where the Pulumi CLI is logged in, else in `$HPC_HOME` (default ~/.hpc).

Both engines get the same answer, so that a stack begun on one goes on with the other.
"""

import json
import os
import pwd
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from cli import ROOT, console
from cli.errors import CliError
from hostfiles import write_atomically

_BACKEND = "PULUMI_BACKEND_URL"
_PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of a variable
_PASSPHRASE_FILE = "PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105 - the name of a variable
_FILE_SCHEME = "file://"


def directory() -> Path:
    """The folder of state, passphrase and logs."""
    return Path(os.environ.get("HPC_HOME") or Path.home() / ".hpc").expanduser().absolute()


def backups() -> Path:
    """The folder of backups of accounting databases, made if it is not there."""
    folder = directory() / "accounting-backups"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def own() -> str:
    """URL of our own folder."""
    return f"{_FILE_SCHEME}{directory()}"


def backend(stack: str | None = None) -> str:
    """URL of the state, of a stack or of all that is said nothing of."""
    return located(stack)[0]


def located(stack: str | None = None) -> tuple[str, str]:
    """URL of the state, and the setting that it comes from.

    As for the Pulumi CLI (pkg/workspace/creds.go): PULUMI_BACKEND_URL, else the project's own backend, else where
    `pulumi login` led last. HPC_HOME says where state is too; and what has its state in our folder stays there, as do
    rehearsals, which only this program has.
    """
    if url := os.environ.get(_BACKEND):
        return _absolute(url), _BACKEND
    if os.environ.get("HPC_HOME"):
        return own(), "HPC_HOME"
    if stack and _is_ours(stack):
        return own(), "the stack's state there"
    if url := _of_project():
        return _absolute(url), "`backend` in Pulumi.yaml"
    if url := _logged_in():
        return _absolute(url), "`pulumi login`"
    return own(), "the default"


def on_files(stack: str | None = None) -> bool:
    """Return whether the state is in files, which every command here can read without the Pulumi CLI."""
    return backend(stack).startswith(_FILE_SCHEME)


def _absolute(url: str) -> str:
    """The URL; a folder's as seen from here, since the CLI runs in the project's folder. `~` is the user's own folder
    by the user database, as for the CLI (pkg/backend/diy/backend.go), and not by HOME, which sudo may leave."""
    if not url.startswith(_FILE_SCHEME):
        return url
    path = url.removeprefix(_FILE_SCHEME) or "."
    if path == "~" or path.startswith("~/"):
        path = _users_folder() + path[1:]
    return f"{_FILE_SCHEME}{Path(path).absolute()}"


def _users_folder() -> str:
    """The user's own folder, as the CLI finds it."""
    return pwd.getpwuid(os.getuid()).pw_dir


def _is_ours(stack: str) -> bool:
    rehearsal = directory() / "rehearsals" / f"Pulumi.{stack}.yaml"
    return rehearsal.exists() or any(directory().glob(f".pulumi/stacks/*/{stack}.json"))


def _of_project() -> str:
    import yaml  # most commands do without

    try:
        row = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
        return str((row.get("backend") or {}).get("url") or "")
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return ""  # the engine reports what is wrong with it


def _logged_in() -> str:
    """Return where `pulumi login` led last, "" if nowhere (sdk/go/common/workspace/creds.go)."""
    folder = os.environ.get("PULUMI_CREDENTIALS_PATH") or os.environ.get("PULUMI_HOME")
    folder = folder or f"{_users_folder()}/.pulumi"
    try:
        return str(json.loads((Path(folder) / "credentials.json").read_text(encoding="utf-8")).get("current") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def passphrase() -> str:
    """Return what the secrets in the state are encrypted with; generated on first use. Raises CliError: it is lost
    (there are stacks, but the file is gone), or a file can't be read."""
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
    """Name of the variable or file that `passphrase` reads."""
    if _PASSPHRASE in os.environ:
        return f"the variable {_PASSPHRASE}"
    chosen = os.environ.get(_PASSPHRASE_FILE)
    return f"{chosen} ({_PASSPHRASE_FILE})" if chosen else str(directory() / "passphrase")


def passphrase_file() -> Path:
    """Path of our own passphrase file, made on first use with mode 0600."""
    file = directory() / "passphrase"
    if file.exists():
        return file
    states = sorted(directory().glob(".pulumi/stacks/*/*.json"))
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


def write_file(path: Path, text: str) -> None:
    """Write a file below the folder atomically, readable by its owner only."""
    make_directory()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(path, text, mode=0o600)


def write_private(file: Path, text: str) -> None:
    """Write a file that nobody else may read, also where it was there for all; a device or a pipe stays what it is."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
        out.write(text)


def environment(stack: str | None = None) -> dict[str, str]:
    """This process's environment, with what the Pulumi CLI needs to find the same state and passphrase."""
    env = dict(os.environ)
    env[_BACKEND] = backend(stack)
    if not env.get(_PASSPHRASE) and not env.get(_PASSPHRASE_FILE):
        env[_PASSPHRASE_FILE] = str(passphrase_file())
    env.setdefault("PULUMI_SKIP_UPDATE_CHECK", "true")
    return env
