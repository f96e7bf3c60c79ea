"""A user's ~/.ssh/authorized_keys: our lines in a folder that is the user's, not ours.

What stands there may be a link to any file, a pipe that nobody writes to, a folder, or change while it is looked at. So
every step goes through the descriptor of the folder before it, follows no link and waits for nothing; and what changes
something runs as the user (homes.py), who can be led nowhere that was not open to them.
"""

import contextlib
import errno
import json
import os
import stat
import sys

from system.text_block import with_block

FOLDER, FILE, PART = ".ssh", "authorized_keys", ".authorized_keys.hpc-new"
LONGEST = 1 << 20  # bytes; a thousand keys are a tenth of it
SAME, CHANGED, REFUSED = 0, 3, 4  # exit codes of `main`
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class StrangeError(Exception):
    """A path is not what may be there; the text says what, of which path."""


def text(home: str) -> str:
    """The file's text; empty where there is none. Bytes that are no UTF-8 come as surrogates.

    Raises StrangeError.
    """
    folder = _folder(home)
    if folder is None:
        return ""
    try:
        return _read(folder, home)
    finally:
        os.close(folder)


def right(home: str, keys: list[str]) -> bool:
    """Return whether the file has these lines of ours, and it and its folder the modes that sshd requires.

    Raises StrangeError.
    """
    folder = _folder(home)
    if folder is None:
        return not keys
    try:
        found = _read(folder, home)
        if with_block(found, keys) != found:
            return False
        return not keys or (
            stat.S_IMODE(os.fstat(folder).st_mode) == 0o700
            and stat.S_IMODE(os.stat(FILE, dir_fd=folder, follow_symlinks=False).st_mode) == 0o600
        )
    finally:
        os.close(folder)


def put(home: str, keys: list[str]) -> bool:
    """Have these lines of ours in the file, and all others kept; True when anything had to change.

    To be called as the user. Raises StrangeError, and OSError where the user can't write there.
    """
    if right(home, keys):
        return False
    folder = _folder(home, make=True)
    if folder is None:
        raise StrangeError(f"{home}/{FOLDER} went away while it was looked at")
    try:
        found = _read(folder, home)
        wanted = with_block(found, keys)
        os.fchmod(folder, 0o700)
        _write(folder, wanted.encode(errors="surrogateescape"))
    finally:
        os.close(folder)
    return True


def _folder(home: str, *, make: bool = False) -> int | None:
    """A descriptor of ~/.ssh, made where it is missing and asked for."""
    try:
        above = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        if not make:
            return None
        raise
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(FOLDER, 0o700, dir_fd=above)
        try:
            return os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise StrangeError(f"{home}/{FOLDER} is {_kind(FOLDER, above)}, where a folder has to be") from None
    finally:
        os.close(above)


def _read(folder: int, home: str) -> str:
    path = f"{home}/{FOLDER}/{FILE}"
    try:
        # Opens with O_NONBLOCK: a pipe does not block, and a device is not activated.
        file = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise StrangeError(f"{path} is {_kind(FILE, folder)}, where a file has to be") from None
    kind = stat.S_IFMT(os.fstat(file).st_mode)
    if kind != stat.S_IFREG:
        os.close(file)
        raise StrangeError(f"{path} is {_KINDS.get(kind, 'no file')}, where a file has to be")
    with os.fdopen(file, "rb") as opened:
        data = opened.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise StrangeError(f"{path} has more than {LONGEST >> 20} MiB")
    return data.decode(errors="surrogateescape")


def _kind(name: str, folder: int) -> str:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return _KINDS.get(stat.S_IFMT(mode), "a file")


def _write(folder: int, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(PART, dir_fd=folder)  # of a run that was killed
    file = os.open(PART, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
        os.fchmod(opened.fileno(), 0o600)
    os.rename(PART, FILE, src_dir_fd=folder, dst_dir_fd=folder)


def main() -> int:
    """Run as the user: {home, keys} on standard input; what is in the way on standard output."""
    os.umask(0o077)
    asked = json.load(sys.stdin)
    try:
        return CHANGED if put(asked["home"], asked["keys"]) else SAME
    except StrangeError as error:
        sys.stdout.write(str(error))
    except OSError as error:
        sys.stdout.write(f"{asked['home']}/{FOLDER}/{FILE} can't be written as that user: {error.strerror}")
    return REFUSED
