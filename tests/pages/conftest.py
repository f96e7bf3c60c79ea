"""A browser for the tests of pages, one for all of them."""

from collections.abc import Iterator

import pytest

from tests.pages.chromium import PROGRAMS, Browser, program, running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real browser; `./hpc test` installs it."""
    if not program():
        pytest.skip(f"no browser here: ./hpc test installs {PROGRAMS[0]}")
    with running() as found:
        yield found
