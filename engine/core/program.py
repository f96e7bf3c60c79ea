"""Running the program in this process, its resource monitor being ours."""

import asyncio
import contextvars
import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from pulumi import RunError
from pulumi.runtime import Settings, configure, run_in_stack, set_all_config
from pulumi.runtime.settings import ROOT

from engine.core.run import Daemons, Run, resolve
from engine.errors import EngineError
from engine.events import ProgramError
from engine.project import Project
from engine.values import Value


class _Inline(ThreadPoolExecutor):
    """No thread at all: in a preview no call waits for anything, and an answer that is there at once saves the SDK from
    looking through all its open futures again and again."""

    def submit(self, fn: Callable[..., Value], /, *args: Value, **kwargs: Value) -> Future[Value]:
        future: Future[Value] = Future()
        future.set_running_or_notify_cancel()
        resolve(future, fn, *args, **kwargs)
        return future


@contextmanager
def importable(project: Project) -> Iterator[None]:
    """Let the program, and providers unpickled from the state, import from the project's folder, which is the
    working folder meanwhile."""
    folder, cwd = str(project.main.parent), os.getcwd()  # noqa: PTH109
    sys.path.insert(0, folder)
    os.chdir(project.root)
    try:
        yield
    finally:
        os.chdir(cwd)
        sys.path.remove(folder)


def run(run_: Run, monitor: Value, engine: Value) -> None:
    """Run the program to its end. Raises ProgramError, or the EngineError that the monitor raised."""
    # In a context of its own, because the SDK keeps its settings in context variables.
    contextvars.copy_context().run(_run, run_, monitor, engine)


def _run(run_: Run, monitor: Value, engine: Value) -> None:
    ROOT.set(None)
    project, folder = run_.project, str(run_.project.root)
    configure(Settings(project.name, run_.stack, monitor, engine, None, run_.dry, None, "organization", folder))
    set_all_config(run_.config.values, run_.config.secrets)
    loop, argv = asyncio.new_event_loop(), sys.argv
    # When a run fails, futures stay unobserved. That is harmless, and asyncio would complain of each.
    loop.set_exception_handler(lambda _loop, _context: None)
    asyncio.set_event_loop(loop)
    # asyncio's own executor has cores + 4 threads: six commands that wait would block all other calls. Here all may run
    # that have a place, and as many wait for one while others are asked what they need.
    loop.set_default_executor(_Inline() if run_.dry else Daemons(2 * run_.places + 16))
    sys.argv = [str(project.main)]
    try:
        loop.run_until_complete(run_in_stack(lambda: _main(project)))
    except EngineError:
        raise
    except RunError as error:
        raise ProgramError(str(error)) from None
    except SystemExit as error:
        raise ProgramError(f"{project.main} ended itself with status {error.code}") from None
    except Exception as error:  # noqa: BLE001 - the program may raise anything
        raise _explained(error, project) from None
    finally:
        sys.argv = argv
        _abandon(loop)


def _main(project: Project) -> None:
    runpy.run_path(str(project.main), run_name="__main__")


def _explained(error: BaseException, project: Project) -> EngineError:
    """A program's error, with the lines of its own that led there."""
    cause: BaseException | None = error
    seen: set[int] = set()  # an exception that was raised again may be its own context's context
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, EngineError):
            return cause
        if isinstance(cause, RunError):
            return ProgramError(str(cause))
        if missing := re.match(r"The Pulumi CLI does not support (.*?)\.", str(cause)):
            return EngineError(
                f"the embedded engine does not support {missing[1]}; run the program with the Pulumi CLI"
            )
        cause = cause.__cause__ or cause.__context__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(project.root))]
    frames = [f for f in frames if "site-packages" not in f.filename]
    where = "".join(f"\n  {f.filename}:{f.lineno} in {f.name}: {f.line}" for f in frames)
    return ProgramError(f"the program failed: {type(error).__name__}: {error}{where}")


def _abandon(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    asyncio.set_event_loop(None)
    loop.close()
