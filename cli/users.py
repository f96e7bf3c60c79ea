"""Users of a stack: their keys, edits of the stack file, and what is in effect on a running cluster."""

import difflib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from cli import ROOT, console
from cli.access import remote
from cli.cluster.cluster import from_outputs
from cli.errors import CliError
from cli.operation.run_options import RunOptions
from cli.stack import edits, outputs, project, stack_config, state_dir
from cli.stack.edits import line_of_item, with_item
from cli.stack.stackfile import StackFile
from cluster import people
from cluster.capability import Capability
from cluster.config import ClusterConfig
from cluster.config.ssh_key import KEY_TYPES, SshKey, read_key
from cluster.config.validators import REGULAR_UIDS
from cluster.findings import ROOT as SECTION
from cluster.findings import ConfigError, Finding, RefusedError, listing, show
from cluster.impact.table import effects
from cluster.load import parse, parse_output
from cluster.regular_file import refuse_special
from components.slurm.payload import run_sent

_LONGEST_FILE = 1 << 20
_PRIVATE = ("PRIVATE KEY", "PuTTY-User-Key-File", "b3BlbnNzaC1rZXktdjE")
"""Texts in private keys: PEM's and OpenSSH's, PuTTY's, and OpenSSH's first bytes in base64 ("openssh-key-v1")."""
_SSH2 = "---- BEGIN SSH2 PUBLIC KEY"
_GIVE_KEY = "give the line of ~/.ssh/id_ed25519.pub, or the file"


def read_keys(values: Sequence[str]) -> tuple[list[SshKey], list[Finding]]:
    """Return the keys that the values of --key name, each once and in their order, and every error."""
    keys: dict[str, SshKey] = {}
    errors: list[Finding] = []
    for value in dict.fromkeys(values):
        for key in _keys(value):
            if isinstance(key, Finding):
                errors.append(key)
            else:
                keys.setdefault(key.blob, key)
    return list(keys.values()), errors


def _keys(given: str) -> Iterator[SshKey | Finding]:
    """Read the keys of one value of --key: a key, a file, or - for standard input."""
    if given.partition(" ")[0] in KEY_TYPES:
        where, text = "--key", given
    elif given == "-":
        where, text = "--key -", sys.stdin.read(_LONGEST_FILE)
    else:
        where = f"--key {'FILE' if any(mark in given for mark in _PRIVATE) else given}"
        try:
            path = Path(given).expanduser()
            refuse_special(path)
            with path.open("rb") as file:
                text = file.read(_LONGEST_FILE).decode(errors="replace")
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no path"
            yield _error("key-file", where, str(why or error), "a file that can be read", _GIVE_KEY)
            return
    if any(mark in text for mark in _PRIVATE):
        todo = f"give {given}.pub" if Path(f"{given}.pub").exists() else "give the .pub file beside it"
        yield _error("key-private", where, "a private key (not shown)", "a public key", todo)
        return
    if _SSH2 in text:
        todo = f"convert it: ssh-keygen -i -f {given} >key.pub"
        yield _error("key-format", where, "a public key in SSH2's format (RFC 4716)", "OpenSSH's format", todo)
        return
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        yield _error("key-none", where, "nothing", "at least one public key", _GIVE_KEY)
    for number, line in lines:
        try:
            yield read_key(line)
        except RefusedError as error:
            place = where if len(lines) == 1 else f"{where}, line {number}"
            # A line that is no public key may be a secret.
            first = line.split()[0]
            shown = f"{first} ..." if first.startswith(("ssh-", "ecdsa-", "sk-")) and len(first) < 60 else "not shown"
            options = any(f" {kind} " in line for kind in KEY_TYPES)
            allowed = "a key without options (from=, command= ...)" if options else error.allowed
            yield _error("key-invalid", place, shown, allowed, "remove the options" if options else error.todo)


def _error(kind: str, at: str, given: str, allowed: str, todo: str) -> Finding:
    return Finding(id=kind, at=at, given=given, allowed=allowed, todo=todo)


USERS, FORMER, ACCOUNTS = (
    ("config", SECTION, *keys) for keys in (("users",), ("former_users",), ("accounting", "accounts"))
)
"""Positions of these lists in a stack file."""
Change = Callable[[StackFile, ClusterConfig, str], tuple[str, list[Finding]]]
"""Returns the new text of a stack file, from the file, its configuration and its text; and errors of the request."""


