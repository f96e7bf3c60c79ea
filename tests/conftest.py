"""Options of the whole suite."""

import gc
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from engine.state import crypter

# No deadline: the suite runs beside real machines on two cores. No database: a failure is printed with its example,
# and a checkout stays as clean as it was.
settings.register_profile("suite", deadline=None, database=None, max_examples=40)
# The fast run, which is the one in several processes, looks at fewer examples; the full one at all.
settings.register_profile("fast", settings.get_profile("suite"), max_examples=15)
settings.load_profile("fast" if "PYTEST_XDIST_WORKER" in os.environ else "suite")

# A shell starts what it puts into the background with SIGINT ignored; what tests start and interrupt would be so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A million rounds of key derivation are for attackers, not for tests.
crypter.ROUNDS = 10
# kubectl, Helm and their like run for a tenth of a second, a fifth of it to collect garbage.
os.environ.setdefault("GOGC", "400")
# Nearly all that tests import and record is held until the end, as in the program itself (cli/__main__.py).
gc.set_threshold(200_000)


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, not among all that their modules imported."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is rendered now into tests/golden, for review with git diff",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def reviewed(update_golden: bool) -> Callable[[str, Mapping[str, str]], None]:
    """reviewed(FILE, TEXTS): each case's text is the one below its name in tests/golden/FILE.txt."""

    def check(name: str, texts: Mapping[str, str]) -> None:
        file = Path(__file__).parent / "golden" / f"{name}.txt"
        if update_golden:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(f"== {case}\n{text}\n" for case, text in texts.items()), "utf-8")
        parts = ("\n" + file.read_text("utf-8")).split("\n== ")[1:]
        found = {case: text.rstrip("\n") for case, _, text in (part.partition("\n") for part in parts)}
        assert {case: text.rstrip("\n") for case, text in texts.items()} == found

    return check
