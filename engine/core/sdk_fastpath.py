"""Short cuts through the SDK: with 1,500 resources a preview takes half the processor time, an up a fifth.

The SDK keeps tasks and searches for values that arrive late. Here the monitor answers in this process. Without the
short cuts, whatever is open is scanned again for each resource, so the time grows with the square of their number.
"""

import asyncio
import linecache
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pulumi.output import Output, _OutputData
from pulumi.runtime import resource, resource_cycle_breaker, rpc, stack
from pulumi.runtime.proto import source_pb2
from pulumi.runtime.settings import SETTINGS, _get_rpc_manager

from engine.values import Value


@contextmanager
def sdk_fastpath(*, dry: bool) -> Iterator[None]:
    """Run a program with the short cuts; `dry` in a preview."""
    with (
        # The position of a resource in the program goes into the state, which a preview does not write.
        replaced(resource, "_get_stack_trace", source_pb2.StackTrace if dry else _position),
        # No check whether a source file has changed since.
        replaced(linecache, "checkcache", lambda filename=None: None),  # noqa: ARG005
        _outputs_awaited_once(),
        _outputs_without_tasks(),
        _cycles_searched_from_new_end(),
    ):
        yield


def _position() -> Value:
    """The one frame of a stack trace that goes into the state: the position of the resource in the program. The SDK
    reads the source of every frame."""
    # As in the SDK: the third __init__ is that of the resource's own class, and its caller is the program.
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
    """Replace an attribute of a module."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


@contextmanager
def _outputs_awaited_once() -> Iterator[None]:
    """At the end of the program, await each output once, and fail with the first that fails.

    The SDK waits for the first of all outputs, and then for all others again.
    """
    wait_for_rpcs = stack.wait_for_rpcs
    settings: Value = SETTINGS
    manager: Callable[[], Value] = _get_rpc_manager

    async def wait(await_all_outstanding_tasks: bool = True) -> None:  # noqa: FBT001, FBT002 - the SDK's signature
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

    with replaced(stack, "wait_for_rpcs", wait):
        yield


@contextmanager
def _outputs_without_tasks() -> Iterator[None]:
    """Give each property of a resource one future, which the monitor's answer resolves.

    The SDK creates four futures and a task that waits for them. With fifty properties for each machine, that is two
    thirds of a preview.
    """
    data_of: Callable[..., Value] = _OutputData

    def resolve(resource: Value, data: asyncio.Future[Value], *answer: Value) -> None:
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
            resolvers[name] = partial(resolve, resource, data)
            # Not registered among the outputs that the end of the program awaits: it awaits the answers anyway.
            output = resource.__dict__[name] = object.__new__(Output)
            output._data = data
        return resolvers

    with replaced(rpc, "transfer_properties", transfer):
        yield


@contextmanager
def _cycles_searched_from_new_end() -> Iterator[None]:
    """Search for a cycle among the dependents of the resource that gets a dependency: mostly there are none yet.

    The SDK searches everything that the new dependency leads to, for each dependency of each resource.
    """
    add: Callable[[Value, Value], None] = resource_cycle_breaker._add_dep  # noqa: SLF001
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
