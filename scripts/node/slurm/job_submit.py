"""job_submit.lua: its grammar, told by the Lua that slurmctld's plugin runs it with, before slurmctld sees it."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterable
from pathlib import Path

from system.host import SetupError

NAME = "job_submit.lua"
# Of Debian's and Ubuntu's packages, and of SchedMD's own.
PLUGINS = ("usr/lib/*/slurm-wlm/job_submit_lua.so", "usr/lib/*/slurm/job_submit_lua.so")


def check(text: str, root: Path = Path("/")) -> None:
    """Raise SetupError, with the line, where `text` is not Lua; and where this machine's slurmctld can't run any.

    What only shows when it runs, slurmctld tells when it starts.
    """
    plugin = next((path for pattern in PLUGINS for path in root.glob(pattern)), None)
    if plugin is None:
        raise SetupError("slurm.job_submit_lua: there is no job_submit_lua.so on this machine")
    library = _library(name.decode() for name in re.findall(rb"liblua[-.0-9a-z]*", plugin.read_bytes()))
    # Without one slurmctld tells: it can't load the plugin.
    if library is not None and (wrong := _complaint(library, text.encode())):
        raise SetupError(
            f"slurm.job_submit_lua: {wrong}\nNothing was changed. Correct it in the stack file, and run `up`"
        )


def _library(names: Iterable[str]) -> ctypes.CDLL | None:
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _complaint(library: ctypes.CDLL, text: bytes) -> str:
    library.luaL_newstate.restype = ctypes.c_void_p
    library.lua_tolstring.restype = ctypes.c_char_p
    state = ctypes.c_void_p(library.luaL_newstate())
    given = (state, text, ctypes.c_size_t(len(text)), f"={NAME}".encode())
    try:
        # 5.1 has luaL_loadbuffer; since 5.2 that is a macro for this, whose last word is the kind: t, text.
        later = hasattr(library, "luaL_loadbufferx")
        failed = library.luaL_loadbufferx(*given, b"t") if later else library.luaL_loadbuffer(*given)
        return library.lua_tolstring(state, -1, None).decode(errors="replace") if failed else ""
    finally:
        library.lua_close(state)
