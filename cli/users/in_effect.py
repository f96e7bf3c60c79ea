"""What is in effect of users on a cluster that is up, read on its login machine or in its jail."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cli import ROOT
from cli.access import remote
from cli.cluster.cluster import Cluster, from_outputs
from cli.errors import CliError
from cluster.config.validators.ssh_key import read_key
from cluster.findings import RefusedError
from cluster.platforms.capability import Capability

SECONDS = 60
_PROGRAM = ROOT / "scripts" / "users" / "in_effect.py"
_MODULES = ("system/authorized_keys.py", "system/text_block.py")
"""Of scripts/node; nothing of it stays on the machine."""
_START = """
import json, pathlib, subprocess, sys, tempfile
given = json.load(sys.stdin)
with tempfile.TemporaryDirectory(prefix="hpc-") as folder:
    for name, text in given["files"].items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, "-B", folder + "/in_effect.py", folder]
    sys.exit(subprocess.run(command, input=json.dumps(given["asked"]).encode(), check=False).returncode)
"""


@dataclass(frozen=True, kw_only=True)
class InEffect:
    """One user, as the cluster has them."""

    uid: int
    shell: str
    sudo: bool | None
    """None where there is no sudo."""
    keys: Sequence[str]
    """Fingerprints of the keys that may log in; those that the user added as well."""
    account: str = ""
    """Where jobs are charged without --account; empty if the database does not answer, or has nobody of the name."""
    accounts: Sequence[str] = ()
    qos: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A cluster's users."""

    users: Mapping[str, InEffect] = field(default_factory=dict)
    """Those that were asked for and are there."""
    homes: Mapping[str, int] = field(default_factory=dict)
    """Owners of the directories in /home, by the directory's name."""


def look(stack: str, outputs: Mapping[str, Any], names: Sequence[str]) -> Seen:
    """Ask a cluster. Raises CliError: it is not up, does not answer, or its answer can't be read."""
    return ask(from_outputs(stack, outputs, Capability.RUN), names)


def ask(cluster: Cluster, names: Sequence[str]) -> Seen:
    """Ask a cluster's login machine. Raises CliError as `look`."""
    login = cluster.target(None)
    stdin = json.dumps({"files": dict(_files()), "asked": {"users": list(names)}})
    line = f"python3 -c {shlex.quote(_START)}"
    done = remote.capture(login, cluster.admin_key, line, stdin=stdin, seconds=SECONDS)
    if done.code:
        error = (done.err or done.out).strip() or f"exit code {done.code}"
        raise CliError(f"{login.name}: {error if done.reached else f'does not answer: {error}'}")
    try:
        return parse(json.loads(done.out))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CliError(f"{login.name}: what it printed of its users can't be read") from None


def parse(said: Mapping[str, Any]) -> Seen:
    """What the program on the machine printed. Raises KeyError, TypeError, ValueError: it is of another form."""
    defaults = {row[0]: row[1] for row in said["defaults"] or ()}
    accounts: dict[str, list[str]] = {}
    qos: dict[str, dict[str, None]] = {}
    for user, account, allowed, first in said["associations"] or ():
        if user:
            accounts.setdefault(user, []).append(account)
            names = [first, *allowed.split(",")] if first else allowed.split(",")
            qos.setdefault(user, {}).update(dict.fromkeys(filter(None, names)))
    users = {
        name: InEffect(
            uid=int(one["uid"]),
            shell=str(one["shell"]),
            sudo=one["sudo"],
            keys=[fingerprint(line) for line in one["keys"]],
            account=defaults.get(name, ""),
            accounts=accounts.get(name, ()),
            qos=list(qos.get(name, ())),
        )
        for name, one in said["users"].items()
    }
    return Seen(users=users, homes={name: int(uid) for name, uid in said["homes"].items()})


def fingerprint(line: str) -> str:
    """The fingerprint of a line of authorized_keys; of one that has options or is none, that it is such."""
    try:
        return read_key(line).fingerprint
    except RefusedError:
        return "(another line)"


@cache
def _files() -> Mapping[str, str]:
    node = ROOT / "scripts" / "node"
    return {**{name: Path(node, name).read_text() for name in _MODULES}, _PROGRAM.name: _PROGRAM.read_text()}
