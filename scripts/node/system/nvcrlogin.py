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
# Personal keys are nvapi- and 64 more, keys of the older kind 84 in base64. A `$` in front would have enroot run the
# rest as a command (common::evalnetrc in src/common.sh).
KEY = re.compile(r"[A-Za-z0-9_./+=-]{32,512}")
ENROOT = "/etc/enroot/enroot.conf"


class RefusedError(Exception):
    """The request is refused; the text says why and what to do."""


@contextlib.contextmanager
def private_folder(path: Path, *, make: bool) -> Iterator[int | None]:
    """A folder of the user's own, in their home, as a file descriptor; None where there is none and none is made.

    No link is followed below the home. Raises RefusedError for a folder that belongs to, or can be written by, others.
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
        here = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RefusedError(f"your home, {home}, can't be opened: {error.strerror}") from None
    try:
        _own(here, home)
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=here)
            home = home / part
            try:
                there = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            except FileNotFoundError:
                yield None
                return
            except OSError:
                raise RefusedError(f"{home} is a link or no folder: move it away, and try again") from None
            os.close(here)
            here = there
            _own(here, home)
        yield here
    finally:
        os.close(here)


def _own(folder: int, path: Path) -> None:
    found = os.fstat(folder)
    if found.st_uid != os.getuid():
        raise RefusedError(f"{path} belongs to uid {found.st_uid}, not to you (uid {os.getuid()}): log in as its owner")
    if found.st_mode & 0o022:
        raise RefusedError(f"others can write to {path}: run `chmod go-w {path}`, and try again")


def read(folder: int, path: Path) -> str | None:
    """The text of the user's file; None where there is none. Others lose the right to read it.

    Raises RefusedError for a link, a file of somebody else, and one that is no text.
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
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_nlink != 1:
            raise RefusedError(f"{path} is not a file of yours with one name: move it away, and try again")
        if found.st_mode & 0o077:
            os.fchmod(file, 0o600)
            say(f"others could read {path}; now only you can. If it had keys, create new ones")
        try:
            return opened.read().decode()
        except UnicodeDecodeError:
            raise RefusedError(f"{path} is no text: move it away, and try again") from None


def replace(folder: int, name: str, text: str) -> None:
    """Have `text` in the file, readable by the user only; completely, or not at all if this is stopped."""
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
    """A file of credentials with `key` for NGC, or with none, and everything else as it was. A pure function.

    The first line of a machine counts, so NGC's come first.
    """
    kept: list[str] = []
    lacks = 0  # words of an entry of NGC, which may go over several lines
    for line in text.splitlines(keepends=True):
        words = line.split()
        if not words or words[0] in ("machine", "default", "macdef") or words[0].startswith("#"):
            lacks = 6 if words[:1] == ["machine"] and set(words[1:2]) & set(MACHINES) else 0
        if lacks > 0:
            lacks -= len(words)
        else:
            kept.append(line)
    lines = [f"machine {machine} login {LOGIN} password {key}\n" for machine in MACHINES] if key else []
    return "".join(lines + kept)


def netrc_key(text: str) -> str | None:
    """The key of NGC that enroot would use; None if there is none for both machines."""
    entry = re.compile(rf"(?m)^machine[ \t]+(\S+)[ \t]+login[ \t]+{re.escape(LOGIN)}[ \t]+password[ \t]+(\S+)[ \t]*$")
    found = dict(reversed(entry.findall(text)))
    return found.get(MACHINES[0]) if set(MACHINES) <= set(found) else None


