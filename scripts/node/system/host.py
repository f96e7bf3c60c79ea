"""Functions that change a machine only where it differs, and log each change.

Every step of the set-up uses them. So a second run changes nothing, the next run completes a killed one, and the log is
a list of the changes."""

import contextlib
import errno
import grp
import hashlib
import json
import math
import os
import pwd
import re
import selectors
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from system.locks import LONGEST_SECONDS, describe_holders, open_lock, take_lock

# As in cluster/printable.py: control characters but tab and line feed, other line ends, changes of text direction.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
STARTED = Path("/etc/hpc/started")  # a file per unit that the set-up started, with a hash of the unit's settings
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated")  # `systemctl is-enabled` prints it
RUNNING = ("active", "reloading")  # `systemctl is-active` prints it
WANTED = Path("/etc/systemd/system/multi-user.target.wants")
UNREAD = Path("/run/hpc-unread-units")  # exists while systemd has not read changed unit files; a boot reads them all
LINKED = Path("/run/hpc-linked-units")  # exists while systemd has not read which units are enabled

_AGAIN = "then run this again: nothing is half written"
_DISK = {
    errno.ENOSPC: f"make room on its file system, {_AGAIN}",
    errno.EDQUOT: f"make room there or raise the quota, {_AGAIN}",
    errno.EROFS: f"mount its file system for writing (`dmesg` may say why it is not), {_AGAIN}",
    errno.EIO: f"look at the disk or the file server (`dmesg`), {_AGAIN}",
    errno.ESTALE: f"mount its file system again, {_AGAIN}",
}


class SetupError(Exception):
    """A step can't go on; the text says what is wrong and what to do."""


def describe_os_error(error: OSError) -> str:
    """Return what is wrong with a file system that can't be written, and what to do; an empty text for other errors."""
    if error.errno not in _DISK:
        return ""
    return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}; {_DISK[error.errno]}"


def log(text: str) -> None:
    """Print one line without delay: the operator follows the log over SSH or on the serial console."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def printable(text: str) -> str:
    r"""Return `text` with characters that control a terminal as \x1b or \u2028: it may hold names of users' files."""
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}" if match[0] > "\xff" else f"\\x{ord(match[0]):02x}", text)


def run(*command: str, stdin: str | None = None, timeout: float = 120, accept: tuple[int, ...] = (0,)) -> str:
    """Run `command` and return its standard output.

    Raises SetupError if it is missing or takes longer than `timeout` seconds, and with the end of its output if its
    exit code is not in `accept`.
    """
    timeout *= timeout_factor()
    try:
        # errors="replace": names of users' jobs need not be valid UTF-8.
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"`{' '.join(command)}` did not end within {timeout:.0f} s") from None
    except FileNotFoundError:
        raise SetupError(f"`{command[0]}` is not installed on this machine") from None
    if done.returncode not in accept:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise SetupError(f"`{' '.join(command)}` failed with exit code {done.returncode}:\n{tail}")
    return done.stdout


def timeout_factor() -> float:
    """Return the factor of all timeouts (HPC_TIMEOUT_FACTOR), which `./hpc status` sets for a busy host."""
    return float(os.environ.get("HPC_TIMEOUT_FACTOR", "1"))


def which(name: str, path: str = "") -> str:
    """Return the path of a program on PATH or on `path`, empty if there is none. Importing shutil would take longer."""
    for folder in (path or os.environ.get("PATH", os.defpath)).split(":"):
        file = f"{folder}/{name}"
        if os.access(file, os.X_OK) and Path(file).is_file():
            return file
    return ""


def succeeds(*command: str, timeout: float = 30) -> bool:
    """Return whether `command` ends with exit code 0."""
    try:
        return subprocess.run(command, capture_output=True, timeout=timeout, check=False).returncode == 0
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return False


