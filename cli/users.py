"""Users of a stack: keys that somebody gives, edits of the stack file, and what is in effect on a running cluster."""

import difflib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from cli import ROOT, console
from cli.access import remote
from cli.cluster.cluster import from_outputs
from cli.errors import CliError
from cli.operation.run_options import RunOptions
from cli.stack import edits as text_file
from cli.stack import outputs, project, stack_config, state_dir
from cli.stack.edits import line_of_item, with_item
from cli.stack.stackfile import StackFile
from cluster import people
from cluster.config import ClusterConfig
from cluster.config.validators.formats import REGULAR_UIDS
from cluster.config.validators.ssh_key import KEY_TYPES, SshKey, read_key
from cluster.findings import ROOT as SECTION
from cluster.findings import ConfigError, Finding, RefusedError, listing, show
from cluster.impact.table import effects
from cluster.load import parse, parse_output
from cluster.platforms.capability import Capability
from cluster.regular_file import refuse_special
from components.slurm.payload import run_sent

STDIN = "-"
_LONGEST = 1 << 20
_PRIVATE = ("PRIVATE KEY", "PuTTY-User-Key-File", "b3BlbnNzaC1rZXktdjE")
"""Texts in private keys: PEM's and OpenSSH's, PuTTY's, and OpenSSH's first bytes in base64 ("openssh-key-v1")."""
_CONVERT = "---- BEGIN SSH2 PUBLIC KEY"
_PASTE = "give the line of ~/.ssh/id_ed25519.pub, or the file"


def read_keys(given: Sequence[str]) -> tuple[list[SshKey], list[Finding]]:
    """The keys in what was given, each once and in its order, and everything that is wrong with it."""
    found: dict[str, SshKey] = {}
    wrong: list[Finding] = []
    for text in dict.fromkeys(given):
        for key in _keys(text):
            if isinstance(key, Finding):
                wrong.append(key)
            else:
                found.setdefault(key.blob, key)
    return list(found.values()), wrong


def _keys(given: str) -> Iterator[SshKey | Finding]:
    if given.partition(" ")[0] in KEY_TYPES:
        where, text = "--key", given
    elif given == STDIN:
        where, text = "--key -", sys.stdin.read(_LONGEST)
    else:
        where = f"--key {'FILE' if any(mark in given for mark in _PRIVATE) else given}"
        try:
            path = Path(given).expanduser()
            refuse_special(path)
            with path.open("rb") as file:
                text = file.read(_LONGEST).decode(errors="replace")
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no path"
            yield _wrong("key-file", where, str(why or error), "a file that can be read", _PASTE)
            return
    if any(mark in text for mark in _PRIVATE):
        todo = f"give {given}.pub" if Path(f"{given}.pub").exists() else "give the .pub file beside it"
        yield _wrong("key-private", where, "a private key (not shown)", "a public key", todo)
        return
    if _CONVERT in text:
        todo = f"convert it: ssh-keygen -i -f {given} >key.pub"
        yield _wrong("key-format", where, "a public key in SSH2's format (RFC 4716)", "OpenSSH's format", todo)
        return
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        yield _wrong("key-none", where, "nothing", "at least one public key", _PASTE)
    for number, line in lines:
        try:
            yield read_key(line)
        except RefusedError as error:
            place = where if len(lines) == 1 else f"{where}, line {number}"
            # Whatever it is, it may be a secret.
            first = line.split()[0]
            shown = f"{first} ..." if first.startswith(("ssh-", "ecdsa-", "sk-")) and len(first) < 60 else "not shown"
            options = any(f" {kind} " in line for kind in KEY_TYPES)
            allowed = "a key without options (from=, command= ...)" if options else error.allowed
            yield _wrong("key-invalid", place, shown, allowed, "remove the options" if options else error.todo)


def _wrong(kind: str, at: str, given: str, allowed: str, todo: str) -> Finding:
    return Finding(id=kind, at=at, given=given, allowed=allowed, todo=todo)


USERS, FORMER, ACCOUNTS = (
    ("config", SECTION, *keys) for keys in (("users",), ("former_users",), ("accounting", "accounts"))
)
"""Positions of these lists in a stack file."""
Change = Callable[[StackFile, ClusterConfig, str], tuple[str, list[Finding]]]
"""Makes the new text from the file, its configuration and its text; and what is wrong besides."""


