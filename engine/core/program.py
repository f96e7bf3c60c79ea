"""Running the program in this process, with the engine as its resource monitor."""

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

from google.protobuf import empty_pb2
from pulumi import RunError
from pulumi.runtime import Settings, configure, run_in_stack, set_all_config
from pulumi.runtime.proto import engine_pb2, resource_pb2
from pulumi.runtime.settings import ROOT

from engine import urn as urns
from engine import values
from engine.core.registration import Registrar
from engine.core.resource_step import Goal
from engine.core.run import DaemonExecutor, Run, error_text, resolve, with_outputs
from engine.errors import EngineError
from engine.events import ProgramError
from engine.project import Project
from engine.providers.command import LocalCommand
from engine.values import Props, Value, from_struct, plain, to_struct

FRAMES = 20
"""Enough for the SDK's frames and the program's from the registration of a resource outwards."""


class InlineExecutor(ThreadPoolExecutor):
    """Runs calls in the caller's thread. In a preview no call waits, and for each call that has not ended at once, the
    SDK searches all its open futures again."""

    def submit(self, fn: Callable[..., Value], /, *args: Value, **kwargs: Value) -> Future[Value]:
        future: Future[Value] = Future()
        future.set_running_or_notify_cancel()
        resolve(future, fn, *args, **kwargs)
        return future


@contextmanager
def importable(project: Project) -> Iterator[None]:
    """Let the program, and providers that are unpickled from the state, import from the project's folder. It is also
    the working directory until the end."""
    folder, cwd = str(project.main.parent), os.getcwd()  # noqa: PTH109
    sys.path.insert(0, folder)
    os.chdir(project.root)
    try:
        yield
    finally:
        os.chdir(cwd)
        sys.path.remove(folder)


def run_program(run: Run, monitor: Value, engine: Value) -> None:
    """Run the program to its end. Raises ProgramError, or the EngineError that the monitor raised."""
    # In a context of its own, because the SDK keeps its settings in context variables.
    contextvars.copy_context().run(_run_in_context, run, monitor, engine)


def _run_in_context(run: Run, monitor: Value, engine: Value) -> None:
    ROOT.set(None)
    project, folder = run.project, str(run.project.root)
    configure(Settings(project.name, run.stack, monitor, engine, None, run.dry, None, "organization", folder))
    set_all_config(run.config.values, run.config.secrets)
    loop, argv = asyncio.new_event_loop(), sys.argv
    # When a run fails, futures are left whose exceptions nobody reads. asyncio would report each.
    loop.set_exception_handler(lambda _loop, _context: None)
    asyncio.set_event_loop(loop)
    # asyncio's own executor has cores + 4 threads, so six commands that wait would block all other calls. This one has
    # a thread for each running step, for as many that wait for a slot, and for calls of check and diff.
    loop.set_default_executor(InlineExecutor() if run.dry else DaemonExecutor(2 * run.max_steps + 16))
    sys.argv = [str(project.main)]
    try:
        with _limited_tracebacks():
            loop.run_until_complete(run_in_stack(lambda: _run_main(project)))
    except EngineError:
        raise
    except RunError as error:
        raise ProgramError(str(error)) from None
    except SystemExit as error:
        raise ProgramError(f"{project.main} ended itself with status {error.code}") from None
    except Exception as error:  # noqa: BLE001 - the program may raise anything
        raise _program_error(error, project) from None
    finally:
        sys.argv = argv
        _close(loop)


@contextmanager
def _limited_tracebacks() -> Iterator[None]:
    """Limit tracebacks to FRAMES frames. At each resource the SDK reads the whole stack, for the resource's position
    in the source; that would include forty frames of this program."""
    before = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = FRAMES
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before


def _run_main(project: Project) -> None:
    runpy.run_path(str(project.main), run_name="__main__")


def _program_error(error: BaseException, project: Project) -> EngineError:
    """Return the error to show for a program's exception, with the program's own lines of the traceback."""
    cause: BaseException | None = error
    visited: set[int] = set()  # an exception that was raised again may be its own context's context
    while cause is not None and id(cause) not in visited:
        visited.add(id(cause))
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
    lines = "".join(f"\n  {f.filename}:{f.lineno} in {f.name}: {f.line}" for f in frames)
    return ProgramError(f"the program failed: {type(error).__name__}: {error}{lines}")


def _close(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    asyncio.set_event_loop(None)
    loop.close()


_FEATURES = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_OUTPUT_VALUES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACEMENT_TRIGGER,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
)
_SEVERITIES = {engine_pb2.INFO: "info", engine_pb2.WARNING: "warning", engine_pb2.ERROR: "error"}


