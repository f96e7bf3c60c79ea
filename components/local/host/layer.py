"""Writes files into the root of a machine, whether it runs or not.

Files of a running machine are written through its own mount (/proc/PID/root), those of a stopped one to its upper
layer, where parent folders of the base are created with the base's mode and owner. Paths are resolved as in the
machine: a link never leads to the host's files. Root of a machine may rename everything at any moment, so each folder
of a path is opened by itself, the kernel follows no link, and every operation is relative to an open folder.
"""

import os
import stat
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from components.local.host.paths import HostError
from components.local.host.process import Process

_LINKS_AT_MOST = 40  # as the kernel (path_resolution(7))


@dataclass(frozen=True, kw_only=True)
class File:
    content: str = ""
    mode: int = 0o644
    owner: str = "root:root"
    link: str | None = None
    """Target, if it is a symbolic link; the rest is then without meaning."""


@dataclass(frozen=True)
class Layer:
    """A root file system: the open folder `top`, which is written to, over `base` (None: `top` has everything)."""

    top: int
    base: int | None = None

    def write(self, path: str, file: File) -> None:
        """Write a file to the absolute `path` atomically."""
        uid, gid = (0, 0) if file.link is not None else self._owner(file.owner, path)
        with self._parent(path, make=True) as (top, _, name):
            half = f".{name}.hpc-new"
            with suppress(FileNotFoundError):
                os.unlink(half, dir_fd=top)
            if file.link is not None:
                os.symlink(file.link, half, dir_fd=top)
            else:
                # Created as 0600, so that others can't read it before it has its mode.
                handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=top)
                with os.fdopen(handle, "wb") as stream:
                    stream.write(file.content.encode(errors="surrogateescape"))
                    os.fchown(stream.fileno(), uid, gid)
                    os.fchmod(stream.fileno(), file.mode)
            try:
                os.rename(half, name, src_dir_fd=top, dst_dir_fd=top)
            except IsADirectoryError:
                os.unlink(half, dir_fd=top)
                raise HostError(f"files[{path}]: is a folder in the machine; a file can't take its place") from None

    def remove(self, path: str) -> None:
        """Remove the file at `path`, and hide one of the base."""
        with self._parent(path, make=True) as (top, base, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=top)
            if _status(base, name):
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=top)  # overlayfs' whiteout

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of the file or link at `path`; None if there is none."""
        with self._parent(path) as (top, base, name):
            return _status(top, name) or _status(base, name)

    def read(self, path: str) -> str | None:
        """Return the content of the regular file at `path`, which `write` can write back; None if there is none."""
        with self._parent(path) as (top, base, name):
            folder = top if _status(top, name) else base
            status = _status(folder, name)
            if status is None or not stat.S_ISREG(status.st_mode):
                return None
            # It may have been replaced by a pipe, and opening that would block.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as stream:
                return stream.read().decode(errors="surrogateescape")

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Generator[tuple[int | None, int | None, str]]:
        """Open the parent folder of `path`, following links, and with `make` create it. Yields its descriptors in the
        top layer and in the base, None for a layer without it, and the last name of `path`."""
        pure = PurePosixPath(path)
        if not pure.is_absolute() or ".." in pure.parts or pure.name == "":
            raise HostError(f"files[{path}]: must be an absolute path without '..'")
        todo, links = list(pure.parts[1:-1]), 0
        way: list[tuple[int | None, int | None]] = [(self.top, self.base)]
        with ExitStack() as opened:
            while todo:
                name = todo.pop(0)
                if name == "..":
                    way = way[:-1] or way
                    continue
                top, base = (_open(folder, name, opened) for folder in way[-1])
                visible = base if top is None else top
                if _is(stat.S_ISLNK, visible):
                    links += 1
                    if links > _LINKS_AT_MOST:
                        raise HostError(f"files[{path}]: too many links on the way")
                    target = PurePosixPath(os.readlink("", dir_fd=visible))
                    way = way[:1] if target.is_absolute() else way
                    todo = [part for part in target.parts if part != "/"] + todo
                    continue
                if top is None and make:
                    _make_folder(way[-1][0], name, base)
                    top = visible = _open(way[-1][0], name, opened)
                if visible is not None and not _is(stat.S_ISDIR, visible):
                    raise HostError(f"files[{path}]: {name} is in the way: not a folder")
                way.append((top, base if _is(stat.S_ISDIR, base) else None))
            yield *way[-1], pure.name

    def _owner(self, owner: str, path: str) -> tuple[int, int]:
        user, _, group = owner.partition(":")
        return self._id("/etc/passwd", user, path), self._id("/etc/group", group or user, path)

    def _id(self, database: str, name: str, path: str) -> int:
        if name.isdigit():
            return int(name)
        for line in (self.read(database) or "").splitlines():
            fields = line.split(":")
            if fields[0] == name:
                return int(fields[2])
        msg = f"files[{path}]: the machine has no {name!r} in {database}; use one of its image, or a number"
        raise HostError(msg)


@contextmanager
def stopped(upper: Path, base: Path) -> Generator[Layer]:
    """Open the root of a machine that does not run: its upper layer over the base."""
    with _folder(upper) as top, _folder(base) as below:
        yield Layer(top, below)


@contextmanager
def running(process: Process) -> Generator[Layer]:
    """Open the root of a running machine by its first process. Raises ProcessLookupError: it has ended.

    The folder stays open: later the process's number may belong to another process, whose root may be the host's.
    """
    with _folder(Path(f"/proc/{process.pid}/root")) as root:
        if not process.alive():
            raise ProcessLookupError(process.pid)
        yield Layer(root)


@contextmanager
def _folder(path: Path) -> Generator[int]:
    handle = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _open(folder: int | None, name: str, opened: ExitStack) -> int | None:
    """Open the file, folder or link of this name in an open folder; None if there is none."""
    if folder is not None:
        with suppress(FileNotFoundError):
            handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            opened.callback(os.close, handle)
            return handle
    return None


def _is(kind: Callable[[int], bool], handle: int | None) -> bool:
    return handle is not None and kind(os.fstat(handle).st_mode)


def _make_folder(parent: int | None, name: str, below: int | None) -> None:
    """Create a folder with the mode and owner of the base's. If the name is meanwhile in use, do nothing."""
    with suppress(FileExistsError, NotADirectoryError):
        os.mkdir(name, 0o700, dir_fd=parent)
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            status = os.fstat(below) if below is not None else None
            if status:
                os.fchown(handle, status.st_uid, status.st_gid)
            os.fchmod(handle, stat.S_IMODE(status.st_mode) if status else 0o755)
        finally:
            os.close(handle)


def _status(folder: int | None, name: str) -> os.stat_result | None:
    if folder is not None:
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None
