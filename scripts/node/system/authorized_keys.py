"""The set-up's lines in a user's ~/.ssh/authorized_keys.

The user owns the folder: the file may be a link to any file, a pipe without a writer or a folder, and may change at any
time. So every step uses the descriptor of the folder before it, follows no link and waits for nothing. What changes a
file runs as the user (homes.py), so that a link leads only to what the user can change anyway.
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


class UnexpectedFileError(Exception):
    """A path is neither the file nor the folder that is expected there; the text has the path and what it is."""


def text(home: str) -> str:
    """Return the file's text, empty without a file; bytes that are not UTF-8 are surrogates.

    Raises UnexpectedFileError.
    """
    folder = _folder(home)
    if folder is None:
        return ""
    try:
        return _read(folder, home)
    finally:
        os.close(folder)


def is_current(home: str, keys: list[str]) -> bool:
    """Return whether the file has exactly these keys in its block, and file and folder the modes that sshd requires.

    Raises UnexpectedFileError.
    """
    folder = _folder(home)
    if folder is None:
        return not keys
    try:
        current = _read(folder, home)
        if with_block(current, keys) != current:
            return False
        return not keys or (
            stat.S_IMODE(os.fstat(folder).st_mode) == 0o700
            and stat.S_IMODE(os.stat(FILE, dir_fd=folder, follow_symlinks=False).st_mode) == 0o600
        )
    finally:
        os.close(folder)


def update(home: str, keys: list[str]) -> bool:
    """Write these keys to the block in the file, and keep all other lines; return whether anything changed.

    Call it as the user. Raises UnexpectedFileError, and OSError if the user can't write there.
    """
    if is_current(home, keys):
        return False
    folder = _folder(home, make=True)
    if folder is None:
        raise UnexpectedFileError(f"{home}/{FOLDER} went away while it was looked at")
    try:
        text = with_block(_read(folder, home), keys)
        os.fchmod(folder, 0o700)
        _write(folder, text.encode(errors="surrogateescape"))
    finally:
        os.close(folder)
    return True


def _folder(home: str, *, make: bool = False) -> int | None:
    """Open ~/.ssh, which `make` creates if it is missing; return its descriptor, None if it is missing."""
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
            raise UnexpectedFileError(f"{home}/{FOLDER} is {_kind(FOLDER, above)}, where a folder has to be") from None
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
        raise UnexpectedFileError(f"{path} is {_kind(FILE, folder)}, where a file has to be") from None
    kind = stat.S_IFMT(os.fstat(file).st_mode)
    if kind != stat.S_IFREG:
        os.close(file)
        raise UnexpectedFileError(f"{path} is {_KINDS.get(kind, 'no file')}, where a file has to be")
    with os.fdopen(file, "rb") as opened:
        data = opened.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise UnexpectedFileError(f"{path} has more than {LONGEST >> 20} MiB")
    return data.decode(errors="surrogateescape")


def _kind(name: str, folder: int) -> str:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return _KINDS.get(stat.S_IFMT(mode), "a file")


def _write(folder: int, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(PART, dir_fd=folder)  # left by a killed run
    file = os.open(PART, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
        os.fchmod(opened.fileno(), 0o600)
    os.rename(PART, FILE, src_dir_fd=folder, dst_dir_fd=folder)


def main() -> int:
    """Update the file as the user: {home, keys} on standard input, the reason of a failure on standard output."""
    os.umask(0o077)
    request = json.load(sys.stdin)
    try:
        return CHANGED if update(request["home"], request["keys"]) else SAME
    except UnexpectedFileError as error:
        sys.stdout.write(str(error))
    except OSError as error:
        sys.stdout.write(f"{request['home']}/{FOLDER}/{FILE} can't be written as that user: {error.strerror}")
    return REFUSED
