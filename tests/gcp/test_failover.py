"""The failover of a controller: the table of decisions, moves against a stand-in, and the resource after a move."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import collect
import failover
import pytest
from failover import ENDED, MOVE, Case, Memory, Observation, Pace, Watch, decide, remember
from hypothesis import given
from hypothesis import strategies as st

from cluster.platforms.gcp.permissions import FAILOVER
from components.gcp.bake_design import GoogleCloudError
from components.gcp.failover import ControllerProvider, whole_body
from lab.google.compute import FakeController, Fault
from tests.gcp.baking import LONG_LIMITS

A, B = ZONES = ["us-central1-a", "us-central1-b"]
PACE = Pace()
STATES = "PROVISIONING STAGING RUNNING STOPPING REPAIRING SUSPENDING TERMINATED SUSPENDED".split()
DISKS = ["projects/p/regions/us-central1/disks/a3-controller-boot", "projects/p/regions/us-central1/disks/a3-state"]
BODY = json.dumps(
    {
        "name": "a3-controller",
        "machineType": "zones/{zone}/machineTypes/n2-standard-8",
        "disks": [{"autoDelete": False, "boot": not n, "source": d, "forceAttach": True} for n, d in enumerate(DISKS)],
        "networkInterfaces": [{"networkIP": "172.16.0.2"}],
    }
)
GONE = Observation(answered=False, zones=(A,), id="1", status="TERMINATED")
"""An instance that has ended by itself."""
KNOWN = Memory(known="1", zone=A, misses=100, silent_since=100.0)


def case(seen: Observation = GONE, memory: Memory = KNOWN, mode: str = "act", now: float = 10_000.0) -> Case:
    return Case(seen, memory, PACE, mode, now)


OBSERVATION = st.builds(
    Observation,
    answered=st.booleans(),
    zones=st.sampled_from([(), (A,), (B,), (A, B)]),
    unknown=st.sampled_from([(), (A,), (B,), (A, B)]),
    reached=st.booleans(),
    id=st.sampled_from(["", "1", "2"]),
    status=st.sampled_from(["", *STATES]),
    is_own=st.booleans(),
    started=st.floats(0, 10_000),
    stopped_by=st.sampled_from(["", "alice"]),
)
MEMORY = st.builds(
    Memory,
    known=st.sampled_from(["", "1", "2"]),
    zone=st.sampled_from(["", *ZONES]),
    misses=st.integers(0, 200),
    silent_since=st.floats(0, 10_000),
    moved=st.floats(0, 10_000),
)


class TestDecision:
    @given(seen=OBSERVATION, memory=MEMORY, mode=st.sampled_from(["act", "advise"]))
    def test_a_move_requires_all_conditions(self, seen: Observation, memory: Memory, mode: str):
        """Whatever is seen and remembered: what never is moved is listed here, apart from the table's order."""
        found = case(seen, memory, mode)
        if decide(found)[0] != MOVE:
            return
        assert mode == "act"
        assert not seen.answered
        assert seen.reached
        assert seen.is_own
        assert len(seen.zones) + len(seen.unknown) >= 1
        assert len(seen.zones) <= 1
        assert memory.misses >= PACE.misses
        assert found.silent >= PACE.silence
        assert found.silent >= PACE.hang or seen.status in ENDED
        assert found.now - memory.moved >= PACE.rest
        assert found.now - seen.started >= PACE.boot
        assert not seen.stopped_by
        assert seen.id == memory.known if seen.zones else memory.zone in seen.unknown

    @pytest.mark.parametrize(
        ("found", "action"),
        [
            (case(), "move"),
            (case(mode="advise"), "report"),
            (case(replace(GONE, answered=True)), "nothing"),
            (case(replace(GONE, reached=False)), "wait"),
            (case(replace(GONE, zones=(A, B))), "report"),
            (case(replace(GONE, is_own=False)), "report"),
            (case(replace(GONE, zones=(), id="")), "nothing"),
            (case(replace(GONE, id="2")), "wait"),
            (case(memory=replace(KNOWN, misses=5)), "wait"),
            (case(now=159.0), "wait"),
            (case(replace(GONE, started=9_800.0)), "wait"),
            (case(replace(GONE, status="RUNNING")), "move"),
            (case(replace(GONE, status="RUNNING"), now=600.0), "wait"),
            (case(replace(GONE, status="REPAIRING"), now=600.0), "wait"),
            (case(replace(GONE, zones=(), unknown=(A,), id="", status="")), "move"),
            (case(replace(GONE, zones=(), unknown=(A,), id="", status=""), now=600.0), "wait"),
            (case(replace(GONE, zones=(), unknown=(B,), id="", status="")), "wait"),
            (case(replace(GONE, stopped_by="alice")), "nothing"),
            (case(memory=replace(KNOWN, moved=9_000.0)), "report"),
            (case(Observation(answered=True), memory=replace(KNOWN, move={"id": "1"})), "finish"),
        ],
    )
    def test_each_rule(self, found: Case, action: str):
        assert decide(found)[0] == action

    def test_an_instance_is_remembered_once_it_has_answered(self):
        memory = Memory()
        remember(memory, replace(GONE, status="RUNNING"), 1.0)
        assert (memory.known, memory.misses, memory.silent_since) == ("", 1, 1.0)
        remember(memory, replace(GONE, status="RUNNING", answered=True), 2.0)
        assert (memory.known, memory.zone, memory.misses, memory.silent_since) == ("1", A, 0, 0.0)


