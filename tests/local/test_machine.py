"""A machine takes nothing else from the host; one that does not answer is given up with its console's end."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from components.local.host import machine
from components.local.host.machine import Design, console_tail, nspawn_command
from components.local.host.paths import HostError
from components.local.host.process import Process
from tests.waiting import PATIENCE


def test_colours_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"first\r\n\r\n[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mssh\x1b[0m.\r\n\xff\n")
    assert console_tail(path, lines=2) == ["[  OK  ] Started ssh.", "\ufffd"]


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert console_tail(path, lines=1) == ["line 99999"]


def test_no_console_is_no_error(tmp_path: Path) -> None:
    assert console_tail(tmp_path / "none") == []


def test_a_machine_uses_nothing_of_the_host_but_bound_folders() -> None:
    design = Design(
        root=Path("/m"), images=Path("/i"), stack="dev", name="dev-cpu-0", address="10.77.0.9", prefix=20, image="x"
    )
    made = nspawn_command(design, "0" * 32)
    assert made[0] == "systemd-nspawn"
    assert {"--resolv-conf=off", "--timezone=off", "--link-journal=no", "--settings=no", "--register=no"} <= set(made)
    assert "--hostname=dev-cpu-0" in made
    assert [item for item in made if "bind" in item] == [
        "--bind=/m/stacks/dev/shared:/srv/shared",
        "--bind-ro=/m/stacks/dev/hosts:/etc/hosts",
    ]


@pytest.fixture
def me(monkeypatch: pytest.MonkeyPatch) -> Process:
    """This very process as a machine whose sshd listens, and which may take a second to greet."""
    monkeypatch.setattr(machine, "_listens", lambda _process: True)
    monkeypatch.setattr(machine, "SSH_SECONDS", 3.0)
    process = Process.of(os.getpid())
    assert process is not None
    return process


@pytest.fixture
def console(tmp_path: Path) -> Path:
    path = tmp_path / "console.log"
    path.write_text("[  OK  ] Started ssh.service\nsshd: out of entropy\n")
    return path


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listens in the place of every port 22."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect, at = socket.create_connection, server.getsockname()
        monkeypatch.setattr(machine.socket, "create_connection", lambda _address, timeout: connect(at, timeout))
        yield server


def _given_up(process: Process, console: Path) -> str:
    began = time.monotonic()
    with pytest.raises(HostError) as caught:
        machine.wait_for_ssh("dev-cpu-0", process, "10.7.0.9", console)
    assert time.monotonic() - began < PATIENCE
    return str(caught.value)


def test_a_machine_that_accepts_connections_without_a_greeting_times_out(
    me: Process, console: Path, listener: socket.socket
) -> None:
    assert _given_up(me, console) == (
        "machine dev-cpu-0: its SSH server is up, but does not greet this host at 10.7.0.9 port 22 (timed out); "
        "the last lines of its console:\n  [  OK  ] Started ssh.service\n  sshd: out of entropy"
    )


@pytest.mark.parametrize(
    ("words", "problem"), [(b"HTTP/1.1 400", "it sent b'HTTP'"), (b"", "it closed the connection")]
)
def test_a_machine_with_another_greeting_times_out(
    me: Process, console: Path, listener: socket.socket, words: bytes, problem: str
) -> None:
    def answer() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                connection.sendall(words)
                connection.close()

    Thread(target=answer, daemon=True).start()
    assert f"({problem}); the last lines" in _given_up(me, console)


def test_a_machine_with_an_ssh_greeting_is_ready(
    me: Process, console: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SSH_SECONDS", PATIENCE)
    Thread(target=lambda: listener.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), daemon=True).start()
    machine.wait_for_ssh("dev-cpu-0", me, "10.7.0.9", console)
