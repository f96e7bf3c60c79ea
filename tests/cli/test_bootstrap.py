"""`./hpc` creates the environment once, with the indexes that are set up for pip, and then starts the program in it.

`uv` is a stand-in, which creates an environment whose Python prints its arguments. Every first use runs the real uv.
The environment has what the Pulumi CLI's Python host needs.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from cli import bootstrap
from components.local.host import image_ahead
from tests import programs
from tests.waiting import lives, wait_for

ROOT = Path(__file__).parents[2]
UV = """\
#!/bin/sh
printf '%s\\n' "$*" >>"$UV_LOG"
case $1 in
    --version) echo 'uv 0.99.0' ;;
    venv)
        for venv; do :; done
        mkdir -p "$venv/bin"
        printf '#!/bin/sh\\nprintf "<%%s>" "$@"\\nexit 3\\n' >"$venv/bin/python"
        chmod +x "$venv/bin/python" ;;
    pip) eval "${UV_SYNC-}" ;;
esac
"""
TOOLS = ("sh", "cmp", "id", "readlink", "mkdir", "chmod", "cat", "sleep", "touch")


class Checkout:
    """A copy of the launcher in its own folder, with its own PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "check out"
        (self.folder / "cli").mkdir(parents=True)
        shutil.copy(ROOT / "hpc", self.folder)
        shutil.copy(ROOT / "cli/bootstrap.py", self.folder / "cli")
        for name in ("requirements.txt", "requirements-dev.txt"):
            (self.folder / name).write_text(f"{name}, first\n")
        (self.folder / "requirements-tools.txt").write_text("uv==0.99.0 \\\n    --hash=sha256:0\n")
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            path = shutil.which(tool)
            assert path, tool
            (self.bin / tool).symlink_to(path)
        (self.bin / "python3").symlink_to(sys.executable)
        programs.write(self.bin / "uv", UV)
        self.log = folder / "uv.log"
        self.env = {"PATH": str(self.bin), "HOME": str(folder / "home"), "UV_LOG": str(self.log)}

    def hpc(self, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        command, own = [self.folder / "hpc", *arguments], self.env | env
        return programs.run(command, env=own, timeout=300)

    def synced(self) -> list[str]:
        """Return the requirements files installed so far, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [Path(line.split("/")[-1]).name.removesuffix(".new") for line in lines if line.startswith("pip sync")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


class TestEnvironment:
    def test_is_created_by_the_first_command_only(self, checkout: Checkout) -> None:
        first = checkout.hpc("up", "dev")
        assert first.returncode == 3
        assert "preparing" in first.stderr
        second = checkout.hpc("up", "dev")
        assert second.stderr == ""
        assert checkout.synced() == ["requirements.txt"]

    def test_for_tests_serves_every_command(self, checkout: Checkout) -> None:
        for command in ("up", "test", "up", "test"):
            checkout.hpc(command)
        assert checkout.synced() == ["requirements.txt", "requirements-dev.txt"]

    def test_is_updated_when_its_requirements_change(self, checkout: Checkout) -> None:
        checkout.hpc("test")
        (checkout.folder / "requirements.txt").write_text("second\n")
        checkout.hpc("up")
        (checkout.folder / "requirements-dev.txt").write_text("second\n")
        checkout.hpc("up")
        assert checkout.synced() == ["requirements-dev.txt", "requirements-dev.txt"]

    def test_is_created_once_by_commands_that_start_together(self, checkout: Checkout) -> None:
        with ThreadPoolExecutor() as pool:
            ended = list(pool.map(lambda _: checkout.hpc("up", UV_SYNC="sleep 0.3"), range(3)))
        assert [done.returncode for done in ended] == [3, 3, 3]
        assert checkout.synced() == ["requirements.txt"]

    def test_is_created_again_after_a_kill(self, checkout: Checkout) -> None:
        started = checkout.log.with_name("started")
        env = checkout.env | {"UV_SYNC": f"touch '{started}'; sleep 60"}
        with subprocess.Popen([checkout.folder / "hpc", "up"], env=env, start_new_session=True) as process:
            wait_for(started.exists)
            os.killpg(process.pid, signal.SIGKILL)
        assert checkout.hpc("up").returncode == 3
        assert checkout.synced() == ["requirements.txt", "requirements.txt"]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_a_signal_ends_the_installer(self, checkout: Checkout, number: signal.Signals) -> None:
        """Sent to `./hpc` alone, as `kill` does."""
        process = subprocess.Popen(
            [checkout.folder / "hpc", "up"],
            # The launcher has the installer's process only a moment after that has started.
            env=checkout.env | {"UV_SYNC": "sleep 1; echo $$ >$UV_LOG.pid; exec sleep 60"},
            stderr=subprocess.PIPE,
            text=True,
        )
        pid = Path(f"{checkout.log}.pid")
        wait_for(lambda: pid.exists() and pid.read_text())
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 130
        assert err.endswith("hpc: interrupted; the next run goes on from here\n")
        wait_for(lambda: not lives(int(pid.read_text())))  # it was killed, and may not have ended yet
        assert checkout.hpc("up").returncode == 3

    def test_is_created_again_when_its_python_is_gone(self, checkout: Checkout) -> None:
        checkout.hpc("up")
        (checkout.folder / ".venv/bin/python").unlink()
        (checkout.folder / ".venv/bin/python").symlink_to("/nowhere/python")
        assert checkout.hpc("up").stdout.endswith("<up>")
        assert checkout.synced() == ["requirements.txt", "requirements.txt"]

    def test_a_failed_installation_starts_no_command(self, checkout: Checkout) -> None:
        ended = checkout.hpc("up", UV_SYNC="echo no such index >&2; exit 2")
        assert ended.returncode == 1
        assert ended.stdout == ""
        assert "no such index" in ended.stderr
        assert "uv pip sync failed (exit code 2)" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert checkout.hpc("up").returncode == 3


class TestImage:
    """The base image of a stack on this host is built while the environment is installed."""

    def test_its_program_gets_the_arguments_and_ends_with_the_command(self, checkout: Checkout, tmp_path: Path) -> None:
        program, note = checkout.folder / "components/local/host/image_ahead.py", tmp_path / "note"
        program.parent.mkdir(parents=True)
        program.write_text(
            f"import os, sys, time\nopen({str(note)!r}, 'w').write(' '.join([str(os.getpid()), *sys.argv[1:]]))\n"
            "time.sleep(600)\n"
        )
        (checkout.bin / "setpriv").symlink_to(shutil.which("setpriv") or "")
        wait = f"while [ ! -s {str(note)!r} ]; do sleep 0.02; done"
        assert checkout.hpc("up", "dev", UV_SYNC=wait).returncode == 3
        pid, *arguments = note.read_text().split()
        assert arguments == ["up", "dev"]
        wait_for(lambda: not lives(int(pid)))
        note.unlink()
        checkout.hpc("up", "dev")
        assert not note.exists()

    @pytest.mark.parametrize(
        ("arguments", "base"),
        [
            (["up", "dev"], "debian-13"),
            (["up", "dev", "--yes"], "debian-13"),
            (["up"], ""),
            (["up", "gone"], ""),
            (["up", "a3mega"], ""),
            (["preview", "dev"], ""),
            ([], ""),
        ],
    )
    def test_it_is_that_of_the_stack_file(self, arguments: list[str], base: str) -> None:
        assert image_ahead.base_image(arguments) == base

    def test_an_image_with_more_than_a_name_is_left_to_up(self, tmp_path: Path) -> None:
        file = tmp_path / "Pulumi.dev.yaml"
        for image, base in {"{base: debian-12}": "debian-12", "{base: debian-12, packages: [podman]}": ""}.items():
            file.write_text(f"config:\n  hpc:cluster:\n    platform: local\n    image: {image}\n")
            assert image_ahead.base_image(["up", "dev"], tmp_path) == base


class TestPlots:
    """matplotlib is not part of what running needs: the first plot adds it to the environment."""

    ADD = "import bootstrap, sys; bootstrap.add('matplotlib', '0.1 GB')"

    @pytest.fixture
    def added(self, checkout: Checkout) -> Callable[..., "subprocess.CompletedProcess[str]"]:
        """Run `add` in the checkout's environment, with a stand-in for uv."""
        rows = "matplotlib==3.1 ; python_full_version < '3.11' \\\n    --hash=sha256:0\nmatplotlib==3.2 \\\n"
        (checkout.folder / "requirements-dev.txt").write_text(f"{rows}numpy==2 \\\n    # via matplotlib==9\n")
        venv = checkout.folder / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        shutil.copy(checkout.folder / "requirements.txt", venv)
        command, environment = [venv / "bin/python", "-c", self.ADD], {"PYTHONPATH": str(checkout.folder / "cli")}
        return lambda **more: programs.run(command, env=checkout.env | environment | more, timeout=300)

    def test_add_what_the_lock_for_tests_has(self, checkout: Checkout, added) -> None:
        done = added()
        assert (done.returncode, done.stderr.count("installing matplotlib")) == (0, 1)
        line = checkout.log.read_text().splitlines()[-1]
        assert line.startswith("pip install")
        assert "--require-hashes" in line
        assert line.endswith("requirements-dev.txt matplotlib==3.1 ; python_full_version < '3.11' matplotlib==3.2")
        checkout.hpc("up")
        assert checkout.synced() == []

    def test_a_kill_has_the_environment_made_complete_again(self, checkout: Checkout, added) -> None:
        assert added(UV_SYNC="kill -9 $PPID").returncode == -signal.SIGKILL
        checkout.hpc("up")
        assert checkout.synced() == ["requirements.txt"]

    def test_a_failed_installation_changes_nothing_else(self, checkout: Checkout, added) -> None:
        done = added(UV_SYNC="echo no such index >&2; exit 2")
        assert "installing matplotlib failed (exit code 2)" in done.stderr
        checkout.hpc("up")
        assert checkout.synced() == []

    def test_an_environment_of_somebody_else_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "prefix", "/usr")
        with pytest.raises(bootstrap.BootstrapError, match=r"has no matplotlib\. Install it there, or run \./hpc"):
            bootstrap.add("matplotlib", "0.1 GB")


