"""Options of the whole suite."""

import gc
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from engine.state import crypter
from tests.repeated import Repeated

ROOT = Path(__file__).parents[1]
PARENT = os.getppid()
GOLDEN = ROOT / "tests" / "golden"

# No deadline, and no limit for generating examples: the suite runs beside real machines on two cores. No database: a
# failure is printed with its example, and a checkout stays as clean as it was.
settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None, max_examples=40
)
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


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Begin no other test if `./hpc test` was interrupted, or is gone: a test may have taken its signal."""
    stopped = os.environ.get("HPC_TESTS_STOPPED")
    if stopped and (Path(stopped).exists() or os.getppid() != PARENT):
        item.session.shouldstop = "the run was interrupted"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is rendered now into tests/golden, for review with git diff",
    )
    parser.addoption(
        "--repeat",
        type=int,
        metavar="N",
        help="run each test that starts a process, a thread or a wait N times, beside two busy loops",
    )


def pytest_configure(config: pytest.Config) -> None:
    if times := config.getoption("--repeat"):
        config.pluginmanager.register(Repeated(times))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[str, str], None]:
    """golden(FILE, TEXT): the text is that of tests/golden/FILE."""

    def check(name: str, text: str) -> None:
        file = GOLDEN / name
        if update_golden:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        assert file.exists(), f"no golden file {name}: write it with `pytest --update-golden` and review it"
        assert text == file.read_text("utf-8"), (
            "if the change is meant: `pytest --update-golden`, then review the difference"
        )

    return check


@pytest.fixture
def golden_folder(golden: Callable[[str, str], None]) -> Callable[[str, Mapping[str, str]], None]:
    """golden_folder(FOLDER, TEXTS): tests/golden/FOLDER has these files with these texts, and no others."""

    def check(folder: str, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            golden(f"{folder}/{name}", text)
        assert {path.name for path in (GOLDEN / folder).iterdir()} == set(texts)

    return check


@pytest.fixture
def table_in_page(update_golden: bool) -> Callable[[str, str, Iterable[Sequence[str]]], None]:
    """table_in_page(PAGE, NAME, ROWS): the table between `<!-- NAME -->` and `<!-- end of NAME -->` has these rows."""

    def check(page: str, name: str, rows: Iterable[Sequence[str]]) -> None:
        file = ROOT / "docs" / page
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, *others = rows
        table = "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *others))
        text = file.read_text()
        wanted = f"{text.partition(begin)[0]}{begin}\n{table}\n{end}{text.partition(end)[2]}"
        if update_golden:
            file.write_text(wanted)
        assert text == wanted or update_golden, "run the test with --update-golden, then review the difference"

    return check


@pytest.fixture
def reviewed(update_golden: bool) -> Callable[[str, Mapping[str, str]], None]:
    """reviewed(FILE, TEXTS): each case's text is the one below its name in tests/golden/FILE.txt."""

    def check(name: str, texts: Mapping[str, str]) -> None:
        file = GOLDEN / f"{name}.txt"
        if update_golden:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(f"== {case}\n{text}\n" for case, text in texts.items()), "utf-8")
        parts = ("\n" + file.read_text("utf-8")).split("\n== ")[1:]
        found = {case: text.rstrip("\n") for case, _, text in (part.partition("\n") for part in parts)}
        assert {case: text.rstrip("\n") for case, text in texts.items()} == found

    return check