def edit_file(stack: str, config_file: Path | None, change: Change) -> bool:
    """Change a stack file and show the difference; False if there is none.

    The new text is checked as every stack file is, before it is written. Raises CliError: with everything that is wrong
    at once; the file is as it was.
    """
    path = project.require_file(stack, config_file).path
    with text_file.alone(path):
        file = project.require_file(stack, config_file)
        config = stack_config.parse(file)
        before = text_file.read(path)
        after, wrong = change(file, config, before)
        if after != before:
            wrong = [*wrong, *_findings(after)]
        if wrong:
            several = "1 error" if len(wrong) == 1 else f"{len(wrong)} errors"
            lines = "\n\n".join(map(str, wrong))
            raise CliError(f"{several}, and {path.name} was left as it is:\n\n{lines}")
        if after == before:
            return False
        _show(path, before, after)
        text_file.write(path, after)
    if file.rehearses:
        console.note(f"The next `./hpc rehearse {file.rehearses}` takes users from that stack's own file again.")
    return True


def _findings(text: str) -> list[Finding]:
    from engine import yamlfile

    settings = yamlfile.parse(text)["config"]
    found = _errors(settings)
    # Of a user with a wrong name or shell, what the user names was not looked for: it is, beside stand-ins.
    wrong = {finding.at[1:3] for finding in found if finding.at[:1] == ("users",) and len(finding.at) > 2}
    for number, key in wrong:
        user = settings[SECTION]["users"][number]
        user.pop(key, None)
        user.update({key: _STAND_INS[key]} if key in _STAND_INS else {})
    known = {finding.where for finding in found}
    return [*found, *(error for error in _errors(settings) if wrong and error.where not in known)]


_STAND_INS: Mapping[str | int, Any] = {"name": "a-user-to-be", "uid": 524_287}
"""Values for required fields; this uid is the last one of REGULAR_UIDS."""


def _errors(settings: Mapping[str, Any]) -> list[Finding]:
    try:
        parse(settings)
    except ConfigError as error:
        return [replace(finding, todo=finding.todo + _HINTS.get(finding.id, "")) for finding in error.findings]
    return []


_HINTS = {"user-account-unknown": ", or give --create-account"}


def _show(path: Path, before: str, after: str) -> None:
    console.line(str(path), style="bold")
    for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]:
        console.line(f"  {line}", style={"+": "green", "-": "red", "@": "dim"}.get(line[:1], ""))


FIRST = 2001
"""The first uid, as in all examples: above those of operating systems' and Soperator's own users."""


def own_number(name: str, config: ClusterConfig, homes: Mapping[str, int]) -> int | None:
    """The uid that somebody of this name had before, by the file or by the home directory on the cluster."""
    former = next((former_user.uid for former_user in config.former_users if former_user.name == name), None)
    if former is not None:
        return former
    uid = homes.get(name)
    return uid if uid is not None and _regular(uid) and uid not in _taken(config) else None


def free_number(config: ClusterConfig, before: ClusterConfig | None, homes: Mapping[str, int]) -> int:
    """The lowest uid from 2001 on that is nobody's: neither in the stack file, nor in the configuration that the
    cluster runs with, nor the owner of a home directory."""
    taken = {*_taken(config), *(_taken(before) if before else ()), *homes.values()}
    ranges = chain.from_iterable(range(max(first, FIRST), last + 1) for first, last in REGULAR_UIDS)
    return next(number for number in ranges if number not in taken)


def _taken(config: ClusterConfig) -> Iterator[int]:
    """Numbers of users and groups: a user's own group has the user's number."""
    for user in config.users:
        yield user.uid
        yield user.primary_gid
    yield from config.groups.values()
    yield from (former_user.uid for former_user in config.former_users)


def _regular(uid: int) -> bool:
    return any(first <= uid <= last for first, last in REGULAR_UIDS)