def write(
    path: str | Path, content: str | bytes, *, mode: int = 0o644, owner: str = "root", quiet: bool = False
) -> bool:
    """Write `content` to `path` with `mode` and `owner` (the user and its group); return whether anything changed.

    A rename replaces the file, so that no reader sees half of it. The new file has mode 0600 until it is complete, so
    that nobody else can read a secret in between.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    account = pwd.getpwnam(owner)
    changed = not path.is_file() or path.is_symlink() or path.read_bytes() != data
    if changed:
        import tempfile  # slow to import, and a run that changes nothing does not need it

        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chown(temporary, account.pw_uid, account.pw_gid)
            Path(temporary).chmod(mode)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        if not quiet:
            log(f"wrote {path}")
    return set_access(path, mode=mode, owner=owner) or changed


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading at a path where others may have put anything.

    Raises OSError for anything else, without following a link, waiting for a pipe or activating a device.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


@contextlib.contextmanager
def hold_lock(path: Path, what: str, *, seconds: float = LONGEST_SECONDS) -> Generator[None]:
    """Hold the lock `path`, which guards `what`. Logs whom it waits for. Raises SetupError with the holders if the lock
    is not free after `seconds`."""
    with open_lock(path) as lock:
        if not take_lock(lock):
            log(f"{what} is under way on this machine: waiting for {describe_holders(lock)}")
            if not take_lock(lock, seconds=seconds):
                raise SetupError(
                    f"{what} has not ended in {seconds:.0f} s: {describe_holders(lock)} holds {path}. Wait until it "
                    "ends, or end it if nothing comes of it (`kill PID` as root); then run this again"
                )
        yield


def set_access(path: str | Path, *, mode: int, owner: str = "root") -> bool:
    """Set the mode and the owner of an existing file or folder; return whether either changed."""
    path = Path(path)
    account = pwd.getpwnam(owner)
    status = path.stat()
    changed = (status.st_uid, status.st_gid) != (account.pw_uid, account.pw_gid)
    if changed:
        os.chown(path, account.pw_uid, account.pw_gid)
    if status.st_mode & 0o7777 != mode:
        path.chmod(mode)
        changed = True
    return changed


def remove(path: str | Path) -> bool:
    """Remove a file; return whether it existed."""
    path = Path(path)
    if not path.exists():
        return False
    path.unlink()
    log(f"removed {path}")
    return True


def has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def folder(path: str | Path, *, mode: int = 0o755, owner: str = "root") -> bool:
    """Create a folder with `mode` and `owner` unless it exists so; return whether anything changed."""
    path = Path(path)
    created = not path.is_dir()
    if created:
        path.mkdir(parents=True)
        log(f"made {path}")
    return set_access(path, mode=mode, owner=owner) or created


def read_json(path: Path, nothing: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value in the file `path`, or `nothing` if there is no such file or it can't be parsed."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return nothing


def link(path: str | Path, target: str) -> bool:
    """Make `path` a symbolic link to `target`, in place of a file or an empty folder; return whether it changed."""
    path = Path(path)
    if path.is_symlink() and str(path.readlink()) == target:
        return False
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    temporary = path.with_name(f".{path.name}.link")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
    log(f"linked {path} -> {target}")
    return True


def write_unit(path: str | Path, content: str) -> bool:
    """Write a file that systemd reads; return whether it changed.

    `reload_units` makes systemd read it before the next unit is started: once for all files, since that takes a tenth
    of a second and more. UNREAD is created first, so that the next run does it if this one is killed.
    """
    path = Path(path)
    if not path.is_file() or path.read_text() != content:
        unread_units()
    return write(path, content)


def unread_units() -> None:
    """Record that systemd must read its files again."""
    UNREAD.touch()


def reload_units(*, links: bool = False) -> None:
    """Make systemd read the files that have changed since its last reload, /etc/fstab among them.

    With `links` also if units were only enabled: no start needs that, but systemctl warns about it.
    """
    if UNREAD.exists() or (links and LINKED.exists()):
        run("systemctl", "daemon-reload")
        UNREAD.unlink(missing_ok=True)
        LINKED.unlink(missing_ok=True)


def enable(*units: str) -> None:
    """Enable the units that have no link in WANTED yet, so that systemd starts them at each boot."""
    if missing := [unit for unit in units if not (WANTED / unit).is_symlink()]:
        LINKED.touch()
        run("systemctl", "enable", "--quiet", "--no-reload", *missing)


def service(name: str, *, settings: str, block: bool = True, enabled: bool = True) -> bool:
    """Enable the unit `name`, and start or restart it unless it runs with `settings`; return whether it was.

    `settings` is the text of all that the unit reads at its start. Its hash is stored after the start: if the set-up is
    killed between writing a file and restarting the daemon, the next run restarts it. With `block=False` it does not
    wait for the start, so that slow daemons start in parallel. `enabled=False` is for a unit that systemd must not
    start at a boot, because the caller does.
    """
    reload_units()
    digest = hashlib.sha256(settings.encode()).hexdigest()
    stored = STARTED / name
    (state,) = _unit_states(name)
    if (state["UnitFileState"] in ENABLED) != enabled:
        LINKED.touch()
        run("systemctl", "enable" if enabled else "disable", "--quiet", "--no-reload", name)
    active = state["ActiveState"] in RUNNING
    if active and stored.exists() and stored.read_text() == digest:
        return False
    if state["ActiveState"] in ("failed", "activating"):
        run("systemctl", "reset-failed", name)  # also resets its count of restarts
    # A unit that systemd is starting, as at a boot, may have read its files before the set-up wrote them. `start` would
    # only wait for that start.
    verb = "restart" if active or state["ActiveState"] == "activating" else "start"
    run("systemctl", verb, *([] if block else ["--no-block"]), name)
    write(stored, digest, quiet=True)
    log(f"{'restarted' if active else 'started'} {name}")
    return True


def restarts(name: str) -> int:
    """Return the number of automatic restarts of the unit `name` since its last manual start (NRestarts)."""
    count = run("systemctl", "show", "--property=NRestarts", "--value", name).strip()
    return int(count) if count.isdigit() else 0


def forget(name: str) -> None:
    """Make the next call of `service` restart the unit `name`, even if its settings are the same."""
    (STARTED / name).unlink(missing_ok=True)


def stop_services(*names: str) -> None:
    """Disable and stop these units. Units that are not installed are ignored."""
    for name, state in zip(names, _unit_states(*names), strict=True):
        if state["UnitFileState"] in ENABLED or state["ActiveState"] in RUNNING:
            run("systemctl", "disable", "--now", "--quiet", name)
            log(f"stopped {name}")


def _unit_states(*names: str) -> list[dict[str, str]]:
    """Return ActiveState and UnitFileState of each unit, from one call of systemctl."""
    text = run("systemctl", "show", "--property=ActiveState,UnitFileState", *names)
    return [dict(line.split("=", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]


def wait(
    what: str, test: Callable[[], bool], *, seconds: float, interval: float = 0.1, hint: str = "", unit: str = ""
) -> None:
    """Wait until `test()` is true.

    Raises SetupError after `seconds`. Its text has `what`, `hint` (where to look then), and the last lines of the
    journal of `unit`.
    """
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            words = f"{what} did not come within {seconds:.0f} s" + (f"; {hint}" if hint else "")
            raise SetupError(words + (f":\n{journal(unit)}" if unit else ""))
        time.sleep(interval)


def listens(port: int) -> bool:
    """Return whether a program on this machine listens on a TCP port. It takes far less time than a client command."""
    try:
        socket.create_connection((socket.gethostname(), port), timeout=1).close()
    except OSError:
        return False
    return True


def journal(unit: str, lines: int = 10, *, timeout: float = 20) -> str:
    """Return the last lines that a unit wrote to the journal, or the reason why they can't be read."""
    try:
        command = ("journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={lines}", f"--unit={unit}")
        return run(*command, timeout=timeout).strip()
    except SetupError as error:
        return str(error)


