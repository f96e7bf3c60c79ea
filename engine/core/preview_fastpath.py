"""What makes a run over hundreds of machines several times as fast, and could not be told from its absence.

The SDK is made for answers that take their time. In a preview all are there at once, so what it does meanwhile (tasks
that wait, waits for whichever comes first, searches that find nothing) is most of the time that a preview takes; and
with thousands of resources, most of the time that any run takes, since it looks at all that is open again and again.
"""

from __future__ import annotations

import asyncio
import linecache
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.values import Value


@contextmanager
def hurried() -> Iterator[None]:
    """Run a preview's program like this."""
    from pulumi.runtime import resource  # noqa: PLC0415 - a second of import that most commands can do without
    from pulumi.runtime.proto import source_pb2  # noqa: PLC0415

    # Where in the program a resource stands goes into the state alone, which a preview does not write.
    with (
        replaced(resource, "_get_stack_trace", source_pb2.StackTrace),
        _settled_in_turn(),
        _outputs_without_tasks(),
        _cycles_found_from_behind(),
    ):
        yield


@contextmanager
def steady() -> Iterator[None]:
    """Run the program like this where its resources are made, which takes its time."""
    from pulumi.runtime import resource  # noqa: PLC0415

    with (
        # Nobody looks whether source files have changed since.
        replaced(linecache, "checkcache", lambda filename=None: None),  # noqa: ARG005
        replaced(resource, "_get_stack_trace", _position),
        _settled_as_they_come(),
        _outputs_without_tasks(),
        _cycles_found_from_behind(),
    ):
        yield


def _position() -> Value:
    """The one frame of a stack trace that goes into the state: where in the program the resource stands. The SDK asks
    for the source of every frame."""
    from pulumi.runtime import resource  # noqa: PLC0415
    from pulumi.runtime.proto import source_pb2  # noqa: PLC0415

    # As there: the third __init__ is that of the resource's own class, and who called it is the program.
    inits, frame = 0, sys._getframe(1)  # noqa: SLF001
    while frame:
        inits += frame.f_code.co_name == "__init__"
        if inits == 3:
            break
        frame = frame.f_back
    if frame is None or frame.f_back is None:
        return source_pb2.StackTrace()
    code, line = frame.f_back.f_code, frame.f_back.f_lineno
    summary = traceback.FrameSummary(code.co_filename, line, code.co_name, lookup_line=False)
    position: Callable[[Value], Value] = resource._get_source_position_for_frame  # noqa: SLF001 - the SDK's own
    return source_pb2.StackTrace(frames=[source_pb2.StackFrame(pc=position(summary))])


@contextmanager
def replaced(module: Value, name: str, value: Value) -> Iterator[None]:
    """Put another value in a module's place of that name."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


@contextmanager
def _settled_in_turn() -> Iterator[None]:
    """Let the program's end wait for its values one after the other.

    The SDK waits for whichever comes first, and then for all the others anew: with thousands, a third of a preview. In
    a preview nothing takes its time, so the order says nothing.
    """
    from pulumi.runtime import stack  # noqa: PLC0415
    from pulumi.runtime.settings import SETTINGS  # noqa: PLC0415

    wait_for_rpcs = stack.wait_for_rpcs
    settings: Value = SETTINGS

    async def settle(await_all_outstanding_tasks: bool = True) -> None:  # noqa: FBT001, FBT002 - the SDK's signature
        outputs: set[asyncio.Task[Value]] = settings.outputs
        while True:
            await wait_for_rpcs(await_all_outstanding_tasks=False)
            if not (outputs and await_all_outstanding_tasks):
                return
            await outputs.pop()

    with replaced(stack, "wait_for_rpcs", settle):
        yield


@contextmanager
def _settled_as_they_come() -> Iterator[None]:
    """Let the program's end wait once for each of its values, and hear at once of one that fails.

    The SDK waits for whichever comes first, and then for all the others anew.
    """
    from pulumi.runtime import stack  # noqa: PLC0415
    from pulumi.runtime.settings import SETTINGS, _get_rpc_manager  # noqa: PLC0415

    wait_for_rpcs = stack.wait_for_rpcs
    settings: Value = SETTINGS
    manager: Callable[[], Value] = _get_rpc_manager

    async def settle(await_all_outstanding_tasks: bool = True) -> None:  # noqa: FBT001, FBT002 - the SDK's signature
        waiting: set[asyncio.Future[Value]] = set()
        done: asyncio.Queue[asyncio.Future[Value]] = asyncio.Queue()
        while True:
            await wait_for_rpcs(await_all_outstanding_tasks=False)
            if not await_all_outstanding_tasks:
                return
            while True:
                while settings.outputs:
                    waiting.add(task := settings.outputs.pop())
                    task.add_done_callback(done.put_nowait)
                if not waiting:
                    break
                task = await done.get()
                waiting.discard(task)
                await task
            if not manager().rpcs:
                return

    with replaced(stack, "wait_for_rpcs", settle):
        yield


@contextmanager
def _outputs_without_tasks() -> Iterator[None]:
    """Give each property of a resource one future that the answer settles.

    The SDK gives it four, and a task that waits for them: with fifty properties of a machine, two thirds of a preview.
    """
    from pulumi.output import Output, _OutputData  # noqa: PLC0415
    from pulumi.runtime import rpc  # noqa: PLC0415

    data_of: Callable[..., Value] = _OutputData

    def settle(resource: Value, data: asyncio.Future[Value], *answer: Value) -> None:
        value, known, secret, deps, failed = answer
        if failed is not None:
            data.set_exception(failed)
        else:
            data.set_result(data_of({*(deps or ()), resource}, value, known, secret))

    def transfer(resource: Value, props: Value, custom: bool) -> dict[str, Callable[..., None]]:  # noqa: FBT001
        resolvers: dict[str, Callable[..., None]] = {}
        for name in props:
            if name == "urn" or (name == "id" and custom):
                continue
            data: asyncio.Future[Value] = asyncio.Future()
            resolvers[name] = partial(settle, resource, data)
            # Not among the values that the program's end waits for: it waits for the answers that settle them.
            output = resource.__dict__[name] = object.__new__(Output)
            output._data = data
        return resolvers

    with replaced(rpc, "transfer_properties", transfer):
        yield


@contextmanager
def _cycles_found_from_behind() -> Iterator[None]:
    """Look for a circle of dependencies among those that need the resource which gets one more: mostly nobody yet.

    The SDK looks among all that the new one leads to, for each dependency of each resource.
    """
    from pulumi.runtime import resource_cycle_breaker, rpc  # noqa: PLC0415

    add: Callable[[Value, Value], None] = resource_cycle_breaker._add_dep  # noqa: SLF001 - what the SDK's own ends with
    needed_by: defaultdict[Value, set[Value]] = defaultdict(set)

    def declare_dependency(from_resource: Value, to_resource: Value) -> bool:
        seen: set[Value] = set()
        left = [from_resource]
        while left:
            one = left.pop()
            if one is to_resource:
                return False
            if one not in seen:
                seen.add(one)
                left.extend(needed_by[one])
        add(from_resource, to_resource)
        needed_by[to_resource].add(from_resource)
        return True

    with replaced(rpc, "declare_dependency", declare_dependency):
        yield
