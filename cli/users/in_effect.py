"""Users in effect on a running cluster, read on its login machine or in its jail; and the `up` that applies an edit."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cli import ROOT, console
from cli.access import remote
from cli.cluster.cluster import from_outputs
from cli.errors import CliError
from cli.operation.run_options import RunOptions
from cli.stack import outputs, project, stack_config, state_dir
from cluster.config import ClusterConfig
from cluster.config.validators.ssh_key import read_key
from cluster.findings import ConfigError, RefusedError
from cluster.impact.table import effects
from cluster.load import parse_output
from cluster.platforms.capability import Capability

SECONDS = 60
_PROGRAM = ROOT / "scripts" / "users" / "in_effect.py"
_MODULES = ("system/authorized_keys.py", "system/text_block.py")
"""Modules of scripts/node; nothing of it stays on the machine."""
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
    """A user, as the cluster has them."""

    uid: int
    shell: str
    sudo: bool | None
    """None where there is no sudo."""
    keys: Sequence[str]
    """Fingerprints of the keys that may log in; those that the user added as well."""
    account: str = ""
    """The account of jobs without --account; empty if the database does not answer, or has nobody of the name."""
    accounts: Sequence[str] = ()
    qos: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A cluster's users."""

    users: Mapping[str, InEffect] = field(default_factory=dict)
    """The users that were asked for and are there."""
    homes: Mapping[str, int] = field(default_factory=dict)
    """Owners of the directories in /home, by the directory's name."""


def look(stack: str, values: Mapping[str, Any], names: Sequence[str]) -> Seen:
    """Ask a cluster's login machine. Raises CliError: it is not up, does not answer, or its answer can't be read."""
    cluster = from_outputs(stack, values, Capability.RUN)
    login = cluster.target(None)
    stdin = json.dumps({"files": dict(_files()), "asked": {"users": list(names)}})
    line = f"python3 -c {shlex.quote(_START)}"
    said = remote.output(login, cluster.admin_key, line, stdin=stdin, seconds=SECONDS)
    try:
        return parse(json.loads(said))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CliError(f"{login.name}: what it printed of its users can't be read") from None


def parse(said: Mapping[str, Any]) -> Seen:
    """Return what the program on the machine printed. Raises KeyError, TypeError, ValueError: it is of another form."""
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
            uid=int(row["uid"]),
            shell=str(row["shell"]),
            sudo=row["sudo"],
            keys=[fingerprint(line) for line in row["keys"]],
            account=defaults.get(name, ""),
            accounts=accounts.get(name, ()),
            qos=list(qos.get(name, ())),
        )
        for name, row in said["users"].items()
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


class Running:
    """The cluster of a stack, if it is up."""

    def __init__(self, stack: str, config_file: Path | None) -> None:
        self.stack, self._config_file = stack, config_file
        self.config: ClusterConfig | None = None
        """What it runs with; None if it is not up, or its state can't be read here."""
        self._why = f"stack {stack} is not up."
        try:
            self.config = parse_output(outputs.read(stack, show_secrets=True)["config"])
        except (CliError, ConfigError) as error:
            self._why = str(error)
        except KeyError:  # never finished, or of an older version
            pass

    def has(self, name: str) -> bool:
        """Return whether it was given a user of this name."""
        return self.config is not None and any(user.name == name for user in self.config.users)

    def may_have(self, name: str) -> bool:
        """`has`; also where that can't be known here: the state can't be read, or no `up` has ended."""
        if self.config is not None:
            return self.has(name)
        return not state_dir.on_files(self.stack) or self.stack in project.workspace(self.stack).stacks()

    def seen(self) -> Seen:
        """Return what is on it; nothing if it is not up or does not answer, which is printed."""
        if self.config is None:
            return Seen()
        try:
            return look(self.stack, outputs.read(self.stack, show_secrets=True), [])
        except CliError as error:
            console.note(f"The cluster was not asked for uids of home directories: {error}")
            return Seen()

    def confirm_other_edits(self, name: str, *, yes: bool) -> None:
        """Before the file is edited: `up` applies all that it says. Raises CliError: somebody has edited more than this
        user, and that is not to be applied, or nobody can be asked."""
        if self.config is None:
            return
        file = project.require_file(self.stack, self._config_file)
        mine = (f"users.{name}", f"former_users.{name}")
        others = [
            change
            for change in effects(self.config, stack_config.parse(file), self.stack)
            if not f"{change.path}.".startswith(tuple(f"{path}." for path in mine))
        ]
        if not others:
            return
        console.note(f"{file.path.name} has other edits, which `up` applies as well:")
        for change in others:
            console.note(f"  {change.effect.value}: {change.shown}")
        if not yes:
            no = "nothing was changed. To edit the file only: --no-apply"
            hint = "--yes, or --no-apply. Nothing was changed."
            console.confirm("Apply them too?", doing="applying them", no=no, hint=hint)

    def apply(self, chosen: RunOptions) -> int:
        """Run `up`; its exit code. However it ends, the file stays edited, and how to go on is printed. A cluster that
        is not up is not created by this."""
        if self.config is None:
            console.note(f"Not applied: {self._why}")
            return 0
        from cli.operation import operation  # slow to import, and most commands of users run nothing

        code = 1
        try:
            code = operation.run("up", self.stack, chosen)
        finally:
            if code != 0:
                console.note(f"The stack file is edited. To apply it: {self.command}")
        return code

    @property
    def command(self) -> str:
        """The `up` of the stack, as somebody types it."""
        return f"./hpc up {self.stack}" + (f" --config-file {self._config_file}" if self._config_file else "")
