"""Each assumption that an outside check holds has a wrong one, with which the check is to fail when it is run."""

import ast
from pathlib import Path

import pytest

from tests.outside.mutation import ROOT, Mutation, named_by
from tests.outside.mutations import MUTATIONS


def test_every_one_is_of_an_assumption_that_a_check_holds() -> None:
    """The other way round, `outside.holds` refuses an assumption without one."""
    checks = [file.stem.removeprefix("check_") for file in (ROOT / "tests/outside").glob("check_*.py")]
    assert {name for check in checks for name in named_by(check, MUTATIONS)} == MUTATIONS.keys()


@pytest.mark.parametrize("name", MUTATIONS)
def test_it_changes_what_is_there(name: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]
    (path := tmp_path / mutation.file).parent.mkdir(parents=True)
    path.write_text((ROOT / mutation.file).read_text())
    mutation.apply(tmp_path)
    if path.suffix == ".py":
        ast.parse(path.read_text())


def test_a_text_that_is_not_there_once_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a a b")
    for old in ("a", "c"):
        with pytest.raises(ValueError, match="file has"):
            Mutation("file", old, "d").apply(tmp_path)
