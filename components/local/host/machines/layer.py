"""Writing files into a machine's root, whether it runs or not.

A running machine is written through its own mount (/proc/PID/root). One that does not run is written in its upper
layer, where folders that only the base has are made as the base has them. Paths are followed as the machine would
follow them: a link in the root never leads out to the host.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from components.local.host.errors import HostError

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
    """A root file system: written at `top`, seen through `top` onto `base` (None: `top` shows everything itself)."""

    top: Path
    base: Path | None = None

    def write(self, path: str, file: File) -> None:
        """Put `file` at the absolute `path`, replacing what is there as a whole."""
        target = self._parent(path)
        half = target.with_name(f".{target.name}.hpc-new")
        half.unlink(missing_ok=True)
        if file.link is not None:
            half.symlink_to(file.link)
        else:
            uid, gid = self._owner(file.owner, path)
            # Never readable by others, not even for a moment, if it is not to be in the end.
            handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as stream:
                stream.write(file.content.encode())
                os.fchown(stream.fileno(), uid, gid)
                os.fchmod(stream.fileno(), file.mode)
        if target.is_dir() and not target.is_symlink():
            half.unlink()
            raise HostError(f"files[{path}]: is a folder in the machine; a file can't take its place")
        half.rename(target)

    def remove(self, path: str) -> None:
        """Remove the file at `path`, and hide the base's."""
        target = self._parent(path)
        target.unlink(missing_ok=True)
        below = self._below(target)
        if below is not None and (below.exists() or below.is_symlink()):
            os.mknod(target, stat.S_IFCHR, 0)  # overlayfs' whiteout

    def read(self, path: str) -> str | None:
        """Text of the file at `path`; None if there is none."""
        found = self._lookup(self._parent(path, make=False))
        return None if found is None or not found.is_file() else found.read_text()

    def _parent(self, path: str, *, make: bool = True) -> Path:
        """The place of `path` in the top layer, its folder followed through links and (with `make`) created."""
        pure = PurePosixPath(path)
        if not pure.is_absolute() or ".." in pure.parts or pure.name == "":
            raise HostError(f"files[{path}]: must be an absolute path without '..'")
        todo = list(pure.parts[1:-1])
        here, links = self.top, 0
        while todo:
            name = todo.pop(0)
            if name == "..":
                here = here.parent if here != self.top else here
                continue
            here = here / name
            seen = self._lookup(here)
            if seen is not None and seen.is_symlink():
                links += 1
                if links > _LINKS_AT_MOST:
                    raise HostError(f"files[{path}]: too many links on the way")
                target = PurePosixPath(seen.readlink())
                here = self.top if target.is_absolute() else here.parent
                todo = [part for part in target.parts if part not in {"/", "."}] + todo
            elif make and not here.is_dir():
                self._make_folder(here, seen)
        return here / pure.name

    def _make_folder(self, here: Path, seen: Path | None) -> None:
        try:
            here.mkdir()
        except FileExistsError:
            raise HostError(f"files: {here.relative_to(self.top)} is in the way: not a folder") from None
        if seen is None:
            here.chmod(0o755)
        else:
            as_below = seen.stat()
            os.chown(here, as_below.st_uid, as_below.st_gid)
            here.chmod(stat.S_IMODE(as_below.st_mode))

    def _below(self, here: Path) -> Path | None:
        return None if self.base is None else self.base / here.relative_to(self.top)

    def _lookup(self, here: Path) -> Path | None:
        """Where the file that the machine sees at `here` is, in the top layer or below; links are not followed."""
        for path in (here, self._below(here)):
            if path is not None and (path.exists() or path.is_symlink()):
                return path
        return None

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
