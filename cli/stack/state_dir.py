"""Finds the state and its passphrase: where the Pulumi CLI is logged in, else in `$HPC_HOME` (default ~/.hpc).

Both engines use the same state, so that one can go on with a stack of the other.
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
from engine.state.stored_stack import stored_files
from scripts.hostfiles import write_atomically

_BACKEND = "PULUMI_BACKEND_URL"
_PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of a variable
_PASSPHRASE_FILE = "PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105 - the name of a variable
_FILE_SCHEME = "file://"


def directory() -> Path:
    """The folder of state, passphrase and logs."""
    return Path(os.environ.get("HPC_HOME") or Path.home() / ".hpc").expanduser().absolute()


def backups() -> Path:
    """Return the folder of backups of accounting databases, which is created if it does not exist."""
    folder = directory() / "accounting-backups"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def own() -> str:
    """Return the URL of the state dir."""
    return f"{_FILE_SCHEME}{directory()}"


def backend(stack: str | None = None) -> str:
    """Return the URL of the state of a stack; without a stack, of stacks without a setting of their own."""
    return located(stack)[0]


def located(stack: str | None = None) -> tuple[str, str]:
    """Return the URL of the state, and the setting that it comes from.

    As for the Pulumi CLI (pkg/workspace/creds.go) this is PULUMI_BACKEND_URL, else the project's backend, else the
    last `pulumi login`. HPC_HOME is a setting as well. Rehearsals and stacks with state in the state dir stay there.
    """
    if url := os.environ.get(_BACKEND):
        return _absolute(url), _BACKEND
    if os.environ.get("HPC_HOME"):
        return own(), "HPC_HOME"
    if stack and _is_in_state_dir(stack):
        return own(), "the stack's state there"
    if url := _project_backend():
        return _absolute(url), "`backend` in Pulumi.yaml"
    if url := _login_backend():
        return _absolute(url), "`pulumi login`"
    return own(), "the default"


def on_files(stack: str | None = None) -> bool:
    """Return whether the state is in files, which commands can read without the Pulumi CLI."""
    return backend(stack).startswith(_FILE_SCHEME)


def _absolute(url: str) -> str:
    """Return the URL with an absolute path if it is a folder's, since the CLI runs in the project's folder.

    `~` is the user's home folder in the user database, as for the CLI (pkg/backend/diy/backend.go), not HOME, which may
    be another user's after sudo."""
    if not url.startswith(_FILE_SCHEME):
        return url
    path = url.removeprefix(_FILE_SCHEME) or "."
    if path == "~" or path.startswith("~/"):
        path = _home_folder() + path[1:]
    return f"{_FILE_SCHEME}{Path(path).absolute()}"


def _home_folder() -> str:
    """Return the user's home folder, as the CLI finds it."""
    return pwd.getpwuid(os.getuid()).pw_dir


def _is_in_state_dir(stack: str) -> bool:
    rehearsal = directory() / "rehearsals" / f"Pulumi.{stack}.yaml"
    return rehearsal.exists() or bool(stored_files(directory() / ".pulumi", stack=stack))


def _project_backend() -> str:
    """Return the URL of the backend in Pulumi.yaml, "" if it has none."""
    import yaml  # most commands do without

    try:
        row = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
        return str((row.get("backend") or {}).get("url") or "")
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return ""  # the engine reports what is wrong with it


def _login_backend() -> str:
    """Return the URL of the last `pulumi login`, "" if there was none (sdk/go/common/workspace/creds.go)."""
    folder = os.environ.get("PULUMI_CREDENTIALS_PATH") or os.environ.get("PULUMI_HOME")
    folder = folder or f"{_home_folder()}/.pulumi"
    try:
        return str(json.loads((Path(folder) / "credentials.json").read_text(encoding="utf-8")).get("current") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def passphrase() -> str:
    """Return the passphrase that encrypts the secrets in the state, which is generated on first use. Raises CliError:
    the file is gone although there are stacks, or a file can't be read."""
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
    """Return the name of the variable or file that `passphrase` reads."""
    if _PASSPHRASE in os.environ:
        return f"the variable {_PASSPHRASE}"
    chosen = os.environ.get(_PASSPHRASE_FILE)
    return f"{chosen} ({_PASSPHRASE_FILE})" if chosen else str(directory() / "passphrase")


def passphrase_file() -> Path:
    """Return the path of the passphrase file in the state dir, which is created on first use with mode 0600."""
    file = directory() / "passphrase"
    if file.exists():
        return file
    states = stored_files(directory() / ".pulumi")
    if states:
        raise CliError(
            f"{file}: gone, but there is state whose secrets are encrypted ({states[0][1]}).\n"
            f"Put the file back, or set {_PASSPHRASE} or {_PASSPHRASE_FILE} to the passphrase that was used."
        )
    make_directory()
    descriptor, name = tempfile.mkstemp(prefix=".passphrase-", dir=file.parent)  # mode 0600
    new = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(secrets.token_urlsafe(32) + "\n")
    # If two first runs come at once, one creates the link and both read its file.
    with suppress(FileExistsError):
        os.link(new, file)
        console.note(f"Generated the passphrase that encrypts the state's secrets: {file} (keep a copy of it)")
    new.unlink()
    return file


def make_directory() -> Path:
    """Create the state dir, readable by its owner only."""
    directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory()


def write_file(path: Path, text: str) -> None:
    """Write a file in the state dir atomically, readable by its owner only."""
    make_directory()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(path, text, mode=0o600)


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, even if others could before. A device or a pipe is not changed."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
        out.write(text)


def environment(stack: str | None = None) -> dict[str, str]:
    """Return this process's environment with the variables by which the Pulumi CLI finds the same state and
    passphrase."""
    env = dict(os.environ)
    env[_BACKEND] = backend(stack)
    if not env.get(_PASSPHRASE) and not env.get(_PASSPHRASE_FILE):
        env[_PASSPHRASE_FILE] = str(passphrase_file())
    env.setdefault("PULUMI_SKIP_UPDATE_CHECK", "true")
    return env