def edit_file(stack: str, config_file: Path | None, change: Change) -> bool:
    """Change a stack file and print the difference. Returns whether there is one.

    The new text is checked as every stack file is, before it is written. Raises CliError with all errors at once; the
    file stays as it was.
    """
    path = project.require_file(stack, config_file).path
    with edits.alone(path):
        file = project.require_file(stack, config_file)
        config = stack_config.parse(file)
        before = edits.read(path)
        after, errors = change(file, config, before)
        if after != before:
            errors = [*errors, *_errors_of_file(after)]
        if errors:
            count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
            lines = "\n\n".join(map(str, errors))
            raise CliError(f"{count}, and {path.name} was left as it is:\n\n{lines}")
        if after == before:
            return False
        console.line(str(path), style="bold")
        for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]:
            console.line(f"  {line}", style={"+": "green", "-": "red", "@": "dim"}.get(line[:1], ""))
        edits.write(path, after)
    if file.rehearses:
        console.note(f"The next `./hpc rehearse {file.rehearses}` takes users from that stack's own file again.")
    return True


def _errors_of_file(text: str) -> list[Finding]:
    from engine import yamlfile

    settings = yamlfile.parse(text)["config"]
    errors = _errors_of_settings(settings)
    # What a user refers to is not checked where the user has a wrong name or shell: it is checked with valid values in
    # place of the wrong ones.
    wrong = {error.at[1:3] for error in errors if error.at[:1] == ("users",) and len(error.at) > 2}
    for number, key in wrong:
        user = settings[SECTION]["users"][number]
        user.pop(key, None)
        user.update({key: _VALID[key]} if key in _VALID else {})
    known = {error.where for error in errors}
    return [*errors, *(error for error in _errors_of_settings(settings) if wrong and error.where not in known)]


_VALID: Mapping[str | int, Any] = {"name": "a-user-to-be", "uid": 524_287}
"""Valid values of required fields; this uid is the last one of REGULAR_UIDS."""


def _errors_of_settings(settings: Mapping[str, Any]) -> list[Finding]:
    try:
        parse(settings)
    except ConfigError as error:
        return [replace(finding, todo=finding.todo + _HINTS.get(finding.id, "")) for finding in error.findings]
    return []


_HINTS = {"user-account-unknown": ", or give --create-account"}


_FIRST_UID = 2001
"""The first uid that is chosen, as in all examples: above those of operating systems' and Soperator's own users."""


def _uids_in_use(config: ClusterConfig) -> Iterator[int]:
    """Yield the uids and gids of a configuration: a user's own group has the user's number."""
    for user in config.users:
        yield user.uid
        yield user.primary_gid
    yield from config.groups.values()
    yield from (former_user.uid for former_user in config.former_users)


