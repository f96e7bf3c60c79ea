"""A bake that is ended at any moment leaves no machine behind for long, and the next run makes it good."""

import _thread
from collections.abc import Iterator

import pytest

from tests.fakes.compute import STEPS, FakeCompute
from tests.fakes.google_http import Call
from tests.gcp.baking import (
    BUILDER,
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
        assert any("going on with the builder" in line for line in said)
        assert len([call for call in fake.calls if call.path.endswith("/instances")]) == 1

    def test_a_builder_for_something_else_is_not(self, fake: FakeCompute) -> None:
        fake.steps = STEPS[:2]
        assert make_and_be_killed(fake, 12)
        fake.steps = STEPS
        make(fake, machine_type="e2-standard-8")
        made = [call.body["machineType"] for call in fake.calls if call.path.endswith("/instances")]
        assert [name.rpartition("/")[2] for name in made] == ["c2-standard-8", "e2-standard-8"]
        no_machine_is_left(fake)
