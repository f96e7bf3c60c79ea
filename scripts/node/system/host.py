"""Change a machine only where it differs, and say what was changed.

Every step of the set-up goes through these few functions, so that a second run changes nothing, a killed run is
completed by the next, and the log reads as a list of what happened."""

import contextlib
import errno
import fcntl
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
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

# As in cluster/printable.py: control characters but tab and line feed, other line ends, changes of text direction.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
STARTED = Path("/etc/hpc/started")  # for each unit of ours, a hash of what it was started with
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated")  # as `systemctl is-enabled` has it
RUNNING = ("active", "reloading")  # as `systemctl is-active` has it
WANTED = Path("/etc/systemd/system/multi-user.target.wants")
UNREAD = Path("/run/hpc-unread-units")  # there while systemd has not read what was written; a boot reads everything
LINKED = Path("/run/hpc-linked-units")  # there while it has not read which units are enabled


_AGAIN = "then run this again: nothing is half written"
_DISK = {
    errno.ENOSPC: f"make room on its file system, {_AGAIN}",
    errno.EDQUOT: f"make room there or raise the quota, {_AGAIN}",
    errno.EROFS: f"mount its file system for writing (`dmesg` may say why it is not), {_AGAIN}",
    errno.EIO: f"look at the disk or the file server (`dmesg`), {_AGAIN}",
    errno.ESTALE: f"mount its file system again, {_AGAIN}",
}


class SetupError(Exception):
    """A step that cannot go on; the text says what is wrong and what to do."""


def describe_os_error(error: OSError) -> str:
    """Return what is wrong with a file system that can't be written, and what to do; nothing of any other error."""
    if error.errno not in _DISK:
        return ""
    return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}; {_DISK[error.errno]}"


def log(text: str) -> None:
    """Print one line at once: the operator watches this over SSH or on the serial console."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def printable(text: str) -> str:
    r"""`text` with what a terminal would act on written as \x1b or \u2028: names of users' files are printed, too."""
    return HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}" if found[0] > "\xff" else f"\\x{ord(found[0]):02x}", text)


def run(*command: str, stdin: str | None = None, timeout: float = 120, accept: tuple[int, ...] = (0,)) -> str:
    """Run `command` and return its output.

    Raises SetupError with the end of its output when it takes longer than `timeout` seconds, or ends with an exit code
    that is not among those to `accept`.
    """
    timeout *= timeout_factor()
    try:
        # errors: names of users' jobs may be no text.
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
    """The factor of timeouts from HPC_TIMEOUT_FACTOR, which `./hpc status` sets for a busy host."""
    return float(os.environ.get("HPC_TIMEOUT_FACTOR", "1"))


