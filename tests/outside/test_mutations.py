"""Each row that an outside check holds has a wrong belief, with which the check is to fail when it is run."""

import ast
from pathlib import Path

import pytest

from tests.outside.ledger import OUTSIDE, ROOT, load
from tests.outside.mutation import Mutation
from tests.outside.mutations import MUTATIONS


def test_every_row_that_a_check_holds_has_one_and_no_other_has() -> None:
    held = {row.id for row in load() if any(name.startswith(OUTSIDE) for name in row.held)}
    assert (held - MUTATIONS.keys(), MUTATIONS.keys() - held) == (set(), set())


@pytest.mark.parametrize("row", MUTATIONS)
def test_it_changes_what_is_there(row: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[row]
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
