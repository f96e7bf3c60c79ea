"""`./hpc` itself: makes the environment once, with the indexes that were set up for pip, and stays out of the way.

`uv` is a stand-in here, which makes an environment whose Python prints what it was started with: what is tested is when
and with what it is called. That the real one then works is seen on every first use.
"""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli import bootstrap
from tests.waiting import wait_for

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
    """A copy of the launcher in a folder of its own, with a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "check out"
        (self.folder / "cli").mkdir(parents=True)
        shutil.copy(ROOT / "hpc", self.folder)
        shutil.copy(ROOT / "cli/bootstrap.py", self.folder / "cli")
        for name in ("requirements.txt", "requirements-dev.txt"):
            (self.folder / name).write_text(f"{name}, first\n")
        (self.folder / "requirements-uv.txt").write_text("uv==0.99.0 \\\n")
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        (self.bin / "python3").symlink_to(sys.executable)
        (self.bin / "uv").write_text(UV)
        (self.bin / "uv").chmod(0o755)
        self.log = folder / "uv.log"
        self.env = {"PATH": str(self.bin), "HOME": str(folder / "home"), "UV_LOG": str(self.log)}

    @property
    def venv(self) -> Path:
        return self.folder / ".venv"

    def hpc(self, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        command, own = [self.folder / "hpc", *arguments], self.env | env
        return subprocess.run(command, env=own, capture_output=True, text=True, timeout=300, check=False)

    def synced(self) -> list[str]:
        """The requirements files installed so far, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [Path(line.split("/")[-1]).name.removesuffix(".new") for line in lines if line.startswith("pip sync")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


class TestEnvironment:
    def test_is_made_once_and_then_costs_nothing(self, checkout: Checkout) -> None:
        first = checkout.hpc("up", "dev")
        assert first.returncode == 3
        assert "preparing" in first.stderr
        second = checkout.hpc("up", "dev")
        assert second.stderr == ""
        assert checkout.synced() == ["requirements.txt"]

    def test_serves_every_command_once_it_is_for_tests(self, checkout: Checkout) -> None:
        for command in ("up", "test", "up", "test"):
            checkout.hpc(command)
        assert checkout.synced() == ["requirements.txt", "requirements-dev.txt"]

    def test_follows_its_requirements_and_keeps_its_kind(self, checkout: Checkout) -> None:
        checkout.hpc("test")
        (checkout.folder / "requirements.txt").write_text("second\n")
        checkout.hpc("up")
        (checkout.folder / "requirements-dev.txt").write_text("second\n")
        checkout.hpc("up")
        assert checkout.synced() == ["requirements-dev.txt", "requirements-dev.txt"]

    def test_is_made_by_one_of_two_that_start_at_once(self, checkout: Checkout) -> None:
        with ThreadPoolExecutor() as pool:
            ended = list(pool.map(lambda _: checkout.hpc("up", UV_SYNC="sleep 0.3"), range(3)))
        assert [done.returncode for done in ended] == [3, 3, 3]
        assert checkout.synced() == ["requirements.txt"]

    def test_is_made_again_after_a_kill_half_way(self, checkout: Checkout) -> None:
        started = checkout.log.with_name("started")
        env = checkout.env | {"UV_SYNC": f"touch '{started}'; sleep 60"}
        with subprocess.Popen([checkout.folder / "hpc", "up"], env=env, start_new_session=True) as process:
            wait_for(started.exists)
            os.killpg(process.pid, signal.SIGKILL)
        assert checkout.hpc("up").returncode == 3
        assert checkout.synced() == ["requirements.txt", "requirements.txt"]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_a_signal_ends_what_makes_it(self, checkout: Checkout, number: signal.Signals) -> None:
        """Sent to `./hpc` alone, as `kill` does."""
        process = subprocess.Popen(
            [checkout.folder / "hpc", "up"],
            # The installer has its process a moment after that began.
            env=checkout.env | {"UV_SYNC": "sleep 1; echo $$ >$UV_LOG.pid; exec sleep 60"},
            stderr=subprocess.PIPE,
            text=True,
        )
        pid = Path(f"{checkout.log}.pid")
        wait_for(lambda: pid.exists() and pid.read_text())
        process.send_signal(number)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 130
        assert said.endswith("hpc: interrupted; the next run goes on from here\n")
        left = subprocess.run(
            ["ps", "-o", "stat=", "-p", pid.read_text().strip()], capture_output=True, text=True, check=False
        )
        assert left.stdout.strip()[:1] in ("", "Z")
        assert checkout.hpc("up").returncode == 3

    def test_is_made_again_when_its_python_is_gone(self, checkout: Checkout) -> None:
        checkout.hpc("up")
        (checkout.venv / "bin/python").unlink()
        (checkout.venv / "bin/python").symlink_to("/nowhere/python")
        assert checkout.hpc("up").stdout.endswith("<up>")
        assert checkout.synced() == ["requirements.txt", "requirements.txt"]

    def test_that_could_not_be_made_says_so_and_starts_nothing(self, checkout: Checkout) -> None:
        ended = checkout.hpc("up", UV_SYNC="echo no such index >&2; exit 2")
        assert ended.returncode == 1
        assert ended.stdout == ""
        assert "no such index" in ended.stderr
        assert "uv pip sync failed (exit code 2)" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert checkout.hpc("up").returncode == 3


class TestStart:
    def test_arguments_and_exit_code_pass_through(self, checkout: Checkout) -> None:
        ended = checkout.hpc("run", "dev", "--", "echo", "a  b", "", "*", "c\nd")
        assert ended.returncode == 3
        assert ended.stdout == f"<{checkout.folder}/cli><run><dev><--><echo><a  b><><*><c\nd>"

    def test_from_any_directory_and_through_a_symlink(self, checkout: Checkout, tmp_path: Path) -> None:
        link = checkout.bin / "hpc"
        link.symlink_to(checkout.folder / "hpc")
        for command, folder in (([str(link)], tmp_path), (["hpc"], tmp_path), (["sh", "hpc"], checkout.folder)):
            ended = subprocess.run(command, cwd=folder, env=checkout.env, capture_output=True, text=True, check=False)
            assert ended.stdout == f"<{checkout.folder}/cli>"

    def test_costs_little_when_warm(self, checkout: Checkout) -> None:
        checkout.hpc("up")
        took = []
        for _ in range(5):
            before = os.times()
            checkout.hpc("up")
            after = os.times()
            # CPU seconds: what something costs, however busy the machine is.
            took.append(sum(after[2:4]) - sum(before[2:4]))
        assert min(took) < 0.05

    def test_without_a_python_and_without_root_it_says_what_to_install(self, checkout: Checkout) -> None:
        # Where apt and root are, it would install one; the test must not.
        (checkout.bin / "python3").unlink()
        (checkout.bin / "python3").write_text('#!/bin/sh\n[ "$1" != --version ] || echo Python 3.8.1\nexit 1\n')
        (checkout.bin / "python3").chmod(0o755)
        script = (checkout.folder / "hpc").read_text().replace("/usr/bin/python3", "")
        (checkout.folder / "hpc").write_text(script)
        ended = checkout.hpc("up")
        assert ended.returncode == 1
        assert "Python 3.10 or newer is needed and this machine has" in ended.stderr
        assert "apt-get install python3 python3-venv" in ended.stderr
        assert not checkout.log.exists()


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any configuration."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")) or name in ("SSL_CERT_FILE", "ALL_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return tmp_path


def from_pip(env: dict[str, str]) -> dict[str, str]:
    names = {*bootstrap.INDEX_SETTINGS.values(), *bootstrap.CONNECTION_SETTINGS.values(), "UV_INDEX_STRATEGY"}
    return {name: value for name, value in env.items() if name in names}


def test_pips_files_and_variables_reach_uv(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = surroundings / "pip.conf"
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


def test_variables_win_over_files(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = surroundings / ".config/pip/pip.conf"
    file.parent.mkdir(parents=True)
    file.write_text("[global]\nindex-url = https://file.example/simple\n")
    assert bootstrap.pip_settings()["index-url"] == "https://file.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    assert bootstrap.uv_environment()["UV_DEFAULT_INDEX"] == "https://variable.example/simple"


@pytest.mark.usefixtures("surroundings")
def test_what_was_said_to_uv_itself_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://extra.example/simple")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    monkeypatch.setenv("SSL_CERT_FILE", "/uv.pem")
    monkeypatch.setenv("PIP_CERT", "/pip.pem")
    assert from_pip(bootstrap.uv_environment()) == {
        "UV_DEFAULT_INDEX": "https://uv.example/simple",
        "SSL_CERT_FILE": "/uv.pem",
    }


def test_a_broken_pip_configuration_is_named(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = surroundings / "pip.conf"
    file.write_text("index-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    with pytest.raises(bootstrap.SetupError, match=f"^{file}: not a pip configuration"):
        bootstrap.uv_environment()


def test_without_pip_and_without_root_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(bootstrap.SetupError, match=r"apt-get install python3\.\d+-venv\)"):
        bootstrap.install_venv_module()
