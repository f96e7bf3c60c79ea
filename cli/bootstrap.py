"""Creates `.venv` from the locked requirements: `bootstrap.py run|dev`. `./hpc` starts it if the environment is not
current.

It runs on the system's Python before anything is installed, so it imports the standard library only. It may be killed,
and started twice at once: the process holds a lock, which the kernel releases at its end. `.venv` has a copy of the
requirements if it is complete; the copy is removed before the first change and written after the last one.
"""

import fcntl
import importlib
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
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCKS = {"run": "requirements.txt", "dev": "requirements-dev.txt"}
TOOLS = ROOT / "requirements-tools.txt"
"""Locked packages that no environment contains: each is installed alone, into the user's cache, by who needs it."""
SIZES = {"requirements.txt": "0.3 GB, at most 0.6 GB", "requirements-dev.txt": "0.5 GB, at most 0.9 GB"}
"""Sizes of what they install, most of it the resource classes of Google and Kubernetes (316 and 530 MB), and with what
Python compiles, if it compiles everything."""

# pip's settings by name, with uv's variables for the same. uv does not read pip's configuration, but a mirror that is
# set up there is meant for every installer.
INDEX_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
}
CONNECTION_SETTINGS = {"cert": "SSL_CERT_FILE", "timeout": "UV_HTTP_TIMEOUT", "proxy": "ALL_PROXY"}


class BootstrapError(Exception):
    """The environment can't be created; the text says what to do."""


def say(text: str) -> None:
    """Print progress on standard error: standard output is the command's own."""
    print(f"hpc: {text}", file=sys.stderr, flush=True)


@contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the directory's lock; wait for another process that prepares the same directory."""
    directory.mkdir(parents=True, exist_ok=True)
    # Not `.lock`, which uv itself uses in every environment that it changes.
    # Whoever can open a file can hold its lock.
    with open(directory / ".hpc-lock", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        os.fchmod(file.fileno(), 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another hpc that prepares {directory}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pip_settings() -> dict[str, str]:
    """Return pip's settings, from its configuration files and its environment variables, which override the files."""
    home = Path(os.environ.get("HOME") or "/")
    user = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    chosen = os.environ.get("PIP_CONFIG_FILE")
    files = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), home / ".pip/pip.conf", user]
    files += [Path(sys.prefix) / "pip.conf", *([Path(chosen)] if chosen else [])]
    settings: dict[str, str] = {}
    for file in [] if chosen == os.devnull else files:
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(file, encoding="utf-8")
        except Error as error:
            raise BootstrapError(f"{file}: not a pip configuration: {error}. Correct it, or remove it.") from error
        for section in ("global", "install"):
            if parser.has_section(section):
                settings |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    for name, value in os.environ.items():
        if name.startswith("PIP_") and value:
            settings[name[4:].lower().replace("_", "-")] = value
    if "default-timeout" in settings:
        settings.setdefault("timeout", settings["default-timeout"])
    return settings


