"""Nodes that end: a reservation of each from its end on, and of no other."""

import time
from collections.abc import Callable

import pytest
from jobs import drain

NOW = time.time()
END = int(NOW) + 7200


def local(end: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, float], str], list[str]]:
    """What is sent to scontrol where these reservations are there, but for the question."""

    def ask(wanted: dict[str, float], there: str) -> list[str]:
        sent: list[str] = []

        def run(*command: str) -> str:
            if command[1:3] == ("--oneliner", "show"):
                return there
            sent.append(" ".join(command))
            return ""

        monkeypatch.setattr(drain, "run", run)
        drain.reserve_ends({"ends": wanted})
        return sent

    return ask


def row(node: str, end: float) -> str:
    """As scontrol of 24.11 prints it."""
    return (
        f"ReservationName=hpc-end-{node} StartTime={local(end)} EndTime={local(end + 3600)} Duration=01:00:00 "
        f"Nodes={node} NodeCnt=1 CoreCnt=208 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES "
        "TRES=cpu=208 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE\n"
    )


OTHER = row("x", END).replace("hpc-end-x", "maintenance")
NONE = "No reservations in the system\n"


def test_each_node_that_ends_is_reserved_from_then_on(told: Callable[[dict[str, float], str], list[str]]) -> None:
    (command,) = told({"a3-0": END, "a3-1": 0, "a3-2": NOW - 60}, NONE)
    assert command == (
        f"scontrol create reservation ReservationName=hpc-end-a3-0 StartTime={local(END)} Duration=60 Users=root "
        "Nodes=a3-0 Flags=MAINT,IGNORE_JOBS"
    )


def test_a_second_time_changes_nothing(told: Callable[[dict[str, float], str], list[str]]) -> None:
    assert told({"a3-0": END}, row("a3-0", END) + OTHER) == []


def test_another_end_replaces_it_and_one_that_is_gone_takes_it_along(
    told: Callable[[dict[str, float], str], list[str]],
) -> None:
    sent = told({"a3-0": END + 60}, row("a3-0", END) + row("a3-1", END) + OTHER)
    assert [one.split(" ")[1] for one in sent] == ["delete", "delete", "create"]
    assert sent[:2] == [f"scontrol delete ReservationName=hpc-end-{node}" for node in ("a3-0", "a3-1")]
    assert told({}, row("a3-0", END) + OTHER) == ["scontrol delete ReservationName=hpc-end-a3-0"]
