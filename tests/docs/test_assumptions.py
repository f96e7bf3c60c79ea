"""Each assumption says what would show it and where it comes from, and names code that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/assumptions.md"
CELL = re.compile(r"(?<!\\)\|")


def rows() -> list[list[str]]:
    """Return the cells of each row: assumption, what would show it, code, source."""
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!---|Assumption \|)", line)]
    return [[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines]


def is_there(code: str) -> bool:
    """Whether there is the code of a row: a file, or FILE::NAME."""
    file, _, name = code.partition("::")
    if not (ROOT / file).is_file():
        return False
    text = (ROOT / file).read_text()
    return all(re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) for part in name.split("."))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_a_row_is_whole_and_names_code_that_exists(row: list[str]) -> None:
    assumption, shows, code, source = row
    assert all((assumption, shows, source))
    named = re.findall(r"`([^`]+)`", code)
    assert named
    assert [name for name in named if not is_there(name)] == []


def test_no_assumption_is_there_twice() -> None:
    listed = [assumption for assumption, *_ in rows()]
    assert len(set(listed)) == len(listed) > 0


@pytest.mark.parametrize("code", ["cluster/gone.py", "engine/yamlfile.py::LARGER"])
def test_code_that_is_gone_is_found(code: str) -> None:
    assert not is_there(code)
    assert is_there("engine/yamlfile.py::LARGEST")
