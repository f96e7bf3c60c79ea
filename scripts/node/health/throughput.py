"""Measures TCP throughput between two nodes, in both directions: `throughput.py SECONDS HOST HOST`, as a task on each.

The first host prints {"there": Mbit/s, "back": Mbit/s}, each measured by the receiver. It runs without the set-up's
other modules.
"""

import json
import os
import socket
import sys
import time

PORT = 20_000  # plus a part of the job's number, so that two jobs on one node use two ports
CHUNK = 1 << 20
TIMEOUT = 30  # seconds until the other task must be there


def main(arguments: list[str]) -> int:
    """Run one end of the measurement; return the exit code."""
    seconds, first, second = float(arguments[0]), arguments[1], arguments[2]
    port = PORT + int(os.environ.get("SLURM_JOB_ID", "0")) % 10_000
    if os.environ.get("SLURMD_NODENAME", socket.gethostname()) == first:
        print(json.dumps(client(second, port, seconds)))
    else:
        server(first, port, seconds)
    return 0


def client(peer: str, port: int, seconds: float) -> dict[str, float]:
    """Send, then receive, then read the result of the other end; return both results."""
    with _connect(peer, port) as sending:
        _send(sending, seconds)
    with _connect(peer, port) as receiving:
        back = _receive(receiving)
    with _connect(peer, port) as result:
        there = float(result.makefile().readline())
    return {"there": round(there, 1), "back": round(back, 1)}


def server(peer: str, port: int, seconds: float) -> None:
    """Receive, then send, then write the result: three connections, accepted from the peer only."""
    with socket.create_server(("", port)) as listening:
        listening.settimeout(TIMEOUT + 2 * seconds)
        with _accept(listening, peer) as receiving:
            there = _receive(receiving)
        with _accept(listening, peer) as sending:
            _send(sending, seconds)
        with _accept(listening, peer) as result:
            result.sendall(f"{there}\n".encode())


def _connect(peer: str, port: int) -> socket.socket:
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            return socket.create_connection((peer, port), timeout=TIMEOUT)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _accept(listening: socket.socket, peer: str) -> socket.socket:
    """Accept a connection from the peer, and close others."""
    allowed = {str(row[4][0]) for row in socket.getaddrinfo(peer, None)}
    while True:
        accepted, address = listening.accept()
        if address[0] in allowed:
            accepted.settimeout(TIMEOUT)
            return accepted
        accepted.close()


def _send(to: socket.socket, seconds: float) -> None:
    data, end = bytes(CHUNK), time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            to.sendall(data)
    except TimeoutError:
        pass  # not even one chunk was sent in time: the receiver measures what arrived


def _receive(from_: socket.socket) -> float:
    """Receive until the end; return the Mbit/s from the first byte to the last."""
    buffer, received = memoryview(bytearray(CHUNK)), from_.recv(1)
    began, count = time.monotonic(), len(received)
    try:
        while got := from_.recv_into(buffer):
            count += got
    except (TimeoutError, ConnectionError):
        pass
    return count * 8 / 1e6 / max(time.monotonic() - began, 1e-3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
