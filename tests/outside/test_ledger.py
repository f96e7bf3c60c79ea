"""The ledger's rows are whole, and name what exists."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from tests.outside.ledger import PAGES, Belief, load, page, page_file, problems

ROW = """
[[belief]]
id = "google-mtu"
belief = "Google Cloud takes an MTU of 8896."
code = ["cluster/network.py::MTU"]
source = "its documentation, 2026-11"
date = 2026-11-22
held = ["tests/test_network.py::TestMtu::test_is_taken[8896]", "outside:example"]
"""

Write = Callable[[str], list[Belief]]


def test_every_row_is_whole_and_names_what_exists() -> None:
    beliefs = load()
    assert beliefs
    assert problems(beliefs) == []
    assert [belief.id for belief in beliefs if belief.date > date.today()] == []  # noqa: DTZ011


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a ledger beside a project of three files."""
    for name, text in {
        "cluster/network.py": "MTU = 8896\n",
        "tests/test_network.py": "class TestMtu:\n    def test_is_taken(self) -> None: ...\n",
        "tests/outside/check_example.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def written(text: str) -> list[Belief]:
        (tmp_path / "gcp.toml").write_text(text)
        return load(tmp_path)

    return written


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("network.py::MTU", "network.py::MSS", "there is no cluster/network.py::MSS"),
        ("network.py::MTU", "net.py", "there is no cluster/net.py"),
        ('["cluster/network.py::MTU"]', "[]", "it names no code"),
        ("::test_is_taken", "::test_is", "there is no tests/test_network.py::TestMtu::test_is"),
        ("test_network.py", "test_net.py", "there is no tests/test_net.py::"),
        ("outside:example", "outside:sample", "there is no outside:sample"),
        ("held = ", "# ", "nothing holds it"),
        ("its documentation, 2026-11", " ", "it has no source"),
        ("google-mtu", "google mtu", "an id is small letters"),
        ("of 8896.", "of\\n8896.", "a belief is one line"),
    ],
)
def test_a_row_that_stands_on_nothing_is_named(write: Write, tmp_path: Path, old: str, new: str, told: str) -> None:
    (problem,) = problems(write(ROW.replace(old, new)), tmp_path)
    assert problem.startswith("gcp: google")
    assert told in problem


@pytest.mark.parametrize("name", PAGES)
def test_pages_of_beliefs_are_current(name: str) -> None:
    assert page_file(name).read_text(encoding="utf-8") == page(name, load()), "python -m tests.outside.ledger --write"


def test_every_area_is_on_one_page() -> None:
    assert sorted(area for _, areas in PAGES.values() for area in areas) == sorted({belief.area for belief in load()})