@dataclass(frozen=True, kw_only=True)
class AddRequest:
    """A user to be added."""

    name: str
    fields: Mapping[str, Any]
    """The fields of the user in the stack file that the command line has."""
    keys: Sequence[SshKey]
    key_errors: Sequence[Finding]
    running_config: ClusterConfig | None
    """The configuration that the cluster runs with."""
    homes: Mapping[str, int]
    """Owners of home directories on the cluster."""
    create_account: bool

    def change(self, file: StackFile, config: ClusterConfig, text: str) -> tuple[str, list[Finding]]:
        """Return the text with the user."""
        names = [user.name for user in config.users]
        if self.name in names:
            return text, [*self.key_errors, *self._differences(file, config, text, names.index(self.name))]
        uid = self.fields.get("uid") or self._former_uid(config) or self._free_uid(config)
        blobs = {key.blob: key.fingerprint for key in self.keys}
        for user in config.users:
            for key in user.keys:
                if key.split()[1] in blobs:
                    console.note(f"{blobs[key.split()[1]]} is a key of {user.name} as well.")
        accounts = {account.name for account in config.accounting.accounts}
        if self.create_account and accounts:
            for account in dict.fromkeys([self.fields.get("account"), *self.fields.get("accounts", ())]):
                if account and account not in accounts:
                    text = with_item(text, ACCOUNTS, {"name": account})
        # Keys are long: as in the examples, they are last.
        order = ("account", "accounts", "qos", "groups", "shell", "sudo", "containers", "keys")
        fields = {field: self.fields[field] for field in order if field in self.fields}
        new = with_item(text, USERS, {"name": self.name, "uid": uid, **fields})
        # The check of the file reports more about a former user's uid.
        owned = [] if uid in {former_user.uid for former_user in config.former_users} else self._home_errors(uid)
        return new, [*self.key_errors, *owned]

    def _former_uid(self, config: ClusterConfig) -> int | None:
        """Return the uid that a user of this name had before, by the file or by the home directory on the cluster."""
        uid = next((former_user.uid for former_user in config.former_users if former_user.name == self.name), None)
        if uid is None:
            uid = self.homes.get(self.name)
            regular = uid is not None and any(first <= uid <= last for first, last in REGULAR_UIDS)
            uid = uid if regular and uid not in _uids_in_use(config) else None
        if uid is not None:
            console.note(f"{self.name} had uid {uid} before, and gets it again.")
        return uid

    def _free_uid(self, config: ClusterConfig) -> int:
        """Return the lowest uid from 2001 on that is not in use: neither in the stack file, nor in the configuration
        that the cluster runs with, nor by a home directory."""
        in_use = {*_uids_in_use(config), *self.homes.values()}
        in_use |= {*_uids_in_use(self.running_config)} if self.running_config else set()
        uids = (uid for first, last in REGULAR_UIDS for uid in range(max(first, _FIRST_UID), last + 1))
        return next(uid for uid in uids if uid not in in_use)

    def _home_errors(self, uid: int) -> list[Finding]:
        """Return an error if the uid owns the home directory of another user whom the stack file does not have."""
        others = sorted(home for home, owner in self.homes.items() if owner == uid and home != self.name)
        running = self.running_config
        if not others or (running and any(user.uid == uid and user.name in others for user in running.users)):
            return []
        return [
            Finding(
                id="user-uid-home",
                at="--uid",
                given=str(uid),
                allowed=f"a number that owns no files: /home/{others[0]} on the cluster has this one",
                todo="leave --uid out, which finds a free one",
            )
        ]

    def _differences(self, file: StackFile, config: ClusterConfig, text: str, number: int) -> list[Finding]:
        """Return an error for each field that the user of this name has with another value."""
        user = config.users[number]
        line = line_of_item(text, USERS, number)
        errors = []
        for field_name, value in self.fields.items():
            current = getattr(user, field_name)
            current = list(current) if isinstance(current, tuple) else current
            if field_name == "keys":
                blobs = {key.split()[1] for key in current}
                if all(key.blob in blobs for key in self.keys):
                    continue
                # The comment of each key, or its type.
                current = listing((key.split()[2:] or key.split()[:1])[0] for key in current)
            elif current == value or (field_name == "account" and people.default_account(config, user) == value):
                continue
            errors.append(
                Finding(
                    id="user-there",
                    at=f"users[{number}].{field_name} of {self.name}",
                    given=listing(key.fingerprint for key in self.keys) if field_name == "keys" else show(value),
                    allowed=show(current),
                    todo=f"edit line {line} of {file.path}, then run ./hpc up {file.stack}",
                )
            )
        return errors


_SECONDS = 60
_PROGRAM = ROOT / "scripts" / "users_in_effect.py"
_MODULES = ("system/authorized_keys.py", "system/text_block.py")
"""Modules of scripts/node that the program imports. They are sent with it, and not stored on the machine."""


@dataclass(frozen=True, kw_only=True)
class UserInEffect:
    """A user as the cluster has it."""

    uid: int
    shell: str
    sudo: bool | None
    """None where there is no sudo."""
    keys: Sequence[str]
    """Fingerprints of the keys that may log in, also of those that the user added."""
    account: str = ""
    """The account of jobs without --account; empty if the database does not answer, or does not have the user."""
    accounts: Sequence[str] = ()
    qos: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterUsers:
    """Users as a cluster reports them."""

    users: Mapping[str, UserInEffect] = field(default_factory=dict)
    """The requested users that exist."""
    homes: Mapping[str, int] = field(default_factory=dict)
    """Owners of the directories in /home, by the directory's name."""


def read_in_effect(stack: str, values: Mapping[str, Any], names: Sequence[str]) -> ClusterUsers:
    """Read users on a cluster's login machine. Raises CliError: it is not up, does not answer, or its answer can't be
    read."""
    cluster = from_outputs(stack, values, Capability.RUN)
    login = cluster.target(None)
    stdin = json.dumps({"files": dict(_files()), "payload": {"users": list(names)}})
    line = shlex.join(run_sent(_PROGRAM.name))
    output = remote.output(login, cluster.admin_key, line, stdin=stdin, seconds=_SECONDS)
    try:
        return parse_in_effect(json.loads(output))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CliError(f"{login.name}: what it printed of its users can't be read") from None