def test_what_running_needs_has_the_size_that_is_printed() -> None:
    """Python's compiled files are 0.86 of what is installed, if everything is compiled (measured)."""
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    size = 0
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):  # another platform's, or another Python's
            size += sum(file.size or 0 for file in metadata.files(name) or ())
    assert 0.27e9 < size < 0.33e9
    assert 0.55e9 < 1.86 * size < 0.62e9
    assert bootstrap.SIZES["requirements.txt"] == "0.3 GB, at most 0.6 GB"


class TestStart:
    def test_arguments_and_exit_code_pass_through(self, checkout: Checkout) -> None:
        ended = checkout.hpc("run", "dev", "--", "echo", "a  b", "", "*", "c\nd")
        assert ended.returncode == 3
        assert ended.stdout == f"<{checkout.folder}/cli><run><dev><--><echo><a  b><><*><c\nd>"

    def test_from_any_directory_and_through_a_symlink(self, checkout: Checkout, tmp_path: Path) -> None:
        link = checkout.bin / "hpc"
        link.symlink_to(checkout.folder / "hpc")
        for command, folder in (([str(link)], tmp_path), (["hpc"], tmp_path), (["sh", "hpc"], checkout.folder)):
            ended = programs.run(command, cwd=folder, env=checkout.env)
            assert ended.stdout == f"<{checkout.folder}/cli>"

    def test_takes_less_than_50_ms_of_cpu_when_warm(self, checkout: Checkout) -> None:
        checkout.hpc("up")
        cpu_seconds = []
        for _ in range(5):
            before = os.times()
            checkout.hpc("up")
            after = os.times()
            cpu_seconds.append(sum(after[2:4]) - sum(before[2:4]))
        assert min(cpu_seconds) < 0.05

    def test_without_python_the_package_to_install_is_named(self, checkout: Checkout) -> None:
        # The launcher must not install a package: with apt and root it would.
        (checkout.bin / "python3").unlink()
        programs.write(checkout.bin / "python3", '[ "$1" != --version ] || echo Python 3.8.1\nexit 1')
        script = (checkout.folder / "hpc").read_text().replace("/usr/bin/python3", "")
        (checkout.folder / "hpc").write_text(script)
        ended = checkout.hpc("up")
        assert ended.returncode == 1
        assert "Python 3.10 or newer is needed and this machine has" in ended.stderr
        assert "apt-get install python3 python3-venv" in ended.stderr
        assert not checkout.log.exists()


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without configuration of pip or uv."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")) or name in ("SSL_CERT_FILE", "ALL_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return tmp_path


def from_pip(env: dict[str, str]) -> dict[str, str]:
    names = {*bootstrap.INDEX_SETTINGS.values(), *bootstrap.CONNECTION_SETTINGS.values(), "UV_INDEX_STRATEGY"}
    return {name: value for name, value in env.items() if name in names}


def test_settings_of_pip_are_passed_to_uv(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = empty_home / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://mirror.example/simple\ntimeout = 7\n"
        "[install]\nextra-index-url =\n  https://a.example/simple\n  https://b.example/simple\nfind-links = /one /two\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_CERT", "/etc/ssl/mine.pem")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "180")
    assert from_pip(bootstrap.uv_environment()) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/one,/two",
        "UV_HTTP_TIMEOUT": "7",
        "SSL_CERT_FILE": "/etc/ssl/mine.pem",
    }


