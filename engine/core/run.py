"""A run over a stack: what its parts share, and how a step is done."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from engine import values
from engine.core.scope import Scope
from engine.errors import EngineError, NotRunnableError, RunInterruptedError
from engine.events import Change, Event, Kind, Log, Planned, Result, StepDone, StepFailed, StepStarted
from engine.project import KubernetesTools, Project, StackConfig
from engine.providers import Providers
from engine.providers.base import Context, Provider, UnfinishedStepError
from engine.state.resource import Resource
from engine.state.state import State
from engine.values import Props, Value

StateChange: TypeAlias = Callable[[], None]
"""A function that writes a finished step into the state."""

PARALLEL = 32  # steps at a time: most of them wait for other machines
GRACE_SECONDS = 5.0
"""Time for steps that run when the process is to end, by a signal that nobody sends a second time."""
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


class StepError(EngineError):
    """A step failed, and the event was emitted."""


@dataclass(kw_only=True)
class Run:
    """State, providers and events of one run. Its methods may be called from any thread."""

    kind: Kind
    project: Project
    stack: str
    config: StackConfig
    state: State
    on_event: Callable[[Event], None]
    parallel: int | None
    dry: bool
    scope: Scope = field(default_factory=Scope)
    kubernetes: KubernetesTools | None = None

    def __post_init__(self) -> None:
        self.providers = Providers(self.project.root, dict(self.config.values), self.project.name, self.kubernetes)
        self.lock = threading.RLock()
        self.failed: set[str] = set()
        self.foreign: set[str] = set()
        self._began = time.monotonic()
        self._planned: dict[str, Planned] = {}
        self._failures: list[StepFailed] = []
        self.places = self.parallel or PARALLEL
        self._slots = threading.BoundedSemaphore(self.places)
        self._idle = threading.Condition()
        self._running = 0
        self._stopping = self._ended = False

    # -- events ------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Pass an event to the caller, one at a time."""
        with self.lock:
            self.on_event(event)

    def log(self, severity: str, message: str, urn: str | None = None, *, ephemeral: bool = False) -> None:
        self.emit(Log(severity, message, urn, ephemeral))

    def plan(self, resource: Resource, op: str, changes: tuple[Change, ...] = (), reason: str = "") -> None:
        """Emit what is to be done with a resource."""
        shown = resource.inputs if self.dry and op == "create" else {}
        inputs = {key: values.show(value) for key, value in shown.items() if key != "__provider"}
        planned = Planned(resource.urn, resource.type, resource.name, resource.parent, op, changes, reason, inputs)
        with self.lock:
            self._planned[resource.urn] = planned
            self.emit(planned)

    def fail(self, resource: Resource, op: str, message: str) -> None:
        """Emit a failure. Resources that depend on this one are skipped."""
        with self.lock:
            self.failed.add(resource.urn)
            event = StepFailed(resource.urn, op, self._masked(message, resource))
            self._failures += [event] if op != "skip" else []
            self.emit(event)

    def result(self, outputs: Props) -> Result:
        counts = dict(Counter(planned.op for planned in self._planned.values()))
        changes = tuple(p for p in self._planned.values() if p.op != "same")
        parts = [f"{n} {op}" for op, n in counts.items() if op != "same"] or ["nothing to do"]
        parts += [f"{len(self._failures)} failed"] if self._failures else []
        parts += ["interrupted"] if self._stopping else []
        ok = not (self._failures or self._stopping)
        seconds = time.monotonic() - self._began
        failures, foreign = tuple(self._failures), tuple(sorted(self.foreign))
        return Result(
            self.kind, ok, counts, changes, failures, outputs, seconds, ", ".join(parts), foreign, self._stopping
        )

    # -- steps -------------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """True if the user asked to stop."""
        return self._stopping

    def end(self) -> None:
        """Begin no further step: the program has failed."""
        self._ended = True

    @property
    def healthy(self) -> bool:
        """True if nothing has gone wrong so far."""
        return not (self._stopping or self._ended or self.failed)

    def step(self, op: str, pending: str, resource: Resource, work: Callable[[Provider, Context], StateChange]) -> None:
        """Do one step: note it in the state, let the provider work, take in the change that `work` returns.
        Raises StepError (after printing it), RunInterruptedError."""
        with self.slot():
            self.emit(StepStarted(resource.urn, op))
            provider = self.providers.of(resource.type)
            trivial = provider.trivial(pending, resource.inputs)
            if not trivial:
                self.state.begin_step(pending, resource)
            began = time.monotonic()
            try:
                change = work(provider, self.context(resource, op))
            except Exception as error:
                if not isinstance(error, UnfinishedStepError):
                    self.state.end_step(pending, resource)
                self.fail(resource, op, explain(error))
                raise StepError(str(error)) from error
            self.state.end_step(pending, resource, change, saved=not trivial)
            self.emit(StepDone(resource.urn, op, time.monotonic() - began))

    def context(self, resource: Resource, op: str = "") -> Context:
        """Return the facts about a resource for its provider."""
        timeout = resource.custom_timeouts.get({"replace": "create", "delete-replaced": "delete"}.get(op, op))

        def log(severity: str, message: str, *, ephemeral: bool = False) -> None:
            self.log(severity, self._masked(message, resource), resource.urn, ephemeral=ephemeral)

        def settings() -> Props:
            urn = resource.provider.rsplit("::", 1)[0]
            return values.plain(next((r.inputs for r in self.state.resources() if r.urn == urn), {}))

        return Context(resource.urn, resource.type, resource.name, log, timeout, lambda: self._stopping, settings)

    def _masked(self, message: str, resource: Resource) -> str:
        return values.mask(message, self.providers.of(resource.type).hidden(resource.inputs))

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of the places for steps that run at a time. Raises RunInterruptedError."""
        with self._slots:
            with self._idle:
                if self._stopping or self._ended:
                    raise RunInterruptedError("interrupted")
                self._running += 1
            try:
                yield
            finally:
                with self._idle:
                    self._running -= 1
                    self._idle.notify_all()

    def refuse(self, token: str) -> None:
        """Note a type or function whose provider is not embedded. Raises NotRunnableError unless this is a preview."""
        self.foreign.add(token)
        if not self.dry:
            raise NotRunnableError([token], self.stack, self.kind)

    def wait_idle(self) -> None:
        """Wait for the steps that are running."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """While inside: a first Ctrl-C begins no new step and lets the running ones finish, a second one raises
        KeyboardInterrupt at once. SIGTERM and SIGHUP are sent once, so the second follows after some seconds. (Only the
        main thread can have it so; elsewhere signals are left alone.)"""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _frame: Value) -> None:
            if self._stopping:
                raise KeyboardInterrupt
            self._stopping = True
            end = "Ctrl-C again stops at once."
            if number != signal.SIGINT:
                signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
                end = f"What has not ended in {GRACE_SECONDS:g} s is cut off; the next run goes on from there."
            if number == signal.SIGHUP:
                _leave_terminal()
            self.log("warning", f"Stopping: what has begun is finished, nothing new is begun. {end}")

        # What nohup has ignored stays so.
        numbers = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, stop) for number in numbers}
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)


def _leave_terminal() -> None:
    """Discard output where the terminal is gone: each line would be an error, which ends the run."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


