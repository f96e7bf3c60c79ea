"""`./hpc test`: its checks, the order of their output, and what it installs for them."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cli.commands import test as suite
from cli.stack import project
from tests import programs
from tests.cli.conftest import Hpc
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
INSTALL = "install --yes --quiet --no-install-recommends qemu-system-x86 e2fsprogs"


def scripts(**bodies: str) -> suite.Commands:
    return {name: ["sh", "-c", body] for name, body in bodies.items()}


@pytest.fixture(autouse=True)
def _plain(root: Path) -> None:
    """Output as in a pipe."""


class TestSuite:
    def test_output_is_in_order_with_the_tests_last(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        others = scripts(lint="echo quiet when well", schema="echo it is old >&2; exit 1")
        tests = scripts(clusters="sleep 0.3; echo 3 passed", tests="echo one; sleep 0.2; echo 7 passed")
        assert suite.run(tmp_path, others, tests) == ["schema"]
        out = capfd.readouterr().out
        printed = [line.partition(",")[0] for line in out.splitlines()]
        assert printed == "lint: ok|schema: FAILED|it is old|clusters:|3 passed|tests:|one|7 passed".split("|")

    def test_checks_and_tests_run_at_the_same_time(self, tmp_path: Path) -> None:
        meet = "touch $0; for i in $(seq 200); do [ -e a ] && [ -e b ] && [ -e c ] && exit 0; sleep 0.02; done; exit 1"
        commands = {name: ["sh", "-c", meet, name] for name in "abc"}
        tests = {"c": commands.pop("c")}
        assert suite.run(tmp_path, commands, tests) == []

    def test_failed_tests_are_returned(self, tmp_path: Path) -> None:
        assert suite.run(tmp_path, {}, scripts(clusters="exit 1", tests="exit 0")) == ["clusters"]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
    def test_termination_interrupts_the_tests_and_waits_for_them(self, tmp_path: Path, number: signal.Signals) -> None:
        body = "trap 'echo cleaned up; exit 1' INT; touch up; while :; do sleep 0.02; done"
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
            "from cli.commands.test import run\n"
            "run(Path(sys.argv[2]), {}, {'tests': ['bash', '-c', sys.argv[3]]})\n"
        )
        # Not as under nohup, which has SIGHUP ignored.
        command = ["env", "--default-signal=HUP", sys.executable, "-c", program, str(ROOT), str(tmp_path), body]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            wait_for((tmp_path / "up").exists)
            assert process.stdout
            # Once the heading is printed, the suite waits for the tests.
            heading = process.stdout.readline()
            process.send_signal(number)
            out, _ = process.communicate(timeout=300)
        assert process.returncode == 128 + number
        assert heading + out == "tests:\ncleaned up\n"

    def test_no_test_begins_after_one_that_takes_the_signal_for_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "test_signals.py").write_text(
            "import signal, threading\n\n"
            "def test_of_signals():\n"
            "    came = threading.Event()\n"
            "    before = signal.signal(signal.SIGINT, lambda *_: came.set())\n"
            "    open('up', 'w').close()\n"
            "    while not came.wait(0.05):\n"
            "        pass\n"
            "    signal.signal(signal.SIGINT, before)\n\n"
            "def test_after_it():\n"
            "    open('begun', 'w').close()\n"
        )
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
            "from cli.commands.test import run\n"
            "run(Path(sys.argv[2]), {}, {'tests': [sys.executable, '-m', 'pytest', *sys.argv[3:]]})\n"
        )
        words = ["-p", "tests.conftest", f"--rootdir={tmp_path}", f"-c{ROOT}/pyproject.toml", "test_signals.py"]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen([sys.executable, "-c", program, str(ROOT), str(tmp_path), *words], env=env) as process:
            wait_for((tmp_path / "up").exists)
            process.send_signal(signal.SIGTERM)
        assert process.returncode == 128 + signal.SIGTERM
        assert not (tmp_path / "begun").exists()


class TestCommand:
    def test_only_runs_the_named_check(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(project, "ROOT", ROOT)
        ended = hpc("test", "--only", "format")
        assert (ended.code, ended.out.partition(",")[0]) == (0, "format: ok")

    def test_arguments_are_passed_to_pytest(self, hpc: Hpc, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text("def test_it():\n    assert 0, 'of course'\n")
        ended = hpc(
            "test", "--fast", "--only", "tests", "--", *f"-n 0 -c /dev/null --rootdir {tmp_path} {tmp_path}".split()
        )
        assert ended.code == 1
        assert "of course" in ended.out
        assert "1 failed" in ended.out.splitlines()[-1]

    def test_an_unknown_check_is_refused(self, hpc: Hpc) -> None:
        ended = hpc("test", "--only", "mypy")
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith("error: --only mypy: there is no such check. There are: format, lint")

    def test_end_to_end_tests_need_root(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 1000)
        assert "./hpc test --fast" in hpc("test").error


REPEATED = """
import subprocess, threading, time
import pytest

