"""The language host `python` of the Pulumi CLI, as far as a program needs it: LanguageRuntime of the SDK's protos.

The CLI's own (sdk/python/cmd/pulumi-language-python of github.com/pulumi/pulumi, v3.274.1) is in no Go module that the
proxy serves. As there, a program runs in a process of its own, gets its configuration in variables, and prints to the
host's streams.
"""

import json
import os
import subprocess
from typing import Any

from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from tests.pulumi_cli.plugin import serve
from tests.pulumi_cli.run_program import SHOWN

PROGRAM = "run-python-program"
"""The command that runs a program; it is on PATH (tests/pulumi_cli/program.py)."""


class Python(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs programs. The SDK sends a plugin's version with each resource, so none has to be listed before."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's names
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version="3.274.1")

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:  # noqa: N802
        return language_pb2.GetRequiredPackagesResponse()

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        settings = {
            "project": request.project,
            "stack": request.stack,
            "monitor": request.monitor_address,
            "engine": self._engine,
            "parallel": request.parallel,
            "dry_run": request.dryRun,
            "organization": request.organization,
            "root_directory": request.info.root_directory,
        }
        config = {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        done = subprocess.run(
            [PROGRAM, json.dumps(settings), request.pwd],
            env=os.environ | config, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode in (0, SHOWN):
            return language_pb2.RunResponse(bail=bool(done.returncode))
        return language_pb2.RunResponse(error=f"the program ended with {done.returncode}")


def main(*arguments: str) -> None:
    """Serve until the CLI ends. The last argument is the address of its engine."""
    host = Python(arguments[-1])
    serve(lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server))
