"""`./hpc test --outside NAME=PATH`: one check, on what was given, and a report of what it did."""

import os
from pathlib import Path

import pytest

from cli.commands import test as suite
from cli.commands.test import run_tests
from cli.errors import CliError
from cli.stack import project
from tests import programs
from tests.outside import check_soperator

ROOT = Path(__file__).parents[2]
CHECK = """
import pytest

def test_size(artifact, outside):
    assert open("size").read() == "1"
    outside.did(f"read {artifact.name}")
    outside.differs("known", "ours is larger", accepted=True)
    outside.holds("example-size")

def test_name(artifact, outside):
    outside.differs("example-name", f"theirs is {artifact.read_text()}")
    outside.holds("example-name")

def test_other(outside):
    outside.holds("example-other")

def test_nothing(outside):
    outside.holds("example-nothing")

@pytest.mark.parametrize("number", [1, 0])
def test_parts(number, outside):
    assert 1 / number
    outside.holds("example-parts")
"""
MUTATIONS = """
from tests.outside.mutation import Mutation

MUTATIONS = {
    "example-size": Mutation("size", "1", "2"),
    "example-nothing": Mutation("size", "1", "2"),
    "example-name": Mutation("size", "1", "2"),
    "example-parts": Mutation("size", "1", "2"),
    "another-size": Mutation("size", "1", "2"),
}
"""


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one check."""
    folder = tmp_path / suite.OUTSIDE
    folder.mkdir(parents=True)
    (folder / "conftest.py").write_text((ROOT / suite.OUTSIDE / "conftest.py").read_text())
    (folder / "check_example.py").write_text(CHECK)
    (folder / "mutations.py").write_text(MUTATIONS)
    (tmp_path / "size").write_text("1")
    (tmp_path / "artifact").write_text("theirs")
    monkeypatch.setattr(project, "ROOT", tmp_path)
    return tmp_path


def test_prints_what_was_done_what_differs_and_what_is_held(checks: Path) -> None:
    command = suite.outside_checks([f"example={checks / 'artifact'}"], ())
    done = programs.run(command, cwd=checks, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 1, done.stdout + done.stderr
    report = done.stdout.partition("outside: example, 20")[2].splitlines()[1:11]
    assert report == [
        "did: read artifact",
        "did: ran the tests of 2 assumptions with a wrong one each",
        "DIFFERS: example-name: theirs is theirs",
        "differs, accepted: known: ours is larger",
        "HOLDS NOTHING: example-nothing: its tests end with 0 where size has: 2",
        "holds: example-size",
        "NOT HELD by this run: example-nothing",
        "NOT HELD by this run: example-name",
        "NOT HELD by this run: example-parts",
        "=========================== short test summary info ============================",
    ]
    assert "example-other is not in tests/outside/mutations.py" in done.stdout
    assert "3 failed, 3 passed" in done.stdout


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        (
            "sample=artifact",
            "there is no such check\n  given: sample=artifact\n  allowed: NAME=PATH, NAME one of example",
        ),
        ("example=gone", "example: there is no such file or folder\n  given: gone"),
        ("example", "given: no path"),
    ],
)
def test_what_does_not_exist_is_an_error(checks: Path, pair: str, told: str) -> None:
    with pytest.raises(CliError) as error:
        run_tests(outside=[pair])
    assert told in str(error.value)
    assert "to do: " in str(error.value)


def test_every_check_is_documented() -> None:
    page = (ROOT / "docs" / "development.md").read_text()
    names = [file.stem.removeprefix("check_").replace("_", "-") for file in (ROOT / suite.OUTSIDE).glob("check_*.py")]
    assert names
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_the_slurm_of_images_is_found() -> None:
    """In the form of nebius/soperator's Makefile at 4.1.7."""
    assert check_soperator.slurm_of("SLURM_VERSION\t\t= 25.11.3\n") == "25.11.3"
    assert not check_soperator.slurm_of("OTHER = 1\n")
