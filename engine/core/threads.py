"""Threads that are made as they are needed, up to a number, and end with the process whatever they do."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

from engine.values import Value

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
