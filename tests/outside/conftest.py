"""Outside checks: `pytest tests/outside/check_NAME.py --outside NAME=PATH`, which is `./hpc test --outside NAME=PATH`.

No normal run collects them, since their names do not begin with `test_`.
"""

from collections.abc import Generator
from datetime import datetime
from pathlib import Path

import pytest

from tests.outside.mutation import named_by, unnoticed
from tests.outside.mutations import MUTATIONS
from tests.outside.recorder import Recorder

_RECORDERS = pytest.StashKey[dict[str, Recorder]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outside", action="append", default=[], metavar="NAME=PATH", help="artifact of an outside check")
    parser.addoption(
        "--assumptions", default="", help="ids of assumptions: run the tests that hold them, and no others"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that name a given assumption; all, where the module names them."""
    if wanted := set(filter(None, config.getoption("--assumptions").split(","))):
        named = [item for item in items if isinstance(item, pytest.Function) and wanted & set(_texts(item))]
        if wanted <= {text for item in named if isinstance(item, pytest.Function) for text in _texts(item)}:
            items[:] = named


def _texts(test: pytest.Function) -> list[str]:
    """Return the texts of a test's code, and with them the assumptions that it names."""
    return [constant for constant in test.function.__code__.co_consts if isinstance(constant, str)]


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
    recorder = recorders.setdefault(name, Recorder(name, named_by(name, MUTATIONS, Path(__file__).parents[2])))
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
        # Also those that it would have named later: the texts of its code.
        recorder.failed(_texts(pyfuncitem))
        raise
    recorder.passed()
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Run the tests of every held assumption once more, with a wrong one: if they pass with that, it is not held."""
    if session.config.getoption("--assumptions"):
        return
    given = dict(pair.split("=", 1) for pair in session.config.getoption("--outside") or ())
    root = Path(__file__).parents[2]
    for recorder in session.config.stash.get(_RECORDERS, {}).values():
        if held := recorder.held:
            artifact = str(Path(given[recorder.name]).resolve())
            recorder.blind = dict(unnoticed(held, MUTATIONS, recorder.name, artifact, root))
            recorder.did(f"ran the tests of {len(held)} assumptions with a wrong one each")
        if recorder.blind:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for recorder in config.stash.get(_RECORDERS, {}).values():
        terminalreporter.section(f"outside: {recorder.name}, {datetime.now().astimezone().date()}")
        for line in recorder.report():
            terminalreporter.line(line)
