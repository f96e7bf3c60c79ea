"""The harness over Pulumi's mocks: all that a program registers is recorded, however much it is."""

import pulumi

from tests.harness import deploy


def test_resources_that_are_ready_at_once_are_all_registered():
    """One registration inside of the other reaches Python's limit of recursion, and the program waits for ever."""

    def program() -> None:
        for number in range(1000):
            pulumi.ComponentResource("test:Part", f"part-{number}")

    assert len(deploy(program).resources) == 1000