def which(name: str, path: str = "") -> str:
    """The file of a program, as shutil.which finds it on PATH or on `path`; empty where there is none."""
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
    """Make `path` hold `content` with `mode` and `owner` (user and its own group); True when anything had to change.

    A new content replaces the file by rename, so that no reader ever sees half of it, and a secret is never readable by
    others in between: the new file is made 0600 and gets its mode last.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    account = pwd.getpwnam(owner)
    changed = not path.is_file() or path.is_symlink() or path.read_bytes() != data
    if changed:
        import tempfile  # as slow as shutil, and what changes nothing does without

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
    return own(path, mode=mode, owner=owner) or changed


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading in whose place others may have put anything. A link is not followed, a pipe not
    waited for, a device not activated. Raises OSError for all of these.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def take_lock(lock: IO[Any] | int, *, shared: bool = False, seconds: float = 0) -> bool:
    """Take the lock of an open file (flock(2)), trying for some seconds; False where another process holds it."""
    kind, end = fcntl.LOCK_SH if shared else fcntl.LOCK_EX, time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, kind if seconds == math.inf else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
        else:
            return True


def own(path: str | Path, *, mode: int, owner: str = "root") -> bool:
    """Give an existing file or folder its mode and owner; True when either had to change."""
    path = Path(path)
    account = pwd.getpwnam(owner)
    found = path.stat()
    changed = (found.st_uid, found.st_gid) != (account.pw_uid, account.pw_gid)
    if changed:
        os.chown(path, account.pw_uid, account.pw_gid)
    if found.st_mode & 0o7777 != mode:
        path.chmod(mode)
        changed = True
    return changed


def remove(path: str | Path) -> bool:
    """Remove a file; True when there was one."""
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


def folder(path: str | Path, *, mode: int = 0o755, owner: str = "root") -> bool:
    """Make a folder with `mode` and `owner`; True when anything had to change."""
    path = Path(path)
    made = not path.is_dir()
    if made:
        path.mkdir(parents=True)
        log(f"made {path}")
    return own(path, mode=mode, owner=owner) or made


def read_json(path: Path, nothing: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value at `path`; `nothing` where there is no such file, or where it can't be parsed."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return nothing


def link(path: str | Path, target: str) -> bool:
    """Make `path` a symbolic link to `target`; a file or an empty folder in its place gives way."""
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
    """`write` a file that systemd reads; True when it differed.

    systemd reads it before the next unit is started: once for all files, since that takes a tenth of a second and more,
    and also where this set-up is killed in between.
    """
    path = Path(path)
    if not path.is_file() or path.read_text() != content:
        unread_units()
    return write(path, content)


def unread_units() -> None:
    """Note that systemd has to read its files again."""
    UNREAD.touch()


def reload_units(*, links: bool = False) -> None:
    """Have systemd read the files that were written since it last did, /etc/fstab among them.

    With `links` also where units were only enabled: no start needs that, but systemctl warns of it.
    """
    if UNREAD.exists() or (links and LINKED.exists()):
        run("systemctl", "daemon-reload")
        UNREAD.unlink(missing_ok=True)
        LINKED.unlink(missing_ok=True)


def enable(*units: str) -> None:
    """Have systemd start the units at each boot. It is asked for those alone that have no link yet."""
    if missing := [unit for unit in units if not (WANTED / unit).is_symlink()]:
        LINKED.touch()
        run("systemctl", "enable", "--quiet", "--no-reload", *missing)


def service(name: str, *, settings: str, block: bool = True, enabled: bool = True) -> bool:
    """Have the unit `name` enabled and running with `settings`, the text of all that it reads at its start.

    True when it was (re)started. What it was last started with is remembered as a hash, after the start: a set-up that
    was killed between writing a file and restarting its daemon restarts it the next time. With `block=False` the start
    is only asked for, so that slow daemons come up side by side. `enabled=False` is for a unit that systemd is not to
    start by itself at a boot: who calls this does.
    """
    reload_units()
    wanted = hashlib.sha256(settings.encode()).hexdigest()
    known = STARTED / name
    (state,) = _unit_states(name)
    if (state["UnitFileState"] in ENABLED) != enabled:
        LINKED.touch()
        run("systemctl", "enable" if enabled else "disable", "--quiet", "--no-reload", name)
    active = state["ActiveState"] in RUNNING
    if active and known.exists() and known.read_text() == wanted:
        return False
    if state["ActiveState"] in ("failed", "activating"):
        run("systemctl", "reset-failed", name)  # and its count of restarts
    # One that systemd is just starting, at a boot, may have read its files before we wrote them: a `start` would only
    # wait for that one.
    again = active or state["ActiveState"] == "activating"
    run("systemctl", "restart" if again else "start", *([] if block else ["--no-block"]), name)
    write(known, wanted, quiet=True)
    log(f"{'restarted' if active else 'started'} {name}")
    return True


def restarts(name: str) -> int:
    """Number of automatic restarts of the unit `name` since its last manual start (NRestarts)."""
    said = run("systemctl", "show", "--property=NRestarts", "--value", name).strip()
    return int(said) if said.isdigit() else 0


def forget(name: str) -> None:
    """Have the next `service` restart the unit `name`, whatever it runs with now."""
    (STARTED / name).unlink(missing_ok=True)


def stop_services(*names: str) -> None:
    """Have these units neither enabled nor running; units that are not installed are fine."""
    for name, state in zip(names, _unit_states(*names), strict=True):
        if state["UnitFileState"] in ENABLED or state["ActiveState"] in RUNNING:
            run("systemctl", "disable", "--now", "--quiet", name)
            log(f"stopped {name}")


def _unit_states(*names: str) -> list[dict[str, str]]:
    """ActiveState and UnitFileState of each unit, by one call of systemctl."""
    text = run("systemctl", "show", "--property=ActiveState,UnitFileState", *names)
    return [dict(line.split("=", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]


def wait(
    what: str, test: Callable[[], bool], *, seconds: float, interval: float = 0.1, hint: str = "", unit: str = ""
) -> None:
    """Wait until `test()` is true.

    Raises SetupError naming `what` after `seconds`; `hint` says where to look then, and the last lines of the journal
    of `unit` are added.
    """
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            words = f"{what} did not come within {seconds:.0f} s" + (f"; {hint}" if hint else "")
            raise SetupError(words + (f":\n{journal(unit)}" if unit else ""))
        time.sleep(interval)


def listens(port: int) -> bool:
    """Return whether something on this machine listens on a TCP port; far cheaper than asking with a client."""
    try:
        socket.create_connection((socket.gethostname(), port), timeout=1).close()
    except OSError:
        return False
    return True


def journal(unit: str, lines: int = 10, *, timeout: float = 20) -> str:
    """The last lines that a unit wrote to the journal; why they can't be read, where they can't."""
    try:
        command = ("journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={lines}", f"--unit={unit}")
        return run(*command, timeout=timeout).strip()
    except SetupError as error:
        return str(error)


SHARED = Path("/opt/apps")


def protect_shared(path: Path) -> None:
    """See to it that nobody but root can put something else in the place of a folder below SHARED.

    The shared folder itself may be open to others: with the sticky bit they can't move what is root's. Raises
    SetupError where what is there already is not root's alone.
    """
    require_root_only(path)
    mode = stat.S_IMODE(SHARED.stat().st_mode)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        SHARED.chmod(mode | stat.S_ISVTX)
        log(f"{SHARED}: others may write there; set its sticky bit, so that they can't move what is root's")


def require_root_only(path: Path) -> None:
    """Raises SetupError unless every folder from SHARED down to `path`, as far as there are any, is root's alone."""
    below = path.relative_to(SHARED)
    for part in [SHARED / parent for parent in [*reversed(below.parents), below] if parent != Path()]:
        try:
            found = part.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        why = ""
        if stat.S_ISLNK(found.st_mode):
            why = f"is a symbolic link to {part.readlink()}"
        elif found.st_uid != 0:
            why = f"belongs to uid {found.st_uid}"
        elif found.st_mode & 0o022:
            why = f"may be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        if why:
            raise SetupError(
                f"{part} {why}, and root of every machine applies what is in it. Look at what is there; if it "
                f"is yours: chown root {part} && chmod 755 {part}; if not, move it away"
            )


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item], *, at_once: int) -> list[Result]:
    """Return the function's result for each item, in their order; threads call it, `at_once` of them."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and most phases do without

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))


Part = Callable[[], Any]


class _Reader:
    """A process that reads parts one after the other, and sends each as a line of JSON."""

    def __init__(self, parts: dict[str, Part]) -> None:
        self.names, self.data, self.relieved = list(parts), bytearray(), False
        self.pipe, writing = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
        else:
            _send(list(parts.values()), writing)

    def answers(self) -> dict[str, bytes]:
        """The answers that came whole, by part."""
        return dict(zip(self.names, bytes(self.data).split(b"\n")[:-1], strict=False))

    def has_ended(self) -> bool:
        """Take what has come; return whether no more is awaited."""
        more = os.read(self.pipe, 1 << 16)
        self.data.extend(more)
        return not more or len(self.answers()) == len(self.names)

    def leave_rest(self) -> list[str]:
        """Return the parts behind the one that it is at, which are no longer awaited of it."""
        at = len(self.answers()) + 1
        rest, self.names = self.names[at:], self.names[:at]
        self.relieved = self.relieved or bool(rest)
        return rest

    def end(self, *, at_work: bool) -> None:
        """Wait for its end; one that is at work is killed, with what it has started."""
        if at_work:
            # It may end before this, or be its own leader a moment later.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG if at_work else 0)
        os.close(self.pipe)


def side_by_side(
    wanted: dict[str, Part], *, seconds: float, together: Collection[str] = (), stuck: float = 1.0
) -> dict[str, Any]:
    """Return what each part returns, or {"error": why}; after `seconds`, whoever has not answered is left behind.

    Processes, not threads: one that waits for a dead file server can't be ended, and would keep this one from ending.
    A process takes longer than most parts. Those that usually wait for nobody may be read `together`, by one: once it
    has been at one of them for the seconds of `stuck`, processes of their own read those behind it.
    """
    alone = [[name] for name in wanted if name not in together]
    readers = [_Reader({name: wanted[name] for name in row}) for row in ([together, *alone] if together else alone)]
    first, moved = readers[0], time.monotonic()
    end = moved + seconds
    with selectors.DefaultSelector() as waiting:
        for reader in readers:
            waiting.register(reader.pipe, selectors.EVENT_READ, reader)
        while waiting.get_map() and (now := time.monotonic()) < end:
            shared = len(first.names) - len(first.answers()) > 1
            for key, _ in waiting.select(max(0.0, min(end, moved + stuck if shared else end) - now)):
                reader, ended = key.data, key.data.has_ended()
                if ended:
                    waiting.unregister(reader.pipe)
                if reader is first:
                    moved = -math.inf if ended else time.monotonic()
            if time.monotonic() >= moved + stuck:
                for name in first.leave_rest():
                    readers.append(_Reader({name: wanted[name]}))
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


def _send(parts: list[Part], pipe: int) -> None:
    """Be a reader, which ends here."""
    os.setsid()
    # Whoever hangs must not hold the connection of the one who asked.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.environ["TZ"] = "UTC"  # Slurm prints local times and does not say of which zone
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
    except BaseException as error:  # noqa: BLE001 - its process ends after it, and must never return into the caller
        return json.dumps({"error": f"{type(error).__name__}: {error}"})
