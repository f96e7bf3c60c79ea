"""A bake that is ended at any moment leaves no machine behind for long, and the next run makes it good."""

import _thread
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from components.gcp.bake.resource import LeftoversProvider
from lab.google.compute import STEPS, FakeCompute, Machine
from lab.google.http import Call
from tests.gcp.baking import (
    BUILDER,
    PATIENT,
    REQUESTS,
    make,
    make_and_be_killed,
    no_machine_is_left,
    the_image_is_whole,
    what_is_left_ends_by_itself,
)


@pytest.fixture
def fake() -> Iterator[FakeCompute]:
    with FakeCompute() as server:
        yield server


def builders(fake: FakeCompute) -> list[str]:
    """Machine types of the builders that were made, in order."""
    made = [call.body for call in fake.calls if call.path.endswith("/instances") and call.method == "POST"]
    return [body["machineType"].rpartition("/")[2] for body in made if body["name"].endswith("-builder")]


class TestInterrupted:
    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_a_keyboard_interrupt_leaves_nothing(self, fake: FakeCompute, number: int) -> None:
        def interrupt(now: int, _call: Call) -> None:
            if now == number:
                _thread.interrupt_main()

        fake.after = interrupt
        with pytest.raises(KeyboardInterrupt):
            make(fake)
        no_machine_is_left(fake)
        assert {image["status"] for image in fake.world.images.values()} <= {"READY"}

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_a_kill_leaves_nothing_for_long_and_the_next_run_makes_it_good(
        self, fake: FakeCompute, number: int
    ) -> None:
        assert make_and_be_killed(fake, number)
        what_is_left_ends_by_itself(fake)
        make(fake)
        the_image_is_whole(fake)
        no_machine_is_left(fake)

    def test_kills_one_after_another_do_too(self, fake: FakeCompute) -> None:
        fake.requests_each = 5
        for number in range(3, 60, 3):
            if not make_and_be_killed(fake, number):
                break
            what_is_left_ends_by_itself(fake)
        the_image_is_whole(fake)
        no_machine_is_left(fake)

    def test_a_builder_that_still_installs_is_gone_on_with(self, fake: FakeCompute) -> None:
        fake.steps = (*STEPS[:2],)
        assert make_and_be_killed(fake, 12)
        fake.world.machines[BUILDER].said = ["done"]
        said: list[str] = []
        make(fake, said.append)
        assert any("continuing with the builder" in line for line in said)
        assert builders(fake) == ["c2-standard-8"]

    def test_a_builder_for_something_else_is_not(self, fake: FakeCompute) -> None:
        fake.steps = STEPS[:2]
        assert make_and_be_killed(fake, 12)
        fake.steps = STEPS
        make(fake, machine_type="e2-standard-8")
        assert builders(fake) == ["c2-standard-8", "e2-standard-8"]
        no_machine_is_left(fake)


class TestDestroyed:
    """A stack that is destroyed in place of another up: no state knows of what a killed bake made."""

    GIVEN: ClassVar[dict[str, Any]] = {"project": "p", "zone": "us-central1-a", "cluster": "a3mega", "pace": PATIENT}

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_nothing_is_left(self, fake: FakeCompute, number: int) -> None:
        assert make_and_be_killed(fake, number)
        LeftoversProvider().delete("", {**self.GIVEN, "endpoint": fake.endpoint})
        assert fake.world.machines == fake.world.images == {}

    def test_what_only_looks_like_it_is_left_alone(self, fake: FakeCompute) -> None:
        make(fake)
        (image,) = fake.world.images.values()
        others = {
            "projects/p/global/images/a3mega-copy": {**image, "name": "a3mega-copy"},
            "projects/p/global/images/a3mega-000000000000": {**image, "name": "a3mega-000000000000"},
            "projects/p/global/images/b-0123456789ab": {**image, "labels": {"hpc-cluster": "b"}},
        }
        machine = {"name": "a3mega-controller", "labels": {"hpc-cluster": "a3mega"}, "status": "RUNNING"}
        fake.world.images |= others
        fake.world.machines["projects/p/zones/us-central1-a/instances/a3mega-controller"] = Machine(machine, [])
        LeftoversProvider().delete("", {**self.GIVEN, "endpoint": fake.endpoint})
        assert set(fake.world.images) == set(others)
        assert len(fake.world.machines) == 1

    def test_another_zone_leaves_no_builder_in_the_old_one_and_the_image_as_it_is(self, fake: FakeCompute) -> None:
        assert make_and_be_killed(fake, 22)
        given = {**self.GIVEN, "endpoint": fake.endpoint}
        other = {**given, "zone": "us-central1-b"}
        found = LeftoversProvider().diff("", given, other)
        assert (found.changes, found.replaces) == (True, [])
        LeftoversProvider().update("", given, other)
        no_machine_is_left(fake)
        the_image_is_whole(fake)