def uv_environment() -> dict[str, str]:
    """Return this process's environment, with pip's index settings for uv unless uv has its own."""
    env = dict(os.environ)
    config = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or "/") / ".config") / "uv/uv.toml"
    settings = pip_settings()
    for name in settings.keys() & CONNECTION_SETTINGS.keys():
        env.setdefault(CONNECTION_SETTINGS[name], settings[name])
    configured = any(name in env for name in ("UV_INDEX_URL", "UV_CONFIG_FILE", *INDEX_SETTINGS.values()))
    if not (configured or config.exists() or Path("/etc/uv/uv.toml").exists()):
        for name in settings.keys() & INDEX_SETTINGS.keys():
            # uv separates links by commas and other lists by spaces; pip separates all by white space.
            env[INDEX_SETTINGS[name]] = ("," if name == "find-links" else " ").join(settings[name].split())
        if "extra-index-url" in settings:
            # As pip, which searches every index. Hashes are required, so only locked packages can be installed.
            env["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return env | {"UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": str(VENV)}


def run(command: Sequence[str | Path], env: dict[str, str], doing: str) -> None:
    """Run a command with its output on standard error. Raises SetupError: it failed; its own message is above."""
    done = subprocess.run(list(map(str, command)), env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if done.returncode:
        raise BootstrapError(
            f"{doing} failed (exit code {done.returncode}); see above. Run this again when it is mended."
        )


def install_venv_module() -> None:
    """Install python3-venv: on Debian and Ubuntu it is not part of python3, and without it there is no pip."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise BootstrapError(
            f"{sys.executable} has neither ensurepip nor pip. Install one of them (on Debian and Ubuntu, as root: "
            f"apt-get install {version}), or put uv on PATH, and run this again."
        )
    say(f"{sys.executable} has neither ensurepip nor pip: installing {version} with apt.")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(["apt-get", "-q", "update"], env, "apt-get update")
    except BootstrapError as error:
        say(f"{error} Trying with the lists that are here.")
    options = ["-q", "-y", "-o", "DPkg::Lock::Timeout=120", "--no-install-recommends"]
    run(["apt-get", *options, "install", version], env, "apt-get install")


def uv_on_path() -> str | None:
    """Return the uv on PATH if it is 0.5 or newer: older versions do not have all options that are used here."""
    program = shutil.which("uv")
    if not program:
        return None
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"uv (\d+)\.(\d+)", text)
    return program if version and (int(version[1]), int(version[2])) >= (0, 5) else None


def tool(name: str) -> Path:
    """Return the folder with a package of requirements-tools.txt, which pip installs into the user's cache on first
    use, without what it depends on. Raises SetupError: pip failed."""
    pinned = re.search(rf"^{re.escape(name)}==(\S+) .*\n(?: .*\n)*", TOOLS.read_text(), re.MULTILINE)
    if not pinned:
        raise BootstrapError(f"{TOOLS} has no {name}. Restore the file from version control.")
    home = os.environ.get("HOME")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or (Path(home) / ".cache" if home else VENV / "cache")) / "hpc"
    target, new = cache / f"{name}-{pinned[1]}", cache / f"{name}-new"
    with locked(cache):
        if not target.exists():
            say(f"fetching {name} {pinned[1]} (once)")
            shutil.rmtree(new, ignore_errors=True)
            has_pip = importlib.util.find_spec("pip") is not None
            if not has_pip and not importlib.util.find_spec("ensurepip"):
                install_venv_module()
            python: str | Path = sys.executable
            if not has_pip:
                run([python, "-m", "venv", new], dict(os.environ), "python3 -m venv")
                python = new / "bin/python"
            new.mkdir(exist_ok=True)
            lock = new / TOOLS.name
            lock.write_text(pinned[0])
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--require-hashes"]
            # The newest Python is demanded by what is not used here.
            options += ["--ignore-requires-python", "-r", lock, *(["--target", new] if has_pip else [])]
            env = os.environ | {"PIP_ROOT_USER_ACTION": "ignore"}
            run([python, "-m", "pip", "install", *options], env, f"pip install {name}")
            new.rename(target)
    return target


def current(name: str) -> bool:
    """Return whether the environment is complete, and made from this requirements file as it is now."""
    complete = os.access(VENV / "bin/python", os.X_OK) and (VENV / name).exists()
    return complete and (VENV / name).read_bytes() == (ROOT / name).read_bytes()


def compilation() -> list[str]:
    """Return uv's option for compiling. Python stores what it compiles when a command first imports it, nearly a half
    of the environment. If that is turned off, everything is compiled at the installation: otherwise every command would
    take twice as long to start."""
    return ["--compile-bytecode"] if sys.dont_write_bytecode else []


def prepare(kind: str) -> None:
    """Install the locked requirements for `run` or `dev` into `.venv`. An environment for `dev` keeps that kind."""
    with locked(VENV):
        # Another process that held the lock may have prepared it.
        if current(LOCKS["dev"]) or (kind == "run" and current(LOCKS["run"])):
            return
        name = LOCKS["dev"] if (VENV / LOCKS["dev"]).exists() else LOCKS[kind]
        started = time.monotonic()
        say(f"preparing {VENV} from {name} (once: {SIZES[name]} when Python has compiled it)")
        uv = uv_on_path() or tool("uv") / "bin/uv"
        env = uv_environment()
        quiet = [] if sys.stderr.isatty() else ["--quiet"]
        for stamp in LOCKS.values():
            (VENV / stamp).unlink(missing_ok=True)
        if not os.access(VENV / "bin/python", os.X_OK):
            # An environment whose Python is gone can't be repaired: its packages are for another Python.
            for part in ("bin", "lib", "lib64", "include", "pyvenv.cfg"):
                path = VENV / part
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, VENV], env, "uv venv")
        copy = VENV / f"{name}.new"
        shutil.copyfile(ROOT / name, copy)
        options = [*quiet, *compilation(), "--require-hashes", "--python", VENV / "bin/python"]
        run([uv, "pip", "sync", *options, copy], env, "uv pip sync")
        copy.rename(VENV / name)
        say(f"prepared in {time.monotonic() - started:.1f} s")


def add(name: str, size: str) -> None:
    """Install a package of requirements-dev.txt, with what it needs, into the `.venv` that runs this process. It stays
    until the requirements change.

    Raises SetupError: the installer failed, or another environment runs this process.
    """
    if Path(sys.prefix).resolve() != VENV:
        raise BootstrapError(f"{sys.executable} has no {name}. Install it there, or run ./hpc, which installs it.")
    lock = ROOT / LOCKS["dev"]
    # One for each range of Python's versions, with its condition.
    pinned = re.findall(rf"^({re.escape(name)}==[^\\\n]*[^\\\s])", lock.read_text(), re.MULTILINE)
    with locked(VENV):
        say(f"installing {name} into {VENV} (once, {size})")
        uv = uv_on_path() or tool("uv") / "bin/uv"
        stamps = [VENV / stamp for stamp in LOCKS.values() if (VENV / stamp).exists()]
        for stamp in stamps:
            stamp.rename(f"{stamp}.new")  # after a kill, the next run makes the environment complete again
        options = ["--quiet", *compilation(), "--require-hashes", "--python", sys.executable, "--constraint", lock]
        try:
            run([uv, "pip", "install", *options, *pinned], uv_environment(), f"installing {name}")
        finally:
            for stamp in stamps:
                Path(f"{stamp}.new").rename(stamp)
    importlib.invalidate_caches()


def build_image(arguments: Sequence[str]) -> None:
    """Start to build the base image that these arguments of the CLI need, if they need one. The process is interrupted
    at the end of this one, which becomes the CLI's: `up` waits for it."""
    program = ROOT / "components/local/host/image_ahead.py"
    nowhere = subprocess.DEVNULL
    with suppress(FileNotFoundError):
        subprocess.Popen(
            ["setpriv", "--pdeathsig", "INT", sys.executable, str(program), *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, stdin=nowhere, stdout=nowhere, stderr=nowhere,
        )  # fmt: skip


def main() -> int:
    """Prepare the environment for the first argument, `run` or `dev`. Then run the environment's Python with the other
    arguments, if there are any, in place of this process. Returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            # These signals, too, raise KeyboardInterrupt, which ends the child process as well.
            signal.signal(number, signal.default_int_handler)
    build_image(sys.argv[3:])
    try:
        prepare(sys.argv[1])
    except BootstrapError as error:
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


if __name__ == "__main__":
    sys.exit(main())
