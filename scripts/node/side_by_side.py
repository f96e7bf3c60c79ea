"""Functions that are run side by side, each in a process of its own with a deadline: a hung one costs itself only."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import Any

from system.host import SetupError

Part = Callable[[], Any]


def side_by_side(wanted: dict[str, Part], *, seconds: float) -> dict[str, Any]:
    """What each part returns, or {"error": why}; after `seconds`, whoever has not answered is left behind.

    Processes, not threads: one that waits for a dead file server can't be ended, and would keep this one from ending.
    """
    found: dict[str, Any] = {}
    with selectors.DefaultSelector() as waiting:
        started = {}
        for name, part in wanted.items():
            pid, pipe = _fork(part)
            started[name] = (pid, pipe, bytearray())
            waiting.register(pipe, selectors.EVENT_READ, name)
        end = time.monotonic() + seconds
        while waiting.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                if data := os.read(key.fd, 1 << 16):
                    started[key.data][2].extend(data)
                else:
                    waiting.unregister(key.fd)
        late = {key.data for key in waiting.get_map().values()}
    for name, (pid, pipe, data) in started.items():
        os.close(pipe)
        group, _, key = name.partition(" ")
        place = found.setdefault(group, {}) if key else found
        place[key or name] = _value(data) if name not in late else {"error": f"no answer within {seconds:.0f} s"}
        if name in late:
            # With what it has started. It may end before this, or be its own leader a moment later.
            for kill, whom in ((os.killpg, pid), (os.kill, pid)):
                with contextlib.suppress(ProcessLookupError):
                    kill(whom, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG if name in late else 0)
    return found


def _fork(part: Part) -> tuple[int, int]:
    """Start a part; its process id, and the pipe that its JSON comes through."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.setsid()
    # Whoever hangs must not hold the connection of the one who asked.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.environ["TZ"] = "UTC"  # Slurm prints local times and does not say of which zone
    try:
        text = json.dumps(part())
    except (SetupError, OSError, ValueError, KeyError) as error:
        text = json.dumps({"error": str(error)})
    except BaseException as error:  # noqa: BLE001 - this process ends here, and must never return into the caller
        text = json.dumps({"error": f"{type(error).__name__}: {error}"})
    with os.fdopen(writing, "w") as pipe:
        pipe.write(text)
    os._exit(0)


def _value(data: bytearray) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(data.decode())
    except ValueError:
        return {"error": "its reader was ended"}