SHARED = Path("/opt/apps")


def protect_shared(path: Path) -> None:
    """Ensure that only root can replace a folder below SHARED.

    Others may be allowed to write to SHARED itself: its sticky bit then keeps them from moving root's files. Raises
    SetupError if a folder on the way to `path` is not root's alone.
    """
    require_root_only(path)
    mode = stat.S_IMODE(SHARED.stat().st_mode)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        SHARED.chmod(mode | stat.S_ISVTX)
        log(f"{SHARED}: others may write there; set its sticky bit, so that they can't move what is root's")


def require_root_only(path: Path) -> None:
    """Raise SetupError if one of the existing folders from SHARED down to `path` is not root's alone."""
    below = path.relative_to(SHARED)
    for part in [SHARED / parent for parent in [*reversed(below.parents), below] if parent != Path()]:
        try:
            status = part.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        why = ""
        if stat.S_ISLNK(status.st_mode):
            why = f"is a symbolic link to {part.readlink()}"
        elif status.st_uid != 0:
            why = f"belongs to uid {status.st_uid}"
        elif status.st_mode & 0o022:
            why = f"may be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
        if why:
            raise SetupError(
                f"{part} {why}, and root of every machine applies what is in it. Look at what is there; if it "
                f"is yours: chown root {part} && chmod 755 {part}; if not, move it away"
            )


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item], *, at_once: int) -> list[Result]:
    """Return the function's result for each item, in the order of the items, called in `at_once` threads."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and most phases do not need it

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))


Part = Callable[[], Any]


class _Reader:
    """A child process that reads parts one after the other, and sends each answer as a line of JSON."""

    def __init__(self, parts: dict[str, Part]) -> None:
        self.names, self.data, self.relieved = list(parts), bytearray(), False
        self.pipe, writing = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
        else:
            _run_reader(list(parts.values()), writing)

    def answers(self) -> dict[str, bytes]:
        """Return the complete answers, by part."""
        return dict(zip(self.names, bytes(self.data).split(b"\n")[:-1], strict=False))

    def receive(self) -> bool:
        """Read from the pipe; return whether the reader has ended or all of its answers are complete."""
        data = os.read(self.pipe, 1 << 16)
        self.data.extend(data)
        return not data or len(self.answers()) == len(self.names)

    def give_up_rest(self) -> list[str]:
        """Return the parts behind the one that it is reading, and expect no answers for them any more."""
        expected = len(self.answers()) + 1
        rest, self.names = self.names[expected:], self.names[:expected]
        self.relieved = self.relieved or bool(rest)
        return rest

    def end(self, *, at_work: bool) -> None:
        """Wait for the end of the process; if it is at work, kill it and the processes that it has started."""
        if at_work:
            # It may end before this, or may not lead its process group yet.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG if at_work else 0)
        os.close(self.pipe)


def side_by_side(
    parts: dict[str, Part], *, seconds: float, together: Collection[str] = (), stuck: float = 1.0
) -> dict[str, Any]:
    """Return what each part returns, or {"error": why} for one that fails or has no answer after `seconds`.

    Child processes read the parts: a thread that waits for a dead file server can't be ended, and would keep this
    process from ending. Starting a process takes longer than most parts, so that one process reads the parts in
    `together`, which usually wait for nothing. If it is at one of them for `stuck` seconds, a process each reads the
    parts behind it.
    """
    alone = [[name] for name in parts if name not in together]
    readers = [_Reader({name: parts[name] for name in row}) for row in ([together, *alone] if together else alone)]
    first, moved = readers[0], time.monotonic()
    end = moved + seconds
    with selectors.DefaultSelector() as waiting:
        for reader in readers:
            waiting.register(reader.pipe, selectors.EVENT_READ, reader)
        while waiting.get_map() and (now := time.monotonic()) < end:
            shared = len(first.names) - len(first.answers()) > 1
            for key, _ in waiting.select(max(0.0, min(end, moved + stuck if shared else end) - now)):
                reader, ended = key.data, key.data.receive()
                if ended:
                    waiting.unregister(reader.pipe)
                if reader is first:
                    moved = -math.inf if ended else time.monotonic()
            if time.monotonic() >= moved + stuck:
                for name in first.give_up_rest():
                    readers.append(_Reader({name: parts[name]}))
                    waiting.register(readers[-1].pipe, selectors.EVENT_READ, readers[-1])
        late = {key.data for key in waiting.get_map().values()}
    found: dict[str, Any] = {}
    for reader in readers:
        reader.end(at_work=reader in late or reader.relieved)
        answers = reader.answers()
        missing = f"no answer within {seconds:.0f} s" if reader in late else "its reader was ended"
        for name in reader.names:
            group, _, key = name.partition(" ")
            place = found.setdefault(group, {}) if key else found
            place[key or name] = json.loads(answers[name]) if name in answers else {"error": missing}
    return found


def _run_reader(parts: list[Part], pipe: int) -> None:
    """Answer each part in the child process of a _Reader, and end the process."""
    os.setsid()
    # A part that hangs must not keep the SSH connection of the caller open.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.environ["TZ"] = "UTC"  # Slurm prints local times without their zone
    try:
        for part in parts:
            line = f"{_answer(part)}\n".encode()
            while line:
                line = line[os.write(pipe, line) :]
    finally:
        os._exit(0)


def _answer(part: Part) -> str:
    try:
        return json.dumps(part())
    except (SetupError, OSError, ValueError, KeyError) as error:
        return json.dumps({"error": str(error)})
    except BaseException as error:  # noqa: BLE001 - the child process must never return into the caller's code
        return json.dumps({"error": f"{type(error).__name__}: {error}"})