def parse_in_effect(report: Mapping[str, Any]) -> ClusterUsers:
    """Parse the JSON that the program on the machine prints. Raises KeyError, TypeError or ValueError: it is of another
    form."""
    defaults = {row[0]: row[1] for row in report["defaults"] or ()}
    accounts: dict[str, list[str]] = {}
    qos: dict[str, dict[str, None]] = {}
    for user, account, allowed, first in report["associations"] or ():
        if user:
            accounts.setdefault(user, []).append(account)
            names = [first, *allowed.split(",")] if first else allowed.split(",")
            qos.setdefault(user, {}).update(dict.fromkeys(filter(None, names)))
    users = {
        name: UserInEffect(
            uid=int(row["uid"]),
            shell=str(row["shell"]),
            sudo=row["sudo"],
            keys=[fingerprint(line) for line in row["keys"]],
            account=defaults.get(name, ""),
            accounts=accounts.get(name, ()),
            qos=list(qos.get(name, ())),
        )
        for name, row in report["users"].items()
    }
    return ClusterUsers(users=users, homes={name: int(uid) for name, uid in report["homes"].items()})


def fingerprint(line: str) -> str:
    """Return the fingerprint of a line of authorized_keys, or a fixed text if it has options or no key."""
    try:
        return read_key(line).fingerprint
    except RefusedError:
        return "(another line)"


@cache
def _files() -> Mapping[str, str]:
    node = ROOT / "scripts" / "node"
    return {**{name: Path(node, name).read_text() for name in _MODULES}, _PROGRAM.name: _PROGRAM.read_text()}


class RunningCluster:
    """The cluster of a stack, which may not be up."""

    def __init__(self, stack: str, config_file: Path | None) -> None:
        self.stack, self._config_file = stack, config_file
        self.config: ClusterConfig | None = None
        """The configuration that it runs with; None if it is not up, or its state can't be read here."""
        self._why_unknown = f"stack {stack} is not up."
        try:
            self.config = parse_output(outputs.read(stack, show_secrets=True)["config"])
        except (CliError, ConfigError) as error:
            self._why_unknown = str(error)
        except KeyError:  # no `up` has succeeded, or it was one of an older version
            pass

    def has(self, name: str) -> bool:
        """Return whether the cluster has a user of this name by its configuration."""
        return self.config is not None and any(user.name == name for user in self.config.users)

    def may_have(self, name: str) -> bool:
        """Return whether the cluster has the user, or may have it: its state can't be read here, or no `up` has
        succeeded."""
        if self.config is not None:
            return self.has(name)
        return not state_dir.on_files(self.stack) or self.stack in project.workspace(self.stack).stacks()

    def home_owners(self) -> Mapping[str, int]:
        """Return the owners of home directories; none, and a message, if the cluster does not answer."""
        if self.config is None:
            return {}
        try:
            return read_in_effect(self.stack, outputs.read(self.stack, show_secrets=True), []).homes
        except CliError as error:
            console.note(f"The cluster was not asked for uids of home directories: {error}")
            return {}

    def confirm_other_edits(self, name: str, *, yes: bool) -> None:
        """Ask whether `up` may apply edits of the file that are not about this user: it applies the whole file. Raises
        CliError: there are such edits, and the answer is no or there is no terminal."""
        if self.config is None:
            return
        file = project.require_file(self.stack, self._config_file)
        own = (f"users.{name}.", f"former_users.{name}.")
        others = [
            change
            for change in effects(self.config, stack_config.parse(file), self.stack)
            if not f"{change.path}.".startswith(own)
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

    def apply(self, run_options: RunOptions) -> int:
        """Run `up`, and return its exit code. If it fails, the file stays edited, and the command that applies it is
        printed. A cluster that is not up is not created."""
        if self.config is None:
            console.note(f"Not applied: {self._why_unknown}")
            return 0
        from cli.operation import operation  # slow to import, and most commands on users run no `up`

        code = 1
        try:
            code = operation.run("up", self.stack, run_options)
        finally:
            if code != 0:
                console.note(f"The stack file is edited. To apply it: {self.command}")
        return code

    @property
    def command(self) -> str:
        """The command line of the stack's `up`."""
        return f"./hpc up {self.stack}" + (f" --config-file {self._config_file}" if self._config_file else "")
