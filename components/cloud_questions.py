"""Asks the questions of a cloud's checks side by side, each with a deadline: none hides another."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import Any

from cluster.cloud_checks import CloudCheck, CloudRow, Seen
from cluster.printable import one_line

SECONDS = 8.0
"""Time limit of one question, retries included (ours: the whole check is to end within 10 s)."""
PAUSES = (0.3, 0.6, 1.2)
"""Seconds before the second and each later attempt."""
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Answers that are worth a retry (cloud.google.com/storage/docs/retry-strategy)."""
NETWORK = "check the network and the proxy, then run again"


@dataclass(eq=False)  # not frozen: Python sets the traceback of an exception
class NotAskedError(Exception):
    """The question has no answer."""

    why: str
    todo: str


def attempts(seconds: float) -> Iterator[tuple[float, bool]]:
    """Yield the seconds that are left for each attempt, and whether it is the last; pause before the next one."""
    end = time.monotonic() + seconds
    for pause in (*PAUSES, None):
        last = pause is None or time.monotonic() + pause >= end
        yield max(0.1, end - time.monotonic()), last
        time.sleep(pause or 0)


def rows(checks: Sequence[CloudCheck], ask: Callable[[Any], Any], seconds: float, cloud: str) -> list[CloudRow]:
    """Return the row of each check. `ask` sends a request and returns its answer, or raises NotAskedError; `cloud` is
    the name of who answers."""
    requests = dict.fromkeys(request for check in checks for request in check.requests)
    # One thread for each request: they wait for the network, and their number does not grow with that of the nodes.
    futures = {request: start(ask, request) for request in requests}
    wait(futures.values(), timeout=seconds)
    return [_row(check, [futures[request] for request in check.requests], seconds, cloud) for check in checks]


def start(ask: Callable[[Any], Any], request: Any) -> "Future[Any]":  # noqa: ANN401 - any cloud's
    """Ask in a thread of its own. At its end the process waits for threads of a pool, which a host that drops packets
    holds for minutes, and not for this one."""
    future = Future[Any]()
    Thread(target=_answer, args=(ask, request, future), daemon=True).start()
    return future


def _answer(ask: Callable[[Any], Any], request: Any, future: "Future[Any]") -> None:  # noqa: ANN401 - any cloud's
    try:
        future.set_result(ask(request))
    except BaseException as error:  # noqa: BLE001 - raised where the row is read
        future.set_exception(error)


def _row(check: CloudCheck, futures: Sequence["Future[Any]"], seconds: float, cloud: str) -> CloudRow:
    try:
        if not all(future.done() for future in futures):
            raise NotAskedError(f"no answer within {seconds:g} s", NETWORK)
        seen = check.read(*(future.result() for future in futures))
    except NotAskedError as error:
        seen = Seen(text=error.why, todo=error.todo, unclear=True)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{cloud}'s answer has another form than documented ({type(error).__name__}: {one_line(str(error))})"
        seen = Seen(text=text, todo="report this", unclear=True)
    return CloudRow(
        id=check.id,
        asked=check.asks,
        seen=seen.text,
        outcome=seen.outcome,
        todo=seen.todo,
        assumptions=() if seen.unclear else check.assumptions,
    )
