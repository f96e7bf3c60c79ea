"""A run on a stack: its state, its events and its steps."""

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
from engine.events import Change, Event, Kind, LogLine, Planned, Result, StepDone, StepFailed, StepStarted
from engine.project import Project, StackConfig
from engine.providers import Providers
from engine.providers.base import Context, Provider
from engine.state.resource import Resource
from engine.state.state import State
from engine.values import Props, Value

StateChange: TypeAlias = Callable[[], None]
"""A function that writes a finished step into the state."""

PARALLEL = 32  # steps at a time; most of them wait for other machines
GRACE_SECONDS = 5.0
"""Time for running steps to finish after a signal that is sent only once, such as SIGTERM."""
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

    def __post_init__(self) -> None:
        self.providers = Providers(self.project.root, dict(self.config.values), self.project.name)
        self.lock = threading.RLock()
        self.failed: set[str] = set()
        self.foreign: set[str] = set()
        self._began = time.monotonic()
        self._planned: dict[str, Planned] = {}
        self._failures: list[StepFailed] = []
        self.max_steps = self.parallel or PARALLEL
        self._slots = threading.BoundedSemaphore(self.max_steps)
        self._idle = threading.Condition()
        self._running = 0
        self._stopping = self._ended = False

    # -- events ------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Pass an event to the caller. Events are passed one at a time."""
        with self.lock:
            self.on_event(event)

    def log(self, severity: str, message: str, urn: str | None = None, *, ephemeral: bool = False) -> None:
        self.emit(LogLine(severity, message, urn, ephemeral))

    def plan(self, resource: Resource, op: str, changes: tuple[Change, ...] = (), reason: str = "") -> None:
        """Emit the plan for a resource."""
        new_inputs = resource.inputs if self.dry and op == "create" else {}
        inputs = {key: values.show(value) for key, value in new_inputs.items() if key != "__provider"}
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

    def stop_steps(self) -> None:
        """Begin no further step, because the program has failed."""
        self._ended = True

    @property
    def healthy(self) -> bool:
        """True if nothing has failed and the run was not stopped."""
        return not (self._stopping or self._ended or self.failed)

    def step(self, op: str, pending: str, resource: Resource, work: Callable[[Provider, Context], StateChange]) -> None:
        """Run one step: record it as pending in the state, call `work`, and apply the change that `work` returns.
        Raises StepError after the failure was emitted, and RunInterruptedError."""
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
                self.state.end_step(pending, resource)
                self.fail(resource, op, error_text(error))
                raise StepError(str(error)) from error
            self.state.end_step(pending, resource, change, saved=not trivial)
            self.emit(StepDone(resource.urn, op, time.monotonic() - began))

    def context(self, resource: Resource, op: str = "") -> Context:
        """Return what a resource's provider may use of the run."""
        timeout = resource.custom_timeouts.get({"replace": "create", "delete-replaced": "delete"}.get(op, op))

        def log(severity: str, message: str, *, ephemeral: bool = False) -> None:
            self.log(severity, self._masked(message, resource), resource.urn, ephemeral=ephemeral)

        return Context(resource.urn, resource.type, resource.name, log, timeout, lambda: self._stopping)

    def _masked(self, message: str, resource: Resource) -> str:
        return values.mask(message, self.providers.of(resource.type).hidden(resource.inputs))

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait until fewer than `max_steps` steps run, and hold a slot for one more. Raises RunInterruptedError."""
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

    def add_foreign(self, token: str) -> None:
        """Record a type or function that is not embedded. Raises NotRunnableError unless this is a preview."""
        self.foreign.add(token)
        if not self.dry:
            raise NotRunnableError([token], self.stack, self.kind)

    def wait_idle(self) -> None:
        """Wait for the steps that are running."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Handle signals. After the first Ctrl-C no new step begins and the running ones finish; the second raises
        KeyboardInterrupt at once. SIGTERM and SIGHUP are sent once, so an alarm stands for the second after some
        seconds. Only the main thread can handle signals; in other threads this does nothing."""
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
                _discard_closed_output()
            self.log("warning", f"Stopping: what has begun is finished, nothing new is begun. {end}")

        # nohup ignores SIGHUP, which must stay so.
        numbers = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, stop) for number in numbers}
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)


def _discard_closed_output() -> None:
    """Discard what is written to a terminal that was closed: each line would raise an error, which ends the run."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def with_outputs(new: Resource, id_: str, outputs: Props, inputs: Props) -> Resource:
    """Return the resource with the id and outputs that its provider returned, and its secrets marked again."""
    outputs = values.keep_secrets(outputs, inputs)
    outputs |= {k: values.secret(outputs[k]) for k in new.additional_secret_outputs if k in outputs}
    return replace(new, id=id_, inputs=inputs, outputs=outputs)


def error_text(error: BaseException) -> str:
    """Return the text of an exception, after its class unless the text is enough, or the class if it has no text."""
    text, kind = str(error).strip(), type(error).__name__
    is_enough = isinstance(error, (EngineError, RuntimeError)) or type(error) is Exception
    return text if text and is_enough else f"{kind}: {text}" if text else kind


def resolve(future: Future[Value], fn: Callable[..., Value], *args: Value, **kwargs: Value) -> None:
    """Call a function and set a future to its result or its exception."""
    try:
        future.set_result(fn(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - raised again where the future is awaited
        future.set_exception(error)


class DaemonExecutor(ThreadPoolExecutor):
    """An executor whose threads are daemons, so that a second Ctrl-C ends the process at once: the standard library's
    waits for its threads. Its futures can't be cancelled, because a cancelled future accepts no result, and asyncio
    cancels all of them after a Ctrl-C."""

    def __init__(self, max_threads: int) -> None:
        super().__init__(1)  # asyncio requires a ThreadPoolExecutor; the base class starts no thread before `submit`
        self._max_threads, self._jobs = max_threads, SimpleQueue[Callable[[], None] | None]()
        self._guard = threading.Lock()
        self._count = self._free = 0

    def submit(self, fn: Callable[..., Value], /, *args: Value, **kwargs: Value) -> Future[Value]:
        future: Future[Value] = Future()
        future.set_running_or_notify_cancel()
        with self._guard:
            if self._free:
                self._free -= 1
            elif self._count < self._max_threads:
                self._count += 1
                threading.Thread(target=self._work, daemon=True).start()
            self._jobs.put(partial(resolve, future, fn, *args, **kwargs))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Let the threads end after the submitted calls. Does not wait for them."""
        with self._guard:
            for _ in range(self._count):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # its arguments are not kept until the next one comes
            with self._guard:
                self._free += 1
