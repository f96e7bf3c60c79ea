#!/usr/bin/python3 -I
"""Stores your API key of NVIDIA NGC, so that enroot and apptainer can pull images from nvcr.io, in jobs as well.

    nvcrlogin              ask for the key, without showing it, and store it
    nvcrlogin < FILE       store the key in FILE, for example one that your password manager wrote
    nvcrlogin --check      print whether a key is stored; exit code 1 if none is
    nvcrlogin --remove     delete the stored key; logins of other registries stay

Create a key at https://org.ngc.nvidia.com/setup/api-keys. It is stored in your home, readable by you only:
ENROOT_CONFIG_PATH/.credentials for enroot, ~/.apptainer/docker-config.json for apptainer. It is never an argument of a
command or a variable, where other users or your shell's history would show it.
"""

import argparse
import base64
import contextlib
import getpass
import glob
import json
import os
import re
import secrets
import stat
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

# https://github.com/NVIDIA/enroot/blob/v3.5.0/doc/cmd/import.md: NGC needs both, with this login, each on one line.
MACHINES = ("nvcr.io", "authn.nvidia.com")
LOGIN = "$oauthtoken"
# Personal keys are nvapi- and 64 characters more, keys of the older kind 84 characters in base64. A `$` is not allowed:
# enroot runs what follows it as a command (common::evalnetrc in src/common.sh).
KEY = re.compile(r"[A-Za-z0-9_./+=-]{32,512}")
ENROOT = "/etc/enroot/enroot.conf"


class RefusedError(Exception):
    """The request is refused; the text says why and what to do."""


@contextlib.contextmanager
def private_folder(path: Path, *, make: bool) -> Iterator[int | None]:
    """Open a folder in the user's home, and yield its descriptor; None if it does not exist and `make` is not set.

    It follows no link below the home. Raises RefusedError for a folder that others own or can write to.
    """
    home = Path(os.environ.get("HOME") or "/nonexistent")
    try:
        parts = path.relative_to(home).parts
    except ValueError:
        raise RefusedError(
            f"{path} is not in your home, {home}: unset the variable that says so, and try again"
        ) from None
    if ".." in parts:
        raise RefusedError(f"{path} leaves your home: unset the variable that says so, and try again")
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RefusedError(f"your home, {home}, can't be opened: {error.strerror}") from None
    try:
        path = home
        _require_private(folder, path)
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=folder)
            path = path / part
            try:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            except FileNotFoundError:
                yield None
                return
            except OSError:
                raise RefusedError(f"{path} is a link or no folder: move it away, and try again") from None
            os.close(folder)
            folder = inner
            _require_private(folder, path)
        yield folder
    finally:
        os.close(folder)


def _require_private(folder: int, path: Path) -> None:
    """Raise RefusedError if others own the folder or can write to it."""
    status = os.fstat(folder)
    if status.st_uid != os.getuid():
        raise RefusedError(
            f"{path} belongs to uid {status.st_uid}, not to you (uid {os.getuid()}): log in as its owner"
        )
    if status.st_mode & 0o022:
        raise RefusedError(f"others can write to {path}: run `chmod go-w {path}`, and try again")


def read(folder: int, path: Path) -> str | None:
    """Return the text of the user's file, None if it does not exist, and make it unreadable for others.

    Raises RefusedError for a link, a file of another user, and a file that is not UTF-8.
    """
    try:
        file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RefusedError(
            f"{path} is a link or can't be read ({error.strerror}): move it away, and try again"
        ) from None
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_nlink != 1:
            raise RefusedError(f"{path} is not a file of yours with one name: move it away, and try again")
        if status.st_mode & 0o077:
            os.fchmod(file, 0o600)
            print(f"others could read {path}; now only you can. If it had keys, create new ones")
        try:
            return opened.read().decode()
        except UnicodeDecodeError:
            raise RefusedError(f"{path} is no text: move it away, and try again") from None


def replace(folder: int, name: str, text: str) -> None:
    """Write `text` to the file atomically, readable by the user only; delete the file if `text` is empty."""
    if not text:
        os.unlink(name, dir_fd=folder)
        return
    part = f".{name}.{secrets.token_hex(6)}"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(file)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(part, dir_fd=folder)
        raise


def netrc(text: str, key: str | None) -> str:
    """Return a credentials file with `key` as the only key of NGC, or without one, and all other lines kept.

    The entries of NGC come first, because enroot takes the first one of a machine. A pure function.
    """
    others: list[str] = []
    remaining = 0  # words that follow of an entry of NGC, which may span several lines
    for line in text.splitlines(keepends=True):
        words = line.split()
        if not words or words[0] in ("machine", "default", "macdef") or words[0].startswith("#"):
            remaining = 6 if words[:1] == ["machine"] and set(words[1:2]) & set(MACHINES) else 0
        if remaining > 0:
            remaining -= len(words)
        else:
            others.append(line)
    entries = [f"machine {machine} login {LOGIN} password {key}\n" for machine in MACHINES] if key else []
    return "".join(entries + others)


def netrc_key(text: str) -> str | None:
    """Return the key of NGC that enroot would use; None unless both machines have one."""
    entry = re.compile(rf"(?m)^machine[ \t]+(\S+)[ \t]+login[ \t]+{re.escape(LOGIN)}[ \t]+password[ \t]+(\S+)[ \t]*$")
    keys = dict(reversed(entry.findall(text)))
    return keys.get(MACHINES[0]) if set(MACHINES) <= set(keys) else None