class Engine:
    """The engine service of the SDK, which gets the program's log lines (`pulumi.log`)."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def Log(self, request: Value) -> Value:  # noqa: N802 - gRPC's names
        if request.severity == engine_pb2.DEBUG:
            return empty_pb2.Empty()
        self._run.log(_SEVERITIES[request.severity], request.message, request.urn or None, ephemeral=request.ephemeral)
        return empty_pb2.Empty()

    def RequirePulumiVersion(self, _request: Value) -> Value:  # noqa: N802
        return empty_pb2.Empty()


class Monitor:
    """The resource monitor of the SDK, which gets registrations, reads and invokes, each in a thread of its own."""

    def __init__(self, run: Run, registrar: Registrar, stack_outputs: Callable[[str], Props]) -> None:
        """`stack_outputs` returns the outputs of another stack of the same backend."""
        self._run, self._registrar, self._outputs_of_other = run, registrar, stack_outputs
        root = urns.root(run.stack, run.project.name)
        self._last_outputs = next((r.outputs for r in run.state.resources() if r.urn == root), {})
        self.outputs: Props | None = None

    def GetDeploymentInfo(self, _request: Value) -> Value:  # noqa: N802
        return resource_pb2.DeploymentInfo(supportedFeatures=_FEATURES)

    def SignalAndWaitForShutdown(self, _request: Value) -> Value:  # noqa: N802
        return empty_pb2.Empty()

    def RegisterResource(self, request: Value) -> Value:  # noqa: N802
        run = self._run
        goal = Goal.of_registration(request, run.stack, run.project.name, run.project.root)
        resource = self._registrar.register(goal)
        if resource is None:
            return resource_pb2.RegisterResourceResponse(urn=goal.new.urn, result=resource_pb2.FAIL)
        return resource_pb2.RegisterResourceResponse(
            urn=resource.urn, id=resource.id, object=to_struct(resource.outputs)
        )

    def RegisterResourceOutputs(self, request: Value) -> Value:  # noqa: N802
        outputs = from_struct(request.outputs)
        if urns.type_of(request.urn) == urns.STACK_TYPE:
            self.outputs = outputs
        else:
            self._registrar.set_outputs(request.urn, outputs if self._run.dry else values.without_unknowns(outputs))
        return empty_pb2.Empty()

    def ReadResource(self, request: Value) -> Value:  # noqa: N802
        goal = Goal.of_read(request, self._run.stack, self._run.project.name)
        resource = self._registrar.read(goal, self._read)
        if resource is None:
            return resource_pb2.ReadResourceResponse(urn=goal.new.urn, result=resource_pb2.FAIL)
        return resource_pb2.ReadResourceResponse(
            urn=resource.urn, id=resource.id, properties=to_struct(resource.outputs)
        )

    def _read(self, goal: Goal) -> Value:
        new, run = goal.new, self._run
        if new.type == "pulumi:pulumi:StackReference":
            new.inputs = {"name": new.id}
            return with_outputs(new, new.id, self._reference(new.id), new.inputs)
        provider = run.providers.of(new.type)
        if not provider.readable:
            run.add_foreign(new.type)
            return with_outputs(new, new.id, new.inputs, new.inputs)
        response = provider.read(run.context(new), new.id, plain(new.inputs), {})
        if response is None:
            raise EngineError(f"{new.type} {new.name}: there is none with the id {new.id!r}")
        id_, inputs, outputs = response
        return with_outputs(new, id_, outputs, values.keep_secrets(inputs, new.inputs))

    def _reference(self, name: str) -> Props:
        """Return the outputs of the resource StackReference, for a stack named as [[ORGANIZATION/]PROJECT/]STACK. For
        the stack itself, they are those of its last run; none at its first."""
        own = [self._run.project.name, self._run.stack]
        outputs = self._last_outputs if [own[0], *name.split("/")][-2:] == own else self._outputs_of_other(name)
        secret_names = sorted(key for key, value in outputs.items() if values.contains_secret(value))
        return {"name": name, "outputs": outputs, "secretOutputNames": secret_names}

    def Invoke(self, request: Value) -> Value:  # noqa: N802
        run, args = self._run, plain(from_struct(request.args))
        if request.tok == "pulumi:pulumi:getResource":
            resource = self._registrar.resource(args["urn"])
            if resource is None:
                raise EngineError(f"getResource: {args['urn']}: this program has no such resource")
            return self._response({"urn": resource.urn, "id": resource.id, "state": resource.outputs})
        if request.tok == "pulumi:pulumi:readStackOutputs":
            return self._response(self._reference(args["name"]))
        if request.tok == "command:local:run":
            try:
                return self._response(LocalCommand(run.project.root).invoke(run.log, args))
            except EngineError as error:
                raise EngineError(f"{request.tok}: {error_text(error)}") from None
        run.add_foreign(request.tok)
        run.log("warning", f"{request.tok}: its provider is not embedded, so its result is unknown")
        return resource_pb2.ResourceInvokeResponse(unknown=True)

    @staticmethod
    def _response(result: Props) -> Value:
        return resource_pb2.ResourceInvokeResponse(**{"return": to_struct(result)})  # pyrefly: ignore[unexpected-keyword]

    def __getattr__(self, name: str) -> Value:
        if name[:1].isupper():
            raise EngineError(f"the embedded engine does not support {name}; run the program with the Pulumi CLI")
        raise AttributeError(name)
