"""`./hpc test`: formatters, linters, types and tests side by side, with their output in one order."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from cli import console
from cli.display.changes import seconds
from cli.errors import CliError
from cli.interrupts import delay_termination, exit_on_termination
from cli.operation import localhost
from cli.stack import project

LANES = "tests/lanes.txt"
"""A table of the processes that a full run has, each with what it runs."""
SLOW = "tests/slow.txt"
"""A list of the folders, files and tests that a fast run leaves out, by measured cost: nine tenths of the time."""
OUTSIDE = "tests/outside"
"""Checks against artifacts of others, in files `check_NAME.py`. Each runs only by its name, with its artifact."""
NAMES = ("format", "lint", "shell", "schema", "types", "tests")
_SHELLS = (b"sh", b"bash", b"dash")
_PYTEST = (sys.executable, "-m", "pytest")
_LOW_PRIORITY = ("nice", "-n", "10")
PLACE = Path("/var/tmp/hpc-tests")  # noqa: S108 - root's own folder in it, made on use
"""Machines of tests: a folder for each process. Not pytest's own: the next run finds what a killed one left."""
_POLL_SECONDS = 0.1
STOPPED = "HPC_TESTS_STOPPED"
"""Environment variable with the path of a file that exists once the run was interrupted: a test that is about signals
may take the one of the run for its own, and the next test does not begin then (tests/conftest.py)."""
_WAITING_SECONDS = 30.0
"""Time between two messages of what an interrupted run waits for."""


Commands = dict[str, list[str]]
"""Command lines that run in the project's folder, by the name of the check."""


def linters(only: Sequence[str], *, fast: bool = False) -> Commands:
    """Return the commands of all checks but the tests.

    A fast run checks types and shell scripts only of files that differ from the last commit: of all files they take 20
    and 9 seconds.
    """
    python, tools = sys.executable, Path(sys.executable).parent
    changed = _changed_files(project.ROOT) if fast else []
    modules = [file for file in changed if file.suffix == ".py"]
    scripts = [file for file in shell_scripts(project.ROOT) if not fast or file in changed]
    commands = {
        "format": [tools / "ruff", "format", "--check"],
        "lint": [tools / "ruff", "check"],
        # The image's steps source a library that is in another folder.
        "shell": [tools / "shellcheck", "-x", "-P", "scripts/image", *scripts] if scripts else [],
        "schema": [python, "cli", "schema", "--check"],
        "types": [tools / "pyrefly", "check", "--summary=none", *modules] if modules or not fast else [],
    }
    return {name: [*map(str, command)] for name, command in commands.items() if name in only and command}


def tests(arguments: Sequence[str], *, fast: bool) -> Commands:
    """Return the commands of pytest, with the user's arguments last, so that they override others.

    A fast run leaves out whole clusters and SLOW. A run without arguments has the processes of LANES. They are not
    workers of pytest-xdist: each of those would collect all tests, and gets no Ctrl-C, so that machines would stay.
    """
    colour = console.stdout().is_terminal and "NO_COLOR" not in os.environ
    pytest = [*_PYTEST, f"--color={'yes' if colour else 'no'}"]
    if fast:
        slow = [] if arguments else (project.ROOT / SLOW).read_text(encoding="utf-8").split()
        exclusions = [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in slow]
        pytest += ["-m", "not e2e and not slow", "-n", "2", "--dist", "worksteal", *exclusions]
    if fast or arguments:
        return {"tests": [*pytest, *arguments]}
    rows = [line.split() for line in (project.ROOT / LANES).read_text(encoding="utf-8").splitlines()]
    lanes = {name: paths for name, *paths in rows if name != "#"}
    named = [path for paths in lanes.values() for path in paths]
    commands: Commands = {}
    for name, paths in lanes.items():
        elsewhere = [other for other in named if other.startswith(tuple(f"{path}/" for path in paths))]
        ignored = [f"--ignore={other}" for other in elsewhere if other not in paths]
        priority = _LOW_PRIORITY if name in ("stacks", "tests") else ()
        commands[name] = [*priority, *pytest, "--durations=20", *paths, *ignored]
    return commands


