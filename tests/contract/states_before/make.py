"""Makes the states of this folder again, with the program of the commit that they are of:

    git worktree add /tmp/before 748e3c6
    cd /tmp/before && python3 cli/bootstrap.py dev && .venv/bin/python FOLDER/make.py dev a3mega

The embedded engine runs the stacks of the working folder. Nothing is created: `check` and `diff` are the providers'
own, and what a `create` returns is what that commit's harness gives out, so no secret is a real one. Secrets are stored
in plain text, and the files of the set-up are cut: every program has others.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

HERE, PROGRAM = Path(__file__).parent, Path.cwd()
sys.path.insert(0, str(PROGRAM))

from engine.providers import Providers  # noqa: E402 - the working folder's
from engine.providers.base import Foreign, Provider  # noqa: E402
from engine.state import State  # noqa: E402 # pyright: ignore[reportAttributeAccessIssue] - that commit's module
from engine.workspace import Workspace  # noqa: E402
from tests.harness import FAKES, SECRET, SIGNATURE, Recording  # noqa: E402

SETUP = "/usr/local/lib/hpc/"
LONGEST = 20_000
DROPPED = {"created", "modified", "sourcePosition"}
_real = Providers._make


class Fake(Provider):
    """A provider that creates nothing."""

    def __init__(self, real: Provider) -> None:
        self.real = None if isinstance(real, Foreign) else real

    def check(self, ctx: Any, olds: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
        return self.real.check(ctx, olds, news) if self.real else news

    def create(self, ctx: Any, news: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return f"{ctx.name}-id", {**news, **FAKES.get(ctx.type, dict)(news)}


def opened(value: Any, decrypt: Any) -> Any:
    """A value of the state with its secrets in plain text, and long texts cut."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET and "ciphertext" in value:
            inner = opened(json.loads(decrypt(value["ciphertext"])), str)  # one inside another is only marked
            return {SIGNATURE: SECRET, "plaintext": json.dumps(inner)}
        return {key: one[:40] if key.startswith(SETUP) else opened(one, decrypt) for key, one in value.items()}
    if isinstance(value, list):
        return [opened(one, decrypt) for one in value]
    return value[:40] if isinstance(value, str) and len(value) > LONGEST else value


def make(name: str) -> None:
    """Write the state of a stack, and its stack file as it was."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(Providers, "_make", lambda self, family: Fake(_real(self, family))),
        mock.patch("components.gcp.tunnels.opened", Recording().opened),
    ):
        stack = Workspace(PROGRAM, backend=f"file://{folder}", passphrase=lambda: "passphrase").stack(name)
        result = stack.up(lambda _: None)
        if not result.ok:
            raise SystemExit(result.summary)
        deployment = stack.export_state()["deployment"]
        decrypt = State(stack.file, name, "hpc", lambda: "passphrase").crypter.decrypt
    deployment["resources"] = [
        {key: opened(value, decrypt) for key, value in row.items() if key not in DROPPED}
        for row in deployment["resources"]
    ]
    text = json.dumps({"version": 3, "deployment": deployment}, indent=1)
    (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    shutil.copy(PROGRAM / f"Pulumi.{name}.yaml", HERE)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        make(given)