def logins(text: str, key: str | None) -> str:
    """A docker-config.json with `key` for NGC, or with none, and everything else as it was. A pure function.

    Raises ValueError for what is no such file.
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
    """Return where enroot looks for credentials: as its settings say, the first of which counts (config::load,
    enroot.in)."""
    home = os.environ.get("HOME", "")
    names = {"UID": str(os.getuid()), "XDG_CONFIG_HOME": f"{home}/.config", **os.environ}
    value = os.environ.get("ENROOT_CONFIG_PATH", "")
    for file in (ENROOT, *sorted(glob.glob(f"{ENROOT}.d/*.conf"))):  # noqa: PTH207 - the shell's own order of names
        if not value and os.path.exists(file):  # noqa: PTH110
            found = re.search(r"(?m)^[ \t]*ENROOT_CONFIG_PATH[ \t=]+(.*?)[ \t]*$", Path(file).read_text())
            value = found[1] if found else ""
    try:
        folder = string.Template(value.strip("\"'") or "${XDG_CONFIG_HOME}/enroot").substitute(names)
    except (KeyError, ValueError):
        raise RefusedError(f"where enroot keeps credentials can't be read from `ENROOT_CONFIG_PATH {value}`") from None
    return Path(folder) / ".credentials"


def docker_config() -> Path:
    """Return where apptainer looks for logins of registries (https://apptainer.org/docs/user/main/docker_and_oci.html)."""
    folder = os.environ.get("APPTAINER_CONFIGDIR") or f"{os.environ.get('HOME', '')}/.apptainer"
    return Path(folder) / "docker-config.json"


def ask() -> str:
    """The key, from the terminal without echo, or the only line of standard input."""
    if sys.stdin.isatty():
        key = getpass.getpass("API key of NGC (not shown): ").strip()
    else:
        key = sys.stdin.buffer.read(4096).decode(errors="replace").strip()
    if not KEY.fullmatch(key):
        what = "nothing was" if not key else f"what was given ({len(key)} characters) can't be a key, and was not"
        raise RefusedError(f"{what} stored: a key has 32 to 512 letters, digits and -_./+=, for example nvapi-...")
    return key


def store(key: str | None) -> list[Path]:
    """Have `key`, or none, in both files; those that had to change. Both are checked before any is written."""
    changed: list[Path] = []
    with contextlib.ExitStack() as open_folders:
        steps: list[tuple[int, Path, str]] = []
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
                steps.append((folder, path, after))
        for folder, path, after in steps:
            replace(folder, path.name, after)
            changed.append(path)
    return changed


def check() -> int:
    """Print whether a key is stored."""
    found = credentials()
    with private_folder(found.parent, make=False) as folder:
        text = None if folder is None else read(folder, found)
    key = netrc_key(text or "")
    say(f"a key of NGC is stored in {found}" if key else "no key of NGC is stored: run nvcrlogin")
    return 0 if key else 1


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        del message  # which has the argument, and that may be the key
        sys.stderr.write(
            "nvcrlogin: it takes --check, --remove, --help or nothing, and asks for the key.\n"
            "If you typed the key: your shell's history has it now. Delete the line there, or create a new key.\n"
        )
        sys.exit(2)


def main(arguments: list[str]) -> int:
    """Do as the arguments say: 0 done, 1 refused or no key, 2 wrong arguments, 130 stopped."""
    form, usage = argparse.RawDescriptionHelpFormatter, "nvcrlogin [--check | --remove]"
    parser = _Parser("nvcrlogin", usage=usage, description=__doc__, allow_abbrev=False, formatter_class=form)
    for name in ("--check", "--remove"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.check and asked.remove:
        parser.error("")
    try:
        if asked.check:
            return check()
        changed = store(None if asked.remove else ask())
    except RefusedError as error:
        sys.stderr.write(f"nvcrlogin: {error}\n")
        return 1
    except OSError as error:  # a full disk or quota
        sys.stderr.write(f"nvcrlogin: {error.strerror}; what was not reported as written is as it was\n")
        return 1
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\nnvcrlogin: stopped; nothing was changed\n")
        return 130
    word = "removed from" if asked.remove else "stored in"
    for path in changed:
        say(f"key {word} {path}")
    if not changed:
        say("no key of NGC was stored" if asked.remove else "this key is stored already")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
