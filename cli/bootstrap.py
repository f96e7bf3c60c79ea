"""Makes `.venv` from the locked requirements: `bootstrap.py run|dev`, started by `./hpc` when the copy there is stale.

Runs on the system's Python before anything is installed, so it imports the standard library only. Safe to kill and to
start twice at once: a lock is held by the process (the kernel drops it with the process), and the copy of the
requirements that says "complete" is removed before the first change and written after the last one.
"""

import fcntl
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from configparser import ConfigParser, Error
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCKS = {"run": "requirements.txt", "dev": "requirements-dev.txt"}
SIZES = {"requirements.txt": "0.5 GB", "requirements-dev.txt": "0.8 GB"}
"""Sizes of what they install; Google's and Kubernetes' resource classes are most of it."""

# pip's settings by name, and the variables with which uv takes the same. uv reads no pip configuration, but who has set
# up a mirror for pip means it for every installer.
INDEX_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
}
CONNECTION_SETTINGS = {"cert": "SSL_CERT_FILE", "timeout": "UV_HTTP_TIMEOUT", "proxy": "ALL_PROXY"}


class SetupError(Exception):
    """The environment cannot be made; the text says what to do."""


def say(text: str) -> None:
    """Report progress on standard error, which leaves standard output to the command itself."""
    print(f"hpc: {text}", file=sys.stderr, flush=True)


@contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the directory's lock, waiting for another process that prepares the same thing."""
    directory.mkdir(parents=True, exist_ok=True)
    # Not `.lock`: that one is uv's own, which it takes on every environment it changes.
    with (directory / ".hpc-lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another hpc that prepares {directory}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pip_settings() -> dict[str, str]:
    """pip's own settings, from its configuration files and, winning over them, its environment variables."""
    home = Path(os.environ.get("HOME") or "/")
    user = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    chosen = os.environ.get("PIP_CONFIG_FILE")
    files = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), home / ".pip/pip.conf", user]
    files += [Path(sys.prefix) / "pip.conf", *([Path(chosen)] if chosen else [])]
    found: dict[str, str] = {}
    for file in [] if chosen == os.devnull else files:
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(file, encoding="utf-8")
        except Error as error:
            raise SetupError(f"{file}: not a pip configuration: {error}. Correct it, or remove it.") from error
        for section in ("global", "install"):
            if parser.has_section(section):
                found |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    given = {name[4:]: value for name, value in os.environ.items() if name.startswith("PIP_") and value}
    found |= {name.lower().replace("_", "-"): value for name, value in given.items()}
    if "default-timeout" in found:
        found.setdefault("timeout", found["default-timeout"])
    return found


