"""Outside checks: `pytest tests/outside/check_NAME.py --outside NAME=PATH`, which is `./hpc test --outside NAME=PATH`.

No normal run collects them, since their names do not begin with `test_`.
"""

from collections.abc import Generator
from datetime import datetime
from pathlib import Path

import pytest

from tests.outside.ledger import load
from tests.outside.recorder import Recorder

_RECORDERS = pytest.StashKey[dict[str, Recorder]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outside", action="append", default=[], metavar="NAME=PATH", help="artifact of an outside check")


def _name(request: pytest.FixtureRequest) -> str:
    return request.path.stem.removeprefix("check_").replace("_", "-")


@pytest.fixture(scope="module")
def artifact(request: pytest.FixtureRequest) -> Path:
    """The folder or file that the check is run on."""
    given = dict(pair.split("=", 1) for pair in request.config.getoption("--outside") or ())
    return Path(given[_name(request)])


@pytest.fixture
def outside(request: pytest.FixtureRequest) -> Recorder:
    """The check's recorder, which its tests share."""
    recorders = request.config.stash.setdefault(_RECORDERS, {})
    name = _name(request)
    recorder = recorders.setdefault(name, Recorder(name, load(Path(__file__).parent / "ledger")))
    recorder.begin()
    return recorder


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that found a difference which nobody accepted; what it holds counts where it passes."""
    recorder = pyfuncitem.funcargs.get("outside")
    if not isinstance(recorder, Recorder):
        return (yield)
    try:
        result = yield
        if refused := recorder.refused():
            pytest.fail("\n".join(refused), pytrace=False)
    except BaseException:
        # Also rows that it would have named later: the texts of its code.
        recorder.failed(co_const for co_const in pyfuncitem.function.__code__.co_consts if isinstance(co_const, str))
        raise
    recorder.passed()
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for recorder in config.stash.get(_RECORDERS, {}).values():
        terminalreporter.section(f"outside: {recorder.name}, {datetime.now().astimezone().date()}")
        for line in recorder.report():
            terminalreporter.line(line)
