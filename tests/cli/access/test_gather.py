"""Asking many machines at once: each answers for itself, none keeps the others waiting."""

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cli.access import remote
from cli.access.remote import UNREACHED, capture, gather
from cli.cluster.cluster import from_outputs
from tests.cli.conftest import OUTPUTS
from tests.waiting import PATIENCE

CLUSTER = from_outputs("dev", OUTPUTS)
# The last two words are where and what; what comes in goes out again behind the name.
ECHO = 'for word; do before=$last; last=$word; done; printf "%s|%s|" "$before" "$last"; cat; echo oops >&2; exit 3'


def test_every_target_gets_the_line_and_standard_input(tool: Callable[[str, str], Path]) -> None:
    tool("ssh", ECHO)
    answers = gather(CLUSTER.targets.values(), CLUSTER.admin_key, "id -u", stdin="given", seconds=300)
    assert {name: done.out for name, done in answers.items()} == {
        name: f"{name}|id -u|given" for name in CLUSTER.targets
    }
    assert {(done.code, done.err, done.reached) for done in answers.values()} == {(3, "oops\n", True)}


def test_a_target_that_hangs_times_out_and_the_others_return_results(tool: Callable[[str, str], Path]) -> None:
    tool("ssh", 'case "$*" in *dev-cpu-0*) exec sleep 600 ;; *) echo here ;; esac')
    # Nothing listens on port 1.
    targets = [replace(target, address="127.0.0.1", port=1) for target in CLUSTER.targets.values()]
    answers = gather(targets, CLUSTER.admin_key, "true", seconds=6)
    assert [name for name, done in answers.items() if not done.reached] == ["dev-cpu-0"]
    assert answers["dev-cpu-0"].err == "no answer within 6 s"
    assert answers["dev-controller"].out == "here\n"


def test_few_machines_of_this_host_run_the_line_in_parallel(
    tool: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_PARALLEL_ON_THIS_HOST", 2)
    tool("ssh", f"cd {tmp_path}; echo $$ >$$.asked; ls *.asked | wc -l; sleep 0.2; rm $$.asked")
    targets = [replace(CLUSTER.target(None), name=f"dev-{number}", here=True) for number in range(8)]
    answers = gather(targets, CLUSTER.admin_key, "true", seconds=300)
    assert {int(done.out) for done in answers.values()} <= {1, 2}


def test_a_machine_of_this_host_that_hangs_does_not_block_the_others(
    tool: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_PARALLEL_ON_THIS_HOST", 1)
    monkeypatch.setattr(remote, "_SLOT_SECONDS", 0.05)
    there = tmp_path / "there"
    tool("ssh", f'case "$*" in *dev-7*) touch {there} ;; esac; until [ -e {there} ]; do sleep 0.05; done')
    targets = [replace(CLUSTER.target(None), name=f"dev-{number}", here=True) for number in range(8)]
    answers = gather(targets, CLUSTER.admin_key, "true", seconds=300)
    assert {done.code for done in answers.values()} == {0}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo; exec sleep 600", "no answer within 3 s, although SSH let us in"),
        ("exec sleep 600", "no answer within 3 s from SSH, although port {port} accepts connections"),
        ("echo 'Connection timed out during banner exchange' >&2; exit 255",
         "no answer within 3 s from SSH, although port {port} accepts connections"),
        ("echo 'Connection closed by 127.0.0.1 port 22' >&2; exit 255", ""),
    ],
)  # fmt: skip
def test_a_target_that_accepts_connections_but_times_out_is_late(
    tool: Callable[[str, str], Path], script: str, why: str
) -> None:
    tool("ssh", script)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = capture(replace(CLUSTER.target(None), address="127.0.0.1", port=port), "key", "true", seconds=3)
    assert (done.reached, done.late) == (False, bool(why))
    assert done.err.strip() == why.format(port=port) or not why


@pytest.mark.parametrize(("banner", "seconds"), [(b"", 300), (b"SSH-2.0-OpenSSH_9.2\r\n", 3)])
def test_real_ssh_times_out_on_a_server_that_stops_during_the_handshake(banner: bytes, seconds: int) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(banner)
            done.wait()

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        thread = threading.Thread(target=serve)
        thread.start()
        target = replace(CLUSTER.target(None), address="127.0.0.1", port=server.getsockname()[1])
        began = time.monotonic()
        answer = gather([target], "key", "true", seconds=seconds, connect_seconds=1)[target.name]
        done.set()
        thread.join()
    assert time.monotonic() - began < 300, "ssh ends by itself where it waits for a banner"
    assert (answer.reached, answer.late) == (False, True), answer.err


def test_every_host_key_is_pinned(tool: Callable[[str, str], Path], tmp_path: Path) -> None:
    log = tmp_path / "known"
    tool("ssh", f'cat "$(sed -n "s/^ *UserKnownHostsFile //p" "$2")" >{log}')
    capture(CLUSTER.target("controller"), CLUSTER.admin_key, "true")
    assert log.read_text() == "dev-controller ssh-ed25519 AAA1\n"


@pytest.mark.parametrize("code", [0, UNREACHED])
def test_exit_code_255_of_a_command_is_distinguished_from_one_of_ssh(
    tool: Callable[[str, str], Path], code: int
) -> None:
    tool("ssh", f"exit {code}")
    assert capture(CLUSTER.target(None), CLUSTER.admin_key, "true").reached == (code == 0)