def note(name):
    with open("ran", "a") as file:
        print(name, file=file)

@pytest.fixture(scope="module")
def daemon():
    note("daemon")
    subprocess.run(["true"])

def test_process():
    note("process")
    subprocess.run(["true"])

def test_thread():
    note("thread")
    threading.Thread(target=int).start()

def test_wait():
    note("wait")
    time.sleep(0.001)

def test_user_of_a_daemon(daemon):
    note("user")

def test_arithmetic():
    note("arithmetic")
"""


def test_tests_that_start_a_process_a_thread_or_a_wait_are_repeated(tmp_path: Path) -> None:
    (tmp_path / "test_before.py").write_text("def test_nothing_starts(): pass\n")
    (tmp_path / "test_it.py").write_text(REPEATED)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "/dev/null", "--repeat", "3"]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "4 tests start a process, a thread or a wait: each ran 3 times beside 2 busy loops" in done.stdout
    assert Counter((tmp_path / "ran").read_text().split()) == {
        **dict.fromkeys(("daemon", "process", "thread", "wait", "user"), 3),
        "arithmetic": 1,
    }


def test_a_repeated_run_is_of_tests_alone(hpc: Hpc) -> None:
    assert "--repeat runs tests alone" in hpc("test", "--repeat", "2", "--fast").error


def test_a_hangup_does_not_end_what_runs_under_nohup(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from cli.interrupts import exit_on_termination\n"
        "with exit_on_termination():\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", program, str(ROOT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.communicate()
    assert process.returncode == 0


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The files of tests by the name of their process."""
    monkeypatch.setattr(project, "ROOT", ROOT)
    found: dict[str, set[str]] = {}
    for name, command in suite.tests([], fast=False).items():
        ignored = {word.partition("=")[2] for word in command if word.startswith("--ignore=")}
        paths = [ROOT / word for word in command if word.startswith("tests")]
        files = {file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])}
        found[name] = {
            str(file.relative_to(ROOT))
            for file in files
            if not ignored
            & {str(part.relative_to(ROOT)) for part in (file, *file.parents) if part.is_relative_to(ROOT)}
        }
    return found


def test_each_test_is_in_exactly_one_process(lanes: dict[str, set[str]]) -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert sorted(file for lane in lanes.values() for file in lane) == sorted(files)
    assert {file.split("/")[1] for file in lanes["clusters"]} == {"e2e"}
    assert not {file for file in lanes["stacks"] | lanes["tests"] if file.startswith(("tests/e2e", "tests/local"))}


def test_arguments_are_for_one_process() -> None:
    assert suite.tests(["-k", "slurm"], fast=False)["tests"][-2:] == ["-k", "slurm"]


def test_tests_without_machines_have_a_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "ROOT", ROOT)
    commands = suite.tests([], fast=False)
    assert {name for name, command in commands.items() if command[0] == "nice"} == {"stacks", "tests"}
    assert all("--durations=20" in command for command in commands.values())