def outside_checks(pairs: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the command of the checks NAME=PATH against outside artifacts. Raises CliError: there is no such check,
    file or folder."""
    files = {
        file.stem.removeprefix("check_").replace("_", "-"): f"{OUTSIDE}/{file.name}"
        for file in project.ROOT.glob(f"{OUTSIDE}/check_*.py")
    }
    command = [*_PYTEST, "--disable-warnings"]
    for pair in pairs:
        name, _, path = pair.partition("=")
        artifact = Path(path).expanduser().resolve()
        if name not in files:
            raise CliError(
                f"--outside: there is no such check\n  given: {pair}\n  allowed: NAME=PATH, NAME one of "
                f"{', '.join(sorted(files))}\n  to do: name one of these, with the folder or file it is run on"
            )
        if not path or not artifact.exists():
            raise CliError(
                f"--outside {name}: there is no such file or folder\n  given: {path or 'no path'}\n  allowed: what the "
                f"check is run on: see the head of {files[name]}\n  to do: download it, "
                f"and give its path: --outside {name}=PATH"
            )
        command += [files[name], "--outside", f"{name}={artifact}"]
    return [*command, *arguments]


def shell_scripts(root: Path) -> list[Path]:
    """Return the files whose first line names a shell: of those that git does not ignore, or of all without git."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    files = [path for path in root.rglob("*") if ".venv" not in path.parts] if listed is None else listed
    return sorted({path.relative_to(root) for path in files if path.is_file() and _is_shell_script(path)})


def _changed_files(root: Path) -> list[Path]:
    """Return the files that differ from the last commit, and those that git does not track yet."""
    new = _git(root, "ls-files", "--others", "--exclude-standard") or []
    changed = _git(root, "diff", "--name-only", "HEAD") or []
    return sorted({path.relative_to(root) for path in (*new, *changed) if path.is_file()})


def _git(root: Path, command: str, *options: str) -> list[Path] | None:
    """Return the files that git lists; None if the folder is no repository."""
    done = subprocess.run(["git", command, "-z", *options], cwd=root, capture_output=True, check=False)
    return None if done.returncode else [root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _is_shell_script(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(200)
    words = first[2:].split() if first.startswith(b"#!") else []
    program = words[1] if len(words) > 1 and words[0].endswith(b"/env") else words[0] if words else b""
    return program.rpartition(b"/")[2] in _SHELLS


def run(folder: Path, checks: Mapping[str, Sequence[str]], tests: Mapping[str, Sequence[str]]) -> list[str]:
    """Run checks and tests at the same time, and return the names of those that failed.

    A check is printed when it has ended, with its output only if it failed. The output of the tests is last, one
    process after the other, so that it ends with pytest's own summary.
    """
    started: list[_Running] = []
    failed: list[str] = []
    with exit_on_termination():
        try:
            with delay_termination():
                started.extend(_Running(*check, folder) for check in (*tests.items(), *checks.items()))
            for running in started[len(tests) :]:
                ok = running.process.wait() == 0
                took = seconds(time.monotonic() - running.began)
                console.line(f"{running.name}: {'ok' if ok else 'FAILED'}, {took}", style="green" if ok else "bold red")
                if not ok:
                    running.show()
                    failed.append(running.name)
            failed += [running.name for running in started[: len(tests)] if running.show(heading=True)]
        except BaseException:
            _stop(started)
            raise
        finally:
            for running in started:
                running.output.close()
    return failed


def _stop(started: "Sequence[_Running]") -> None:
    """Interrupt what runs and wait until it has cleaned up: end-to-end tests remove their machines, which takes minutes
    on a busy host. A second signal kills it."""
    running = [check for check in started if check.process.poll() is None]
    for check in running:
        check.stopped.touch()
        check.process.send_signal(signal.SIGINT)
    shown = time.monotonic()
    try:
        while running := [check for check in running if check.process.poll() is None]:
            if time.monotonic() >= shown:
                names = ", ".join(check.name for check in running)
                console.note(f"Waiting until these have cleaned up: {names}. The same signal again kills them ...")
                shown = time.monotonic() + _WAITING_SECONDS
            time.sleep(_POLL_SECONDS)
    finally:
        for check in running:
            with suppress(ProcessLookupError):
                os.killpg(check.process.pid, signal.SIGKILL)
            check.process.wait()
        for check in started:
            check.show_rest()
            check.stopped.unlink(missing_ok=True)


class _Running:
    """The process of a check, with standard output and standard error in one file.

    It is in a session of its own: Ctrl-C in the terminal reaches it once, through this process. If this process is
    killed, the kernel interrupts it.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self.began = name, time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with all others
        self._showing, self._shown = False, 0
        self.stopped = Path(tempfile.gettempdir(), f"hpc-tests-{os.getpid()}-{name}.stop")
        # Checks start Python a thousand times: it stores what it compiles, also if the environment turns that off.
        env = os.environ | {"PYTHONDONTWRITEBYTECODE": "", STOPPED: str(self.stopped)}
        # A shell starts what it puts into the background with SIGINT ignored, nohup with SIGHUP: children inherit that.
        guard = ["setpriv", "--pdeathsig", "INT", "env", "--default-signal=INT,HUP"] if shutil.which("setpriv") else []
        self.process = subprocess.Popen(
            [*guard, *command],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output,
            start_new_session=True,
        )  # fmt: skip
        if command[0] == "nice":
            # The kernel shares processors among sessions first; nice counts only inside of one (sched(7), autogroup).
            with suppress(OSError):
                Path(f"/proc/{self.process.pid}/autogroup").write_text(command[2])

    def show(self, *, heading: bool = False) -> int:
        """Print its output until it ends, and return its exit code."""
        self._showing, ended = True, False
        if heading:
            console.line(f"{self.name}:", style="bold")
        while not ended:
            ended = self.process.poll() is not None
            if not self._print() and not ended:
                time.sleep(_POLL_SECONDS)
        return self.process.wait()

    def show_rest(self) -> None:
        """Print the rest of its output if that was being printed."""
        if self._showing:
            self._print()

    def _print(self) -> bool:
        chunk = os.pread(self.output.fileno(), 1 << 30, self._shown)
        self._shown += len(chunk)
        console.stdout().file.flush()
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return bool(chunk)


_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_UNITS = ("ssh.service", "ssh.socket")
_EMULATOR = {"qemu-system-x86": "qemu-system-x86_64", "e2fsprogs": "mke2fs"}
"""Packages with which tests emulate a machine with a kernel of its own, and a command of each."""
_BROWSER = {
    "chromium-headless-shell": "chromium-headless-shell",
    "fonts-dejavu-core": "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
}
"""Packages with which tests open pages, and a command or a file of each."""
_INSTALL = ("install", "--yes", "--quiet", "--no-install-recommends")
_POLICY = Path("/usr/sbin/policy-rc.d")


def prepare() -> None:
    """Install what tests need and this host does not have, after a message. Raises CliError: this is not root, or sshd
    can't be installed. Raises HostError: machines can't be created on this host."""
    if os.geteuid() != 0:
        raise CliError(
            "end-to-end tests make machines, bridges and mounts: run as root (sudo ./hpc test), "
            "or leave them out: ./hpc test --fast"
        )
    localhost.prepare()
    if not shutil.which("sshd", path=_PATH):
        _install_sshd()
    _install_missing(_EMULATOR, "an emulated machine")
    _install_missing(_BROWSER, "pages in a browser")


def _remove_leftovers() -> None:
    """Remove machines, bridges, mounts and processes of test runs that were killed."""
    from components.local.host import network

    for name in network.remove_unused_roots(PLACE):
        console.note(f"Removed what a killed run of the tests left: {PLACE / name}")


def _install_sshd() -> None:
    """Install openssh-server for its sshd. Tests start sshd themselves; the service of the host stays off."""
    apt = shutil.which("apt-get", path=_PATH)
    if not apt:
        raise CliError(
            "the tests need an sshd, and there is no apt-get here. Install OpenSSH's server and run this again."
        )
    console.note("Installing openssh-server for the tests; its service stays off ...")
    with _services_off():
        _run_apt([apt, "update", "--quiet"])  # old lists name versions that the archive no longer has
        if not _run_apt([apt, *_INSTALL, "openssh-server"]):
            raise CliError("openssh-server could not be installed; see above. Install it and run this again.")
        # systemd's units that are installed while masked are not enabled, but init scripts always are.
        if shutil.which("update-rc.d", path=_PATH):
            _run_apt(["update-rc.d", "ssh", "disable"])


def _install_missing(packages: Mapping[str, str], tests_of: str) -> None:
    """Install the missing ones of these packages, which are given with a file or a command of each. Tests are skipped
    if what they need can't be installed."""
    missing = [
        package
        for package, needed in packages.items()
        if not (Path(needed).exists() or shutil.which(needed, path=_PATH))
    ]
    apt = shutil.which("apt-get", path=_PATH)
    if not missing or not apt:
        return
    console.note(f"Installing {', '.join(missing)} for the tests ...")
    install = [apt, *_INSTALL, *missing]
    if not _run_apt(install) and not (_run_apt([apt, "update", "--quiet"]) and _run_apt(install)):
        console.note(f"{', '.join(missing)} could not be installed; see above. The tests of {tests_of} are left out.")


@contextmanager
def _services_off() -> Generator[None]:
    """Prevent Debian's packages from starting the service: by policy-rc.d now, and by masked units also later if this
    process is killed."""
    masks = [mask for unit in _UNITS if not os.path.lexists(mask := Path("/etc/systemd/system") / unit)]
    for mask in masks:
        mask.parent.mkdir(parents=True, exist_ok=True)
        mask.symlink_to(os.devnull)
    own_policy = not _POLICY.exists()
    if own_policy:
        _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if own_policy:
            _POLICY.unlink(missing_ok=True)
        for mask in masks:
            if mask.is_symlink() and str(mask.readlink()) == os.devnull:
                mask.unlink()


def _run_apt(command: list[str]) -> bool:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "PATH": _PATH}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        console.note(f"{done.stdout}{done.stderr}".rstrip())
    return done.returncode == 0


def run_tests(
    arguments: Annotated[
        list[str] | None, Argument(metavar="[-- PYTEST ARGUMENTS...]", help="Passed on to pytest, after `--`.")
    ] = None,
    *,
    fast: Annotated[
        bool,
        Option("--fast", help="Half a minute: no clusters or slow tests; types and shell scripts of changed files."),
    ] = False,
    repeat: Annotated[
        int,
        Option(
            metavar="N",
            min=0,
            help="Run only tests, and N times, beside two busy loops, those that start a process, a thread or a wait. "
            "Without PYTEST ARGUMENTS: all but those of machines.",
        ),
    ] = 0,
    only: Annotated[
        list[str] | None,
        Option(metavar="CHECK", help="Run only this: format, lint, shell, schema, types or tests. May be repeated."),
    ] = None,
    outside: Annotated[
        list[str] | None,
        Option(metavar="NAME=PATH", help="Run only this check, against the artifact at PATH. May be repeated."),
    ] = None,
) -> None:
    """Run every check of this project: format, lint, types, shell scripts, schema, tests.

    The end-to-end tests make real machines on this host, beside any that are up: they need root, and install the
    host's missing packages after saying so. Everything runs side by side; pytest's summary comes last.
    """
    if outside:
        if fast or only:
            raise CliError("--outside runs the checks named there alone: leave out --fast and --only.")
        if run(project.ROOT, {}, {"outside": outside_checks(outside, arguments or ())}):
            raise Exit(1)
        return
    with_machines = not fast and not (repeat and not arguments)
    if repeat:
        if fast or only:
            raise CliError("--repeat runs tests alone: leave out --fast and --only.")
        only, arguments = ["tests"], [f"--repeat={repeat}", *(arguments or ("-m", "not e2e"))]
    chosen = only or list(NAMES)
    if unknown := sorted(set(chosen) - set(NAMES)):
        raise CliError(f"--only {unknown[0]}: there is no such check. There are: {', '.join(NAMES)}.")
    with_tests = "tests" in chosen
    with_machines = with_machines and with_tests
    if with_machines:
        prepare()
        _remove_leftovers()
    processes = tests(arguments or (), fast=fast) if with_tests else {}
    console.note(f"Running side by side: {', '.join(name for name in NAMES if name in chosen)} ...")
    try:
        failed = run(project.ROOT, linters(chosen, fast=fast), processes)
    finally:
        if with_machines:
            _remove_leftovers()
    if set(failed) - {*list(processes)[-1:]}:
        # The last lines on the screen may be a summary of pytest without failures.
        console.error(f"failed: {', '.join(failed)}; see above")
    if failed:
        raise Exit(1)