@pytest.fixture
def fake() -> Iterator[FakeController]:
    with FakeController() as server:
        yield server


def props(fake: FakeController, **changes: Any) -> dict[str, Any]:
    """The resource's inputs, as the engine hands them on."""
    return {
        "project": "p", "zones": ZONES, "name": "a3-controller", "cluster": "a3", "endpoint": fake.endpoint,
        "body": BODY, "labels": {"hpc-cluster": "a3"}, "metadata": {"hpc-boot": "{}"}, "pace": LONG_LIMITS, **changes,
    }  # fmt: skip


def statuses(fake: FakeController) -> dict[str, str]:
    """Status of each instance, by its zone."""
    return {path.split("/")[3]: machine.resource["status"] for path, machine in fake.world.machines.items()}


class Host:
    """The watching machine, whose time is set, and whether the controller answers it."""

    def __init__(self, fake: FakeController, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake, self.now, self.up = fake, 1_900_000_000.0, True
        own = props(fake)
        settings = {
            **{key: own[key] for key in ("project", "zones", "name", "cluster", "endpoint")},
            "token": "secret",
            "address": "172.16.0.2",
            "mode": "act",
            "body": whole_body(BODY, own["labels"], own["metadata"]),
            "pace": {"poll": 0.01, "wait": 0.5, "retry": 0.0},
        }
        self.settings, self.file = settings, folder / "state.json"
        monkeypatch.setattr(Watch, "answers", lambda _: self.up)
        self.watch = Watch(lambda: settings, self.file)

    def again(self) -> None:
        """As after a kill: what is in the file is what is left."""
        self.watch = Watch(lambda: self.settings, self.file)

    def passes(self, count: int = 1, seconds: float = 30.0) -> list[str]:
        found = []
        for _ in range(count):
            self.now += seconds
            found.append(self.watch.run_pass(self.now))
        return found

    def die(self, status: str = "TERMINATED") -> None:
        """Have the controller known, and then end."""
        self.passes()
        self.up = False
        for machine in self.fake.world.machines.values():
            machine.resource["status"] = status


@pytest.fixture
def host(fake: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    ControllerProvider().create(props(fake))
    return Host(fake, tmp_path, monkeypatch)


class TestStatus:
    def asked(self, host: Host) -> dict[str, Any]:
        """What the controller's report has of it, which is at this address here."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = host.settings["port"] = free.getsockname()[1]
        host.watch.serve()
        return collect._failover(f"http://127.0.0.1:{port}/")

    def test_the_controller_reads_status_and_journal(self, host: Host):
        host.settings["address"] = "127.0.0.1"
        host.die()
        host.passes(8)
        host.up = True
        host.passes()
        found = self.asked(host)
        assert (found["why"], found["armed"], found["time"]) == ("", True, host.now)
        assert found["said"] == "nothing: the controller answers"
        assert found["journal"][0].endswith(f"the controller is in {B}")

    def test_the_status_is_refused_to_other_addresses(self, host: Host):
        host.passes()
        assert self.asked(host) == {"why": "HTTP Error 403: Forbidden"}

    def test_a_watch_is_not_armed_before_the_controller_answered(self, host: Host):
        assert not host.watch.status()["armed"]
        host.passes()
        assert host.watch.status()["armed"]
        host.settings["mode"] = "advise"
        assert not host.watch.status()["armed"]


class TestMove:
    def test_a_controller_that_ended_is_moved_once_with_its_disks(self, host: Host, fake: FakeController):
        host.die()
        actions = host.passes(8)
        assert actions.count(MOVE) == 1
        assert statuses(fake) == {B: "RUNNING"}
        assert set(fake.holders) == set(DISKS)
        assert {path.split("/")[3] for path in fake.holders.values()} == {B}
        assert host.watch.memory.move is None

    def test_calls_of_the_watch_are_those_of_its_role(self, host: Host, fake: FakeController):
        begin = len(fake.calls)
        host.die()
        host.passes(8)
        verbs = {
            ("GET", "instances/"): "instances.get",
            ("DELETE", "instances/"): "instances.delete",
            ("POST", "instances"): "instances.insert",
            ("GET", "operations/"): "zoneOperations.get",
            ("GET", "operations"): "zoneOperations.list",
        }
        called = set()
        for call in fake.calls[begin:]:
            rest = call.path.split("/", 7)[7]
            called.add(verbs[call.method, rest.partition("/")[0] + ("/" if "/" in rest else "")])
        assert called == set(FAILOVER)

    def test_a_controller_that_answers_or_was_stopped_or_deleted_by_a_user_is_not_moved(
        self, host: Host, fake: FakeController
    ):
        host.passes(50)
        assert statuses(fake) == {A: "RUNNING"}
        fake.stopped_by = "alice@example.com"
        host.die()
        assert MOVE not in host.passes(50)
        assert statuses(fake) == {A: "TERMINATED"}
        fake.stopped_by = "from inside"
        assert MOVE not in host.passes(50)
        fake.world.machines.clear()
        assert set(host.passes(50)) == {"nothing"}
        assert statuses(fake) == {}

    def test_a_controller_that_hangs_is_moved_after_a_longer_time(self, host: Host):
        host.die("RUNNING")
        waits = host.passes(60).index(MOVE)
        assert waits * 30.0 >= PACE.hang

    def test_disks_are_attached_by_force_if_the_old_instance_stays(self, host: Host, fake: FakeController):
        fake.faults["instances.delete"] = Fault(never=True)
        host.die()
        host.passes(8)
        assert statuses(fake)[A] == "STOPPING"
        assert B not in statuses(fake), "Google gives its address free when it is gone"
        assert any("IP_IN_USE" in line for line in host.watch.memory.journal)
        fake.faults.clear()
        for operation in fake.world.operations.values():
            operation.left = min(operation.left, 1)
        host.passes(3)
        assert statuses(fake) == {B: "RUNNING"}

    def test_a_controller_in_a_zone_that_does_not_answer_is_moved(self, host: Host, fake: FakeController):
        host.die("RUNNING")
        fake.dead.add(A)
        host.passes(30)
        assert any("not deleted" in line for line in host.watch.memory.journal)
        fake.dead.clear()
        host.passes(3)
        assert statuses(fake) == {B: "RUNNING"}

    def test_without_capacity_in_the_other_zone_it_is_created_in_the_old_one(self, host: Host, fake: FakeController):
        fake.full.add(B)
        host.die()
        host.passes(8)
        assert statuses(fake) == {A: "RUNNING"}

    def test_a_second_move_waits_for_an_hour(self, host: Host, fake: FakeController):
        host.die()
        host.passes(8)
        host.up = True
        host.die()
        assert "report" in host.passes(10)
        assert statuses(fake) == {B: "TERMINATED"}
        assert MOVE in host.passes(120)
        assert statuses(fake) == {A: "RUNNING"}

    @pytest.mark.parametrize("number", range(1, 14))
    def test_a_move_is_continued_after_a_kill_at_any_request(self, host: Host, fake: FakeController, number: int):
        host.die()
        begin = len(fake.calls)

        class _KilledError(BaseException):
            pass

        ask = Watch.ask

        def dies(watch: Watch, *given: Any) -> Any:
            answer = ask(watch, *given)
            if len(fake.calls) - begin == number:
                raise _KilledError
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Watch, "ask", dies)
            try:
                host.passes(8)
            except _KilledError:
                host.again()
        host.passes(12)
        assert statuses(fake) == {B: "RUNNING"}
        assert len([call for call in fake.calls if call.method == "DELETE"]) <= 2


class TestUp:
    def test_up_leaves_a_moved_controller_in_its_zone(self, host: Host, fake: FakeController):
        provider = ControllerProvider()
        olds = {**props(fake), "zone": A, "boot_id": "1000"}
        host.die()
        host.passes(8)
        found = provider.read("id", olds)
        assert found.outs
        assert (found.id, found.outs["zone"]) == ("id", B)
        assert not provider.diff("id", found.outs, props(fake)).changes
        news = props(fake, metadata={"hpc-boot": "{1}"})
        updated = provider.update("id", found.outs, news).outs
        assert updated
        assert (updated["zone"], updated["boot_id"]) == (B, found.outs["boot_id"])
        assert statuses(fake) == {B: "RUNNING"}

    def test_another_body_recreates_the_controller_in_its_zone(self, host: Host, fake: FakeController):
        host.die()
        host.passes(8)
        body = BODY.replace("n2-standard-8", "n2-standard-16")
        olds = {**props(fake), "zone": A, "boot_id": "1000"}
        updated = ControllerProvider().update("id", olds, props(fake, body=body)).outs
        assert updated
        assert updated["zone"] == B
        (one,) = fake.world.machines.values()
        assert one.resource["machineType"] == f"zones/{B}/machineTypes/n2-standard-16"

    def test_a_deleted_controller_is_created_in_the_first_zone(self, host: Host, fake: FakeController):
        host.die()
        host.passes(8)
        fake.world.machines.clear()
        assert ControllerProvider().read("id", props(fake)).id == ""
        ControllerProvider().create(props(fake))
        assert statuses(fake) == {A: "RUNNING"}

    def test_up_takes_no_disk_by_force(self, host: Host, fake: FakeController):
        del host
        fake.world.machines[f"projects/p/zones/{A}/instances/other"] = fake.world.machines.pop(
            f"projects/p/zones/{A}/instances/a3-controller"
        )
        fake.holders = dict.fromkeys(fake.holders, f"projects/p/zones/{A}/instances/other")
        with pytest.raises(GoogleCloudError, match="another instance has its disks or its address"):
            ControllerProvider().create(props(fake))

    def test_destroy_deletes_an_instance_that_the_watch_created(self, host: Host, fake: FakeController):
        host.die()
        host.passes(8)
        ControllerProvider().delete("id", {**props(fake), "zone": A, "boot_id": "1000"})
        assert statuses(fake) == {}

    def test_controllers_in_both_zones_are_an_error(self, host: Host, fake: FakeController):
        del host
        first = fake.world.machines[f"projects/p/zones/{A}/instances/a3-controller"]
        fake.world.machines[f"projects/p/zones/{B}/instances/a3-controller"] = first
        with pytest.raises(GoogleCloudError, match=f"in {A} and {B}"):
            ControllerProvider().update("id", {}, props(fake))


class TestProgram:
    def test_a_refused_connection_is_an_answer(self, tmp_path: Path):
        watch = Watch(lambda: {"address": "127.0.0.1"}, tmp_path / "state")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failover, "PORTS", (1,))
            assert watch.answers()

    def test_a_new_version_replaces_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        asked: list[list[str]] = []
        attributes = {"attributes/startup-script": "new", "attributes/hpc-watch": "{}"}
        monkeypatch.setattr(failover, "PROGRAM", tmp_path / "failover")
        monkeypatch.setattr(failover, "UNIT", tmp_path / "unit.service")
        monkeypatch.setattr(failover, "metadata", attributes.__getitem__)
        monkeypatch.setattr(failover.subprocess, "run", lambda command, **_: asked.append(command))
        with pytest.raises(SystemExit):
            failover.from_metadata()
        assert (tmp_path / "failover").read_text() == "new"
        assert asked[-1][-2:] == ["restart", "hpc-failover"]
        assert failover.from_metadata() == {}
