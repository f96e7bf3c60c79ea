"""The root of a running machine, whose root user may change every name in it at any moment: no link is followed."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Root:
    """Files below an open folder. A link on the way, or in a file's place, is an OSError; paths have no leading `/`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def status(self, path: str) -> os.stat_result | None:
        """The status of a regular file; None where there is none."""
        with suppress(FileNotFoundError), self._folder(path) as (folder, name):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(f"{path} is no regular file")
            return found
        return None

    def read(self, path: str) -> bytes | None:
        """The content of a regular file; None where there is none."""
        if self.status(path) is None:
            return None
        with suppress(FileNotFoundError), self._folder(path) as (folder, name):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
                return file.read()
        return None

    def write(self, path: str, content: bytes, mode: int = 0o644, owner: tuple[int, int] = (0, 0)) -> None:
        """Put a file in the place of what is there, at once."""
        with self._folder(path) as (folder, name):
            half = f".{name}.jail"
            with suppress(FileNotFoundError):
                os.unlink(half, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(half, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
                os.fchown(file.fileno(), *owner)
                os.fchmod(file.fileno(), mode)
            os.rename(half, name, src_dir_fd=folder, dst_dir_fd=folder)

    def link(self, path: str, target: str) -> None:
        """Make a link, unless something has its name."""
        with suppress(FileExistsError), self._folder(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def make_folder(self, path: str, mode: int) -> None:
        """Make a folder, unless something has its name."""
        with suppress(FileExistsError), self._folder(path) as (folder, name):
            os.mkdir(name, mode, dir_fd=folder)

    @contextmanager
    def _folder(self, path: str) -> Generator[tuple[int, str]]:
        """The folder of a path, open, and the path's last name."""
        *folders, name = path.split("/")
        here = os.dup(self._handle)
        try:
            for one in folders:
                inside = os.open(one, _FOLDER, dir_fd=here)
                os.close(here)
                here = inside
            yield here, name
        finally:
            os.close(here)