INPUTS = "__inputs"
"""Output in which providers of objects repeat the inputs."""


def with_outputs(new: Resource, id_: str, outputs: Props, inputs: Props) -> Resource:
    """The resource with what its provider returned, secrets marked again."""
    outputs = values.keep_secrets(outputs, {**inputs, INPUTS: inputs})
    outputs |= {k: values.secret(outputs[k]) for k in new.additional_secret_outputs if k in outputs}
    return replace(new, id=id_, inputs=inputs, outputs=outputs)


def explain(error: BaseException) -> str:
    """The text of an exception, or its name if it has none."""
    text = str(error).strip()
    known = isinstance(error, (EngineError, RuntimeError)) or type(error) is Exception
    return text if text and known else f"{type(error).__name__}: {text}" if text else type(error).__name__


_Job = Callable[[], None]


def resolve(future: Future[Value], fn: Callable[..., Value], *args: Value, **kwargs: Value) -> None:
    """Give a future what a function returns or raises."""
    try:
        future.set_result(fn(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - raised again where the future is awaited
        future.set_exception(error)


class Daemons(ThreadPoolExecutor):
    """An executor whose threads are daemons, so that a second Ctrl-C ends the process at once: the standard library's
    waits for its threads. And its futures can't be cancelled: one that is, as all are after a Ctrl-C, takes no result.
    """

    def __init__(self, most: int) -> None:
        super().__init__(1)  # for those who ask whether it is one: it starts no thread of its own
        self._most, self._jobs = most, SimpleQueue[_Job | None]()
        self._guard = threading.Lock()
        self._count = self._free = 0

    def submit(self, fn: Callable[..., Value], /, *args: Value, **kwargs: Value) -> Future[Value]:
        future: Future[Value] = Future()
        future.set_running_or_notify_cancel()
        with self._guard:
            if self._free:
                self._free -= 1
            elif self._count < self._most:
                self._count += 1
                threading.Thread(target=self._work, daemon=True).start()
            self._jobs.put(partial(resolve, future, fn, *args, **kwargs))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Let the threads end once there is nothing left to do."""
        with self._guard:
            for _ in range(self._count):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # what it holds is not kept until the next one comes
            with self._guard:
                self._free += 1
