"""What a stack may switch on for its users, on machines: scrontab, and X11 of jobs."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

CLIENT = """\
import os, socket, struct, subprocess
display = os.environ["DISPLAY"].partition(":")[2].partition(".")[0]
cookie = bytes.fromhex(subprocess.check_output(["xauth", "list", os.environ["DISPLAY"]], text=True).split()[-1])
server = socket.create_connection(("localhost", 6000 + int(display)))
name = b"MIT-MAGIC-COOKIE-1"
server.sendall(struct.pack("<cxHHHHxx", b"l", 11, 0, len(name), len(cookie)) + name + b"\\0\\0" + cookie)
answer = server.recv(4096)
print(socket.gethostname(), answer[8:8 + answer[1]].decode())
"""
"""An X client as far as its first request, with the cookie that it was given (X Window System Protocol, chapter 8)."""
REASON = b"no screen in the test"


@contextmanager
def display() -> Iterator[str]:
    """A display whose server refuses every client that speaks X11, and says why."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    order, major, _, name, data = struct.unpack("<cxHHHHxx", client.recv(12, socket.MSG_WAITALL))
                    client.recv(name + -name % 4 + data + -data % 4, socket.MSG_WAITALL)
                    assert (order, major) == (b"l", 11)
                    padded = REASON + bytes(-len(REASON) % 4)
                    client.sendall(struct.pack("<BBHHH", 0, len(REASON), 11, 0, len(padded) // 4) + padded)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1] - 6000}"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_jobs_x11_reaches_the_users_own_display(many: Cluster, alices_key: Path):
    many.run("sh", "-c", f"cat > ~/client.py <<'END'\n{CLIENT}END\n", user="alice")
    with display() as mine:
        told = many.log_in("alice", alices_key, "login-0", "srun -w many-cpu-0 --x11 python3 client.py", display=mine)
    assert f"many-cpu-0 {REASON.decode()}" in told


def test_users_have_jobs_submitted_again_and_again(many: Cluster):
    mine = ("squeue", "--noheader", "--user=alice", "--format=%A")
    eventually(lambda: many.run(*mine, user="alice") == "", what="the end of the jobs before")
    many.run("sh", "-c", "echo '0 4 * * * /bin/true' | scrontab -", user="alice")
    assert "0 4 * * * /bin/true" in many.run("scrontab", "-l", user="alice")
    number = many.run(*mine, user="alice").split()
    assert len(number) == 1
    assert "CronJob=Yes" in many.run("scontrol", "show", "job", number[0], user="alice")
    many.run("scrontab", "-r", user="alice")
    eventually(lambda: many.run(*mine, user="alice") == "", what="an empty queue")
