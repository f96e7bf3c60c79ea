"""Preemption and maintenance of a node on Google Cloud: from the metadata to requests to Slurm."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import host_events
import pytest
from host_events import HostEvents, reason_of, window_of
from slurm import reservations, scheduler
from slurm.output import MAINTENANCE, PREEMPTED
from system.host import SetupError

from tests.lab.google.metadata import FakeGoogle

NODE = "a3-0"
START = "2030-01-15T12:00:00Z"


class Slurm:
    """slurmctld as its commands show one node, with what it was asked to change."""

    def __init__(self, state: str = "IDLE", reason: str = "", jobs: str = "") -> None:
        self.state, self.reason, self.jobs, self.asked = state, reason, jobs, list[str]()
        self.refused: set[str] = set()

    def run(self, *command: str, **_: Any) -> str:
        line = " ".join(command)
        if "show reservation" in line:
            return "No reservations in the system\n"
        if "show node" in line:
            return f"NodeName={NODE} State={self.state}" + (
                f" Reason={self.reason} [root@now]\n" if self.reason else "\n"
            )
        if command[0] == "squeue":
            return self.jobs
        if command[0] == "systemd-run":
            return ""
        self.asked.append(line)
        if line in self.refused:
            raise SetupError(f"{line}: Requested operation is presently disabled")
        if "requeue" in line:
            self.jobs = self.jobs.replace(f"{command[-1]}|1|1|\n", "")
        return ""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    found = Slurm()
    for module in ("health.drain_unhealthy", "slurm.scheduler", "slurm.reservations"):
        monkeypatch.setattr(f"{module}.run", found.run)
    monkeypatch.setattr(host_events, "run", found.run)
    return found


@pytest.mark.parametrize(
    ("instance", "reason"),
    [
        ({"preempted": "FALSE", "maintenanceEvent": "NONE"}, None),
        ({"preempted": "TRUE", "maintenanceEvent": "TERMINATE_ON_HOST_MAINTENANCE"}, PREEMPTED),
        ({"preempted": "FALSE", "maintenanceEvent": "TERMINATE_ON_HOST_MAINTENANCE"}, MAINTENANCE),
        ({"maintenanceEvent": "MIGRATE_ON_HOST_MAINTENANCE"}, None),
        ({}, None),
    ],
)
def test_reasons_to_drain(instance: dict[str, Any], reason: str | None) -> None:
    assert reason_of(instance) == reason


@pytest.mark.parametrize(
    ("upcoming", "minutes"),
    [
        ({"windowStartTime": START, "windowEndTime": "2030-01-15T16:00:00Z"}, 240),
        ({"window_start_time": START, "window_end_time": "2030-01-15T12:30:01Z", "can_reschedule": "true"}, 30),
        ({"windowStartTime": START}, 180),
        ({"error": "no notifications have been received yet, try again later"}, None),
        ({}, None),
        ("NONE", None),
        (None, None),
    ],
)
def test_a_window_has_a_start_and_a_length(upcoming: object, minutes: int | None) -> None:
    assert window_of(upcoming) == (None if minutes is None else (1894708800.0, minutes))


class TestAct:
    def test_a_preempted_node_requeues_its_jobs_and_is_set_down(
        self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slurm.jobs = "7|1|1|\n8|1|1|\n"
        monkeypatch.setattr(scheduler, "requeued_text", lambda node, why: f"{node}: {why}")
        HostEvents(NODE).act({"preempted": "TRUE"})
        assert slurm.asked == [
            f"scontrol update NodeName={NODE} State=DRAIN Reason={PREEMPTED}",
            f"scontrol update JobId=7,8 AdminComment={NODE}: {PREEMPTED}",
            "scontrol requeue 7",
            "scontrol requeue 8",
            "scontrol update JobId=7,8 StartTime=now+60seconds",
            f"scontrol update NodeName={NODE} State=DOWN Reason={PREEMPTED}",
        ]

    def test_a_job_that_can_not_be_requeued_runs_until_the_grace_time_ends(
        self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(host_events, "GRACE_SECONDS", 0.2)
        slurm.jobs, slurm.refused = "7|1|1|\n", {"scontrol requeue 7"}
        began = time.monotonic()
        HostEvents(NODE).act({"preempted": "TRUE"})
        assert time.monotonic() - began >= 0.2
        assert slurm.asked[-1].endswith(f"State=DOWN Reason={PREEMPTED}")

    def test_a_shutdown_still_sets_the_node_down(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        def ends(_: float) -> None:
            raise host_events.StopError

        monkeypatch.setattr(host_events.time, "sleep", ends)
        slurm.jobs, slurm.refused = "7|1|1|\n", {"scontrol requeue 7"}
        with pytest.raises(host_events.StopError):
            HostEvents(NODE).act({"preempted": "TRUE"})
        assert slurm.asked[-1].endswith(f"State=DOWN Reason={PREEMPTED}")

    def test_a_drain_by_others_keeps_its_reason(self, slurm: Slurm) -> None:
        slurm.state, slurm.reason = "IDLE+DRAIN", "new driver"
        events = HostEvents(NODE)
        events.act({"maintenanceEvent": host_events.STOPS})
        events.act({})
        assert slurm.asked == []
        events.act({"preempted": "TRUE"})
        assert slurm.asked == [f"scontrol update NodeName={NODE} State=DOWN Reason=new driver"]

    @pytest.mark.parametrize("reason", [PREEMPTED, MAINTENANCE])
    def test_a_machine_that_is_back_is_resumed(self, slurm: Slurm, reason: str) -> None:
        slurm.state, slurm.reason = "DOWN+DRAIN", reason
        HostEvents(NODE).act({"preempted": "FALSE", "maintenanceEvent": "NONE"})
        assert slurm.asked == [f"scontrol update NodeName={NODE} State=RESUME"]

    def test_without_a_change_slurmctld_gets_no_request(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        events = HostEvents(NODE)
        events.act({"maintenanceEvent": host_events.STOPS})
        monkeypatch.setattr(host_events, "read_node", None)
        events.act({"maintenanceEvent": host_events.STOPS, "attributes": {"other": "1"}})

    def test_a_refusal_by_slurmctld_is_retried(self, slurm: Slurm) -> None:
        events = HostEvents(NODE)
        slurm.refused = {f"scontrol update NodeName={NODE} State=DRAIN Reason={MAINTENANCE}"}
        with pytest.raises(SetupError):
            events.act({"maintenanceEvent": host_events.STOPS})
        slurm.refused = set()
        events.act({"maintenanceEvent": host_events.STOPS})
        assert len(slurm.asked) == 2

    def test_a_window_is_a_reservation_until_it_is_gone(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        kept: list[dict[str, Any]] = []
        monkeypatch.setattr(reservations, "keep", lambda wanted, _: kept.append(dict(wanted)))
        events = HostEvents(NODE)
        events.act({"upcomingMaintenance": {"windowStartTime": START}})
        events.act({})
        assert kept == [{f"hpc-maintenance-{NODE}": (NODE, 1894708800.0, 180)}, {}]


class TestChanges:
    @pytest.fixture
    def google(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGoogle]:
        fake = FakeGoogle()
        listener = fake.listen()
        monkeypatch.setattr(host_events, "METADATA", f"{listener.url}/computeMetadata/v1/instance/")
        yield fake
        listener.close()

    def test_each_change_is_returned_once(self, google: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> None:
        first, etag = host_events.wait_for_change("0")
        assert (first["preempted"], first["maintenanceEvent"]) == ("FALSE", "NONE")
        assert any(path.endswith("/instance/maintenance-event") for path in google.asked)
        monkeypatch.setattr(host_events, "POLL_SECONDS", 0.2)
        assert host_events.wait_for_change(etag) == (first, etag)
        google.host["preempted"] = "TRUE"
        found, later = host_events.wait_for_change(etag)
        assert found["preempted"] == "TRUE"
        google.host["preempted"] = "FALSE"
        assert host_events.wait_for_change(later) == (first, etag)

    @pytest.mark.parametrize("change", [{"overloaded": 9}, {"flavor": None}])
    def test_answers_of_other_servers_are_refused(self, google: FakeGoogle, change: dict[str, Any]) -> None:
        for name, value in change.items():
            setattr(google, name, value)
        with pytest.raises(OSError, match="metadata server answers"):
            host_events.wait_for_change("0")

    def test_a_failed_request_is_retried(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        answers: Iterator[Callable[[], tuple[dict[str, Any], str]]] = iter(
            [lambda: json.loads("no JSON"), lambda: ({"maintenanceEvent": host_events.STOPS}, "1")]
        )

        def wait_for_change(_: str) -> tuple[dict[str, Any], str]:
            answer = next(answers, None)
            if answer is None:
                raise host_events.StopError
            return answer()

        monkeypatch.setattr(host_events, "wait_for_change", wait_for_change)
        monkeypatch.setattr(host_events, "RETRY_SECONDS", 0)
        with pytest.raises(host_events.StopError):
            HostEvents(NODE).watch()
        assert len(slurm.asked) == 1