def test_files_that_share_clusters_are_in_one_process(lanes: dict[str, set[str]]) -> None:
    """The fixtures `pair` and `lab` create their clusters once in each process."""

    def using(pattern: str) -> set[str]:
        files = {str(path.relative_to(ROOT)): path for path in (ROOT / "tests/e2e").glob("test_*.py")}
        return {file for file, path in files.items() if re.search(pattern, path.read_text())}

    pairs, labs = using(r"\bpair: |\b(many|one): Cluster"), using("lab: Cluster")
    assert len(pairs) > 1
    assert pairs <= lanes["clusters"]
    assert labs
    assert labs <= lanes["jobs"]


def test_a_fast_run_leaves_out_tests_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "ROOT", ROOT)
    command = suite.tests([], fast=True)["tests"]
    slow = (ROOT / suite.SLOW).read_text().split()
    assert {*slow} == {word.partition("=")[2] for word in command if word.startswith(("--ign", "--des"))}
    for file, _, names in (name.partition("::") for name in slow):
        text = (ROOT / file).read_text() if names else ""
        assert (ROOT / file).exists()
        assert all(re.search(rf"(class|def) {name}\b", text) for name in names.split("::") if name), file


def test_shell_scripts_are_found_by_their_first_line(tmp_path: Path) -> None:
    for name, first in {
        "a": "#!/bin/sh",
        "b.txt": "#!/usr/bin/env bash",
        "c": "#! /bin/dash -e",
        "d.py": "#!/usr/bin/env python3",
        "e.sh": "no shebang",
        "f": "",
        "g/h": "#!/usr/bin/bash",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{first}\n")
    assert [str(path) for path in suite.shell_scripts(tmp_path)] == ["a", "b.txt", "c", "g/h"]


def test_the_launcher_and_ci_are_shell_scripts() -> None:
    assert {Path("hpc"), Path(".ci/run")} <= set(suite.shell_scripts(ROOT))


def test_a_fast_run_checks_types_and_shell_scripts_of_changed_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commands() -> suite.Commands:
        return suite.linters(("shell", "types"), fast=True)

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    monkeypatch.setattr(project, "ROOT", tmp_path)
    for name in ("same.py", "edited.py", "staged.py", "deleted.py", "text.md", "same.sh", "edited.sh"):
        (tmp_path / name).write_text("#!/bin/sh\n" if name.endswith(".sh") else "x = 1\n")
    git("add", ".")
    git("commit", "-qm", "all")
    assert commands() == {}
    for name in ("edited.py", "staged.py", "new.py", "text.md", "edited.sh"):
        (tmp_path / name).write_text("#!/bin/sh -e\n" if name.endswith(".sh") else "x = 2\n")
    git("add", "staged.py")
    (tmp_path / "deleted.py").unlink()
    assert commands()["shell"][-2:] == ["scripts/image", "edited.sh"]
    assert commands()["types"][-4:] == ["--summary=none", "edited.py", "new.py", "staged.py"]


@pytest.fixture
def apt_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a stand-in for apt-get, which can't install before its lists are updated."""
    programs.write(
        tmp_path / "apt-get",
        'cd "${0%/*}"\necho "$@" >>asked\n'
        'case $1 in update) test ! -e offline && : >fresh;; *) echo "E: no such version"; test -e fresh;; esac',
    )
    monkeypatch.setattr(suite, "_PATH", str(tmp_path))
    return tmp_path / "asked"


def test_outdated_package_lists_are_updated_once(apt_calls: Path, capfd: pytest.CaptureFixture[str]) -> None:
    suite._install_missing(suite._EMULATOR, "an emulated machine")
    assert apt_calls.read_text().splitlines() == [INSTALL, "update --quiet", INSTALL]
    assert "left out" not in "".join(capfd.readouterr())


def test_a_failed_installation_names_the_skipped_tests(apt_calls: Path, capfd: pytest.CaptureFixture[str]) -> None:
    apt_calls.with_name("offline").touch()
    suite._install_missing(suite._EMULATOR, "an emulated machine")
    assert "The tests of an emulated machine are left out" in "".join(capfd.readouterr())


def test_an_installed_package_is_not_installed_again(apt_calls: Path) -> None:
    for command in ("qemu-system-x86_64", "mke2fs"):
        apt_calls.with_name(command).touch(mode=0o755)
    suite._install_missing(suite._EMULATOR, "an emulated machine")
    assert not apt_calls.exists()