def logins(text: str, key: str | None) -> str:
    """Return a docker-config.json with `key` as the only key of NGC, or without one, and everything else kept.

    Raises ValueError if `text` is not such a file. A pure function.
    """
    config = json.loads(text) if text.strip() else {}
    if not isinstance(config, dict) or not isinstance(config.get("auths", {}), dict):
        raise ValueError
    auths = {name: value for name, value in config.get("auths", {}).items() if name != MACHINES[0]}
    if key:
        auths[MACHINES[0]] = {"auth": base64.b64encode(f"{LOGIN}:{key}".encode()).decode()}
    config = {**config, "auths": auths}
    return json.dumps(config, indent="\t") + "\n" if auths or len(config) > 1 else ""


def credentials() -> Path:
    """Return the path of enroot's credentials, from its settings: the first file that has one counts (config::load in
    enroot.in)."""
    home = os.environ.get("HOME", "")
    names = {"UID": str(os.getuid()), "XDG_CONFIG_HOME": f"{home}/.config", **os.environ}
    value = os.environ.get("ENROOT_CONFIG_PATH", "")
    for file in (ENROOT, *sorted(glob.glob(f"{ENROOT}.d/*.conf"))):  # noqa: PTH207 - the shell's own order of names
        if not value and os.path.exists(file):  # noqa: PTH110
            setting = re.search(r"(?m)^[ \t]*ENROOT_CONFIG_PATH[ \t=]+(.*?)[ \t]*$", Path(file).read_text())
            value = setting[1] if setting else ""
    try:
        folder = string.Template(value.strip("\"'") or "${XDG_CONFIG_HOME}/enroot").substitute(names)
    except (KeyError, ValueError):
        raise RefusedError(f"where enroot keeps credentials can't be read from `ENROOT_CONFIG_PATH {value}`") from None
    return Path(folder) / ".credentials"


def docker_config() -> Path:
    """Return the path of apptainer's registry logins (https://apptainer.org/docs/user/main/docker_and_oci.html)."""
    folder = os.environ.get("APPTAINER_CONFIGDIR") or f"{os.environ.get('HOME', '')}/.apptainer"
    return Path(folder) / "docker-config.json"


def read_key() -> str:
    """Read the key from the terminal without echo, or from standard input. Raises RefusedError if it can't be a key."""
    if sys.stdin.isatty():
        key = getpass.getpass("API key of NGC (not shown): ").strip()
    else:
        key = sys.stdin.buffer.read(4096).decode(errors="replace").strip()
    if not KEY.fullmatch(key):
        what = "nothing was" if not key else f"what was given ({len(key)} characters) can't be a key, and was not"
        raise RefusedError(f"{what} stored: a key has 32 to 512 letters, digits and -_./+=, for example nvapi-...")
    return key


def store(key: str | None) -> list[Path]:
    """Write `key` to both files, or remove the stored one; return the changed files. Checks both before it writes."""
    with contextlib.ExitStack() as open_folders:
        changes: list[tuple[int, Path, str]] = []
        for path, edit in ((credentials(), netrc), (docker_config(), logins)):
            folder = open_folders.enter_context(private_folder(path.parent, make=key is not None))
            if folder is None:
                continue
            before = read(folder, path)
            try:
                after = edit(before or "", key)
            except ValueError:
                raise RefusedError(f"{path} is no JSON of logins: mend it or move it away, and try again") from None
            if after != (before or ""):
                changes.append((folder, path, after))
        for folder, path, after in changes:
            replace(folder, path.name, after)
    return [path for _, path, _ in changes]


def check() -> int:
    """Print whether a key is stored; return the exit code."""
    path = credentials()
    with private_folder(path.parent, make=False) as folder:
        text = None if folder is None else read(folder, path)
    key = netrc_key(text or "")
    print(f"a key of NGC is stored in {path}" if key else "no key of NGC is stored: run nvcrlogin")
    return 0 if key else 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        del message  # it contains the argument, which may be the key
        sys.stderr.write(
            "nvcrlogin: it takes --check, --remove, --help or nothing, and asks for the key.\n"
            "If you typed the key: your shell's history has it now. Delete the line there, or create a new key.\n"
        )
        sys.exit(2)


def main(arguments: list[str]) -> int:
    """Run the command; return the exit code: 0 done, 1 refused or no key, 2 wrong arguments, 130 interrupted."""
    form, usage = argparse.RawDescriptionHelpFormatter, "nvcrlogin [--check | --remove]"
    parser = _Parser("nvcrlogin", usage=usage, description=__doc__, allow_abbrev=False, formatter_class=form)
    for name in ("--check", "--remove"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.check and options.remove:
        parser.error("")
    try:
        if options.check:
            return check()
        changed = store(None if options.remove else read_key())
    except RefusedError as error:
        sys.stderr.write(f"nvcrlogin: {error}\n")
        return 1
    except OSError as error:  # for example a full disk or quota
        sys.stderr.write(f"nvcrlogin: {error.strerror}; what was not reported as written is as it was\n")
        return 1
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\nnvcrlogin: stopped; nothing was changed\n")
        return 130
    for path in changed:
        print(f"key {'removed from' if options.remove else 'stored in'} {path}")
    if not changed:
        print("no key of NGC was stored" if options.remove else "this key is stored already")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
