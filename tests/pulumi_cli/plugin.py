"""What plugins of the Pulumi CLI share: a gRPC server that ends with the CLI, however that ends."""

import os
import select
import signal
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

WORKERS = 128
"""Threads of a server: a step holds one until it ends."""
_LARGEST = 400 << 20
"""Bytes of a message, as of the SDK and the CLI (sdk/python/lib/pulumi/runtime/_grpc_settings.py)."""


def end_with_cli() -> None:
    """End this process when its parent, the CLI, says so by SIGINT, or has ended."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    cli = os.pidfd_open(os.getppid())

    def watch() -> None:
        select.select([cli], [], [])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def serve(add: Callable[[Any], None]) -> None:
    """Serve what `add` adds to a server, and print its port, as plugins do."""
    end_with_cli()
    server = grpc.server(futures.ThreadPoolExecutor(WORKERS), options=[("grpc.max_receive_message_length", _LARGEST)])
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    os.write(1, f"{port}\n".encode())
    server.wait_for_termination()