def test_variables_of_pip_override_its_files(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = empty_home / ".config/pip/pip.conf"
    file.parent.mkdir(parents=True)
    file.write_text("[global]\nindex-url = https://file.example/simple\n")
    assert bootstrap.pip_settings()["index-url"] == "https://file.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    assert bootstrap.uv_environment()["UV_DEFAULT_INDEX"] == "https://variable.example/simple"


@pytest.mark.usefixtures("empty_home")
def test_settings_of_uv_override_those_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://extra.example/simple")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    monkeypatch.setenv("SSL_CERT_FILE", "/uv.pem")
    monkeypatch.setenv("PIP_CERT", "/pip.pem")
    assert from_pip(bootstrap.uv_environment()) == {
        "UV_DEFAULT_INDEX": "https://uv.example/simple",
        "SSL_CERT_FILE": "/uv.pem",
    }


def test_an_invalid_pip_configuration_is_named(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = empty_home / "pip.conf"
    file.write_text("index-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    with pytest.raises(bootstrap.BootstrapError, match=f"^{file}: not a pip configuration"):
        bootstrap.uv_environment()


def test_without_pip_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(bootstrap.BootstrapError, match=r"apt-get install python3\.\d+-venv\)"):
        bootstrap.install_venv_module()


# sdk/python/toolchain/pip.go of pulumi/pulumi: ListPackages of 3.260, the same before it (`-v`, for the folder of each
# package), of direct dependencies only (`pulumi about`), and getPipVersion.
PIP_LISTS = (
    ["list", "--format", "json"],
    ["list", "-v", "--format", "json"],
    ["list", "--format", "json", "--not-required"],
)


def pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    return programs.run(command, check=True, cwd=ROOT).stdout


@pytest.mark.parametrize("question", PIP_LISTS, ids=" ".join)
def test_pip_lists_the_packages_for_the_pulumi_cli(question: list[str]) -> None:
    rows = {row["name"].replace("_", "-"): row for row in json.loads(pip(*question))}
    # `--not-required` leaves out the SDK, which each provider requires.
    assert {"pulumi-command", "pulumi-gcp", "pulumi-random", "pulumi-tls"} <= rows.keys()
    assert all(row["version"] for row in rows.values())


def test_pip_prints_its_version() -> None:
    assert re.match(r"pip \d+\.\d+.* from ", pip("--version"))


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_both_locks_include_pip(name: str) -> None:
    assert re.search(r"^pip==\S+ \\\n +--hash=sha256:", (ROOT / name).read_text(), re.MULTILINE)