def uv_environment() -> dict[str, str]:
    """This process's environment, with pip's index settings for uv where nothing was said to uv itself."""
    env = dict(os.environ)
    config = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or "/") / ".config") / "uv/uv.toml"
    settings = pip_settings()
    for name in settings.keys() & CONNECTION_SETTINGS.keys():
        env.setdefault(CONNECTION_SETTINGS[name], settings[name])
    configured = any(name in env for name in ("UV_INDEX_URL", "UV_CONFIG_FILE", *INDEX_SETTINGS.values()))
    if not (configured or config.exists() or Path("/etc/uv/uv.toml").exists()):
        for name in settings.keys() & INDEX_SETTINGS.keys():
            # uv separates links by commas and all other lists by spaces; pip by white space of any kind.
            env[INDEX_SETTINGS[name]] = ("," if name == "find-links" else " ").join(settings[name].split())
        if "extra-index-url" in settings:
            # pip looks at every index; with hashes required that cannot fetch anything but what is locked.
            env["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return env | {"UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": str(VENV)}


def run(command: Sequence[str | Path], env: dict[str, str], doing: str) -> None:
    """Run a command with its output on standard error. Raises SetupError: it failed; its own message is above."""
    code = subprocess.run(list(map(str, command)), env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if code.returncode:
        raise SetupError(f"{doing} failed (exit code {code.returncode}); see above. Run this again when it is mended.")


def install_venv_module() -> None:
    """Install python3-venv, which Debian and Ubuntu split from python3 and without which no pip can be had."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SetupError(
            f"{sys.executable} has neither ensurepip nor pip. Install one of them (on Debian and Ubuntu, as root: "
            f"apt-get install {version}), or put uv on PATH, and run this again."
        )
    say(f"{sys.executable} has neither ensurepip nor pip: installing {version} with apt.")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(["apt-get", "-q", "update"], env, "apt-get update")
    except SetupError as error:
        say(f"{error} Trying with the lists that are here.")
    options = ["-q", "-y", "-o", "DPkg::Lock::Timeout=120", "--no-install-recommends"]
    run(["apt-get", *options, "install", version], env, "apt-get install")


def uv_on_path() -> str | None:
    """The uv on PATH when it is 0.5 or newer, the oldest in which every option used here means the same."""
    found = shutil.which("uv")
    if not found:
        return None
    text = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"uv (\d+)\.(\d+)", text)
    return found if version and (int(version[1]), int(version[2])) >= (0, 5) else None


def own_uv() -> Path:
    """The locked uv of requirements-uv.txt, installed with pip into the user's cache on first use."""
    lock = ROOT / "requirements-uv.txt"
    version = lock.read_text().split()[0].removeprefix("uv==")
    home = os.environ.get("HOME")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or (Path(home) / ".cache" if home else VENV / "cache")) / "hpc"
    target, new = cache / f"uv-{version}", cache / "uv-new"
    with locked(cache):
        if not (target / "bin/uv").exists():
            say(f"fetching uv {version}, which installs the rest")
            shutil.rmtree(new, ignore_errors=True)
            has_pip = importlib.util.find_spec("pip") is not None
            if not has_pip and not importlib.util.find_spec("ensurepip"):
                install_venv_module()
            python: str | Path = sys.executable
            if not has_pip:
                run([python, "-m", "venv", new], dict(os.environ), "python3 -m venv")
                python = new / "bin/python"
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", lock]
            where = ["--target", new] if has_pip else []
            env = os.environ | {"PIP_ROOT_USER_ACTION": "ignore"}
            run([python, "-m", "pip", "install", *options, *where], env, "pip install uv")
            new.rename(target)
    return target / "bin/uv"


def current(name: str) -> bool:
    """Return whether the environment was completed from exactly this requirements file."""
    whole = os.access(VENV / "bin/python", os.X_OK) and (VENV / name).exists()
    return whole and (VENV / name).read_bytes() == (ROOT / name).read_bytes()


def prepare(wanted: str) -> None:
    """Bring `.venv` to the locked requirements for `run` or `dev`; an environment for `dev` stays one."""
    with locked(VENV):
        # Whoever held the lock before may have done the work.
        if current(LOCKS["dev"]) or (wanted == "run" and current(LOCKS["run"])):
            return
        name = LOCKS["dev"] if (VENV / LOCKS["dev"]).exists() else LOCKS[wanted]
        started = time.monotonic()
        say(f"preparing {VENV} from {name} (once, {SIZES[name]})")
        uv = uv_on_path() or own_uv()
        env = uv_environment()
        quiet = [] if sys.stderr.isatty() else ["--quiet"]
        for stamp in LOCKS.values():
            (VENV / stamp).unlink(missing_ok=True)
        if not os.access(VENV / "bin/python", os.X_OK):
            # What is left of an environment whose Python is gone is for another Python: it cannot be mended.
            for part in ("bin", "lib", "lib64", "include", "pyvenv.cfg"):
                path = VENV / part
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, VENV], env, "uv venv")
        copy = VENV / f"{name}.new"
        shutil.copyfile(ROOT / name, copy)
        # Python compiles what a command imports when it first does, a tenth of all that is installed. Where that is
        # off, all of it is compiled now: every command would start in twice the time.
        compiled = ["--compile-bytecode"] if sys.dont_write_bytecode else []
        options = [*quiet, *compiled, "--require-hashes", "--python", VENV / "bin/python"]
        run([uv, "pip", "sync", *options, copy], env, "uv pip sync")
        copy.rename(VENV / name)
        say(f"prepared in {time.monotonic() - started:.1f} s")


def main() -> int:
    """Prepare for the first argument, `run` or `dev`, then become the environment's Python with the others, if there
    are any. The exit code is that of a failure."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        prepare(sys.argv[1])
    except SetupError as error:
        say(str(error))
        return 1
    except OSError as error:
        say(f"cannot prepare {VENV}: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next run goes on from here")
        return 130
    if sys.argv[2:]:
        python = str(VENV / "bin/python")
        os.execv(python, [python, *sys.argv[2:]])  # noqa: S606 - no shell is meant
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    """Interrupt as Ctrl-C does, which ends the program that runs as well."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