@dataclass(frozen=True, kw_only=True)
class AddRequest:
    """A user to be added."""

    name: str
    given: Mapping[str, Any]
    """Fields of a user in the stack file, as far as they were given."""
    keys: Sequence[SshKey]
    wrong: Sequence[Finding]
    """Errors of the keys."""
    before: ClusterConfig | None
    """The configuration that the cluster runs with."""
    homes: Mapping[str, int]
    """Owners of home directories on the cluster."""
    create_account: bool

    def change(self, file: StackFile, config: ClusterConfig, text: str) -> tuple[str, list[Finding]]:
        """The text with the user."""
        names = [user.name for user in config.users]
        if self.name in names:
            return text, [*self.wrong, *self._differences(file, config, text, names.index(self.name))]
        uid = self.given.get("uid") or self._number(config)
        self._note_shared_keys(config)
        if self.create_account:
            text = self._with_accounts(text, config)
        new = with_item(text, USERS, {"name": self.name, "uid": uid, **_in_order(self.given)})
        # Of a former user's number the check of the file says more.
        owned = [] if uid in {former_user.uid for former_user in config.former_users} else self._owned(uid)
        return new, [*self.wrong, *owned]

    def _number(self, config: ClusterConfig) -> int:
        uid = own_number(self.name, config, self.homes)
        if uid is None:
            return free_number(config, self.before, self.homes)
        console.note(f"{self.name} had uid {uid} before, and gets it again.")
        return uid

    def _owned(self, uid: int) -> list[Finding]:
        """A number whose files somebody else left, where the stack file does not remember them."""
        others = sorted(home for home, owner in self.homes.items() if owner == uid and home != self.name)
        if not others or (self.before and any(user.uid == uid and user.name in others for user in self.before.users)):
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
        """Return what the user of this name has otherwise than asked for."""
        user = config.users[number]
        line = line_of_item(text, USERS, number)
        found = []
        for asked, value in self.given.items():
            has = getattr(user, asked)
            has = list(has) if isinstance(has, tuple) else has
            if asked == "keys":
                has_blobs = {key.split()[1] for key in has}
                if all(key.blob in has_blobs for key in self.keys):
                    continue
                has = [key.split()[2:] or key.split()[:1] for key in has]
                has = listing(words[0] for words in has)
            elif has == value or (asked == "account" and people.default_account(config, user) == value):
                continue
            found.append(
                Finding(
                    id="user-there",
                    at=f"users[{number}].{asked} of {self.name}",
                    given=listing(key.fingerprint for key in self.keys) if asked == "keys" else show(value),
                    allowed=show(has),
                    todo=f"edit line {line} of {file.path}, then run ./hpc up {file.stack}",
                )
            )
        return found

    def _note_shared_keys(self, config: ClusterConfig) -> None:
        mine = {key.blob: key.fingerprint for key in self.keys}
        for user in config.users:
            for key in user.keys:
                if key.split()[1] in mine:
                    console.note(f"{mine[key.split()[1]]} is a key of {user.name} as well.")

    def _with_accounts(self, text: str, config: ClusterConfig) -> str:
        """The text with accounts that are asked for and not declared; where none is, those of users are made."""
        if not config.accounting.accounts:
            return text
        known = {account.name for account in config.accounting.accounts}
        for name in dict.fromkeys([self.given.get("account"), *self.given.get("accounts", ())]):
            if name and name not in known:
                text = with_item(text, ACCOUNTS, {"name": name})
        return text


def _in_order(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as examples have them: keys, which are long, at the end."""
    order = ("account", "accounts", "qos", "groups", "shell", "sudo", "containers", "keys")
    return {field: given[field] for field in order if field in given}


SECONDS = 60
_PROGRAM = ROOT / "scripts" / "users" / "in_effect.py"
_MODULES = ("system/authorized_keys.py", "system/text_block.py")
"""Modules of scripts/node; nothing of it stays on the machine."""


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


def read_in_effect(stack: str, values: Mapping[str, Any], names: Sequence[str]) -> Seen:
    """Ask a cluster's login machine. Raises CliError: it is not up, does not answer, or its answer can't be read."""
    cluster = from_outputs(stack, values, Capability.RUN)
    login = cluster.target(None)
    stdin = json.dumps({"files": dict(_files()), "payload": {"users": list(names)}})
    line = shlex.join(run_sent(_PROGRAM.name))
    said = remote.output(login, cluster.admin_key, line, stdin=stdin, seconds=SECONDS)
    try:
        return parse_in_effect(json.loads(said))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CliError(f"{login.name}: what it printed of its users can't be read") from None


def parse_in_effect(said: Mapping[str, Any]) -> Seen:
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
        """The configuration that it runs with; None if it is not up, or its state can't be read here."""
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
            return read_in_effect(self.stack, outputs.read(self.stack, show_secrets=True), [])
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
