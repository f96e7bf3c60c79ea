"""What plugins of the Pulumi CLI share: a gRPC server."""

import os
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

WORKERS = 128
"""Threads of a server: a step holds one until it ends."""
_LARGEST = 400 << 20
"""Bytes of a message, as of the SDK and the CLI (sdk/python/lib/pulumi/runtime/_grpc_settings.py)."""


def serve(add: Callable[[Any], None]) -> None:
    """Serve what `add` adds to a server, and print its port, as plugins do."""
    server = grpc.server(futures.ThreadPoolExecutor(WORKERS), options=[("grpc.max_receive_message_length", _LARGEST)])
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    os.write(1, f"{port}\n".encode())
    server.wait_for_termination()
