"""`./hpc` in processes that are forked off one that has imported its modules and made the key of the states.

A start of Python, the program's imports and the key of a state's passphrase take half a second of a processor, an `up`
twice that; tests start some five hundred commands. What runs is the same from `cli.app.main` on, but for the salt of a
new state: it is the same for all, as the passphrase that tests give is, so that there is one key.
"""

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from base64 import b64decode
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).relative_to(ROOT)
MODULES = (
    "accounting", "drift", "health", "jobs.check", "logs", "nodes", "ssh", "state", "status", "up",
    "user",
)  # fmt: skip
"""Of cli/commands: what tests start often."""
PASSPHRASE, SALT = "correct horse", b"8 bytes!"
CODES: list[int] = []
"""The code that the command in this process has ended with."""
KEYED: set[Path] = set()
"""States whose key was made: each has two megabytes to read."""
PROGRAM = ("cli.operation.operation", "components.deploy", "components.local.deploy", "pulumi_command.remote")


class Program:
    """The process that commands of the checkout `root` are forked off, with modules that it imports; it ends with this
    one."""

    def __init__(self, root: Path = ROOT, *modules: str) -> None:
        self._commands: set[int] = set()
        self._interrupted = signal.signal(signal.SIGINT, self._interrupt)
        self._folder = tempfile.TemporaryDirectory()
        self._address = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._address)
            listener.listen(64)
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, str(root / HERE), str(listener.fileno()), *modules],
                cwd=root, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def run(self, arguments: list[str], env: dict[str, str], timeout: float) -> "subprocess.CompletedProcess[str]":
        """./hpc with these arguments, as subprocess.run has it."""
        with (
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
        ):
            connection.connect(self._address)
            request = json.dumps({"arguments": arguments, "env": env}).encode()
            socket.send_fds(connection, [request], [out.fileno(), err.fileno()])
            pid = int(connection.recv(100))
            self._commands.add(pid)
            connection.settimeout(timeout)
            try:
                code = int(connection.recv(100))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            finally:
                self._commands.discard(pid)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(["./hpc", *arguments], code, out.read(), err.read())

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Kill the commands that run, and go on with the interrupt: what threads wait for ends, and what they made is
        removed with the tests' root."""
        for pid in [*self._commands]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if callable(self._interrupted):
            self._interrupted(number, frame)

    def close(self) -> None:
        signal.signal(signal.SIGINT, self._interrupted)
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def serve(listener: socket.socket) -> None:
    """Fork a process for each connection, which forks the command and says how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        message, files, _, _ = socket.recv_fds(connection, 1 << 18, 2)
        request = json.loads(message)
        make_key(Path(request["env"]["HPC_HOME"]), request["arguments"])
        if os.fork() == 0:
            end_with_parent()
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pid = os.fork()
            if pid == 0:
                end_with_parent()
                connection.close()
                begin(request["arguments"], request["env"], files)
            connection.send(str(pid).encode())
            connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os._exit(0)
        for file in (*files, connection.detach()):
            os.close(file)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent has ended: no command outlives killed tests."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG (linux/prctl.h)


def make_key(home: Path, arguments: list[str]) -> None:
    """Make the key of a stack's state, where it has one, for all commands to come."""
    from engine.state import crypter  # noqa: PLC0415

    names = (*arguments[:3], f"{arguments[1]}-rehearsal" if arguments[1:] else "")
    for file in {home / f".pulumi/stacks/hpc/{name}.json" for name in names} - KEYED:
        with suppress(OSError, ValueError, KeyError):
            state = json.loads(file.read_text())
            salt = state["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"]
            passphrase = (home / "passphrase").read_text().rstrip("\r\n")
            crypter.derive(passphrase, b64decode(salt.split(":")[1]), crypter.ROUNDS).wait()
            KEYED.add(file)


def share_key() -> None:
    """Make the key of states that begin with PASSPHRASE, and give all new ones its salt."""
    from engine.state import crypter  # noqa: PLC0415

    made = crypter.Crypter.__init__

    def make(self: crypter.Crypter, passphrase: crypter.Passphrase, salt: str = "") -> None:
        made(self, passphrase, salt)
        self._new_salt = SALT

    crypter.Crypter.__init__ = make
    crypter.derive(PASSPHRASE, SALT, crypter.ROUNDS).wait()


def begin(arguments: list[str], env: dict[str, str], files: list[int]) -> None:
    """Become the command, as `python cli` does, and end with its code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for file, number in zip(files, (1, 2), strict=True):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(env, HPC_PROGRAM=str(ROOT / "hpc"))
    sys.argv = [str(ROOT / "cli"), *arguments]
    from cli.app import main  # noqa: PLC0415

    try:
        main()
        sys.exit(0)
    except SystemExit as ended:
        if isinstance(ended.code, int):
            CODES.append(ended.code)
        raise


def end() -> None:
    """End as the last of what a process does at its exit, before the interpreter clears all that it holds.

    That copies the pages shared with the parent: 0.04 s of a processor, and 0.6 where a provider's package is among
    them.
    """
    if CODES:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(CODES[0])


if __name__ == "__main__":
    atexit.register(end)
    gc.set_threshold(200_000)
    sys.path[0] = str(ROOT)
    for module in (*(f"cli.commands.{name}" for name in MODULES), *PROGRAM, *sys.argv[2:]):
        import_module(module)
    share_key()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
