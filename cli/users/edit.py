"""An edit of the users in a stack file: the new text, checked as a whole, shown, written."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from cli import console
from cli.errors import CliError
from cli.stack import edits as text_file
from cli.stack import project, stack_config
from cli.stack.edits import line_of_item, with_item
from cli.stack.stackfile import StackFile
from cluster import people
from cluster.config import ClusterConfig
from cluster.config.validators.names import REGULAR_UIDS
from cluster.config.validators.ssh_key import SshKey
from cluster.findings import ROOT, ConfigError, Finding, listing, show
from cluster.load import parse

USERS, FORMER, ACCOUNTS = (
    ("config", ROOT, *keys) for keys in (("users",), ("former_users",), ("accounting", "accounts"))
)
"""Positions of these lists in a stack file."""
Change = Callable[[StackFile, ClusterConfig, str], tuple[str, list[Finding]]]
"""Makes the new text from the file, its configuration and its text; and what is wrong besides."""


def edit(stack: str, config_file: Path | None, change: Change) -> bool:
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
        user = settings[ROOT]["users"][number]
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
        for field, value in self.given.items():
            has = getattr(user, field)
            has = list(has) if isinstance(has, tuple) else has
            if field == "keys":
                has_blobs = {key.split()[1] for key in has}
                if all(key.blob in has_blobs for key in self.keys):
                    continue
                has = [key.split()[2:] or key.split()[:1] for key in has]
                has = listing(words[0] for words in has)
            elif has == value or (field == "account" and people.default_account(config, user) == value):
                continue
            found.append(
                Finding(
                    id="user-there",
                    at=f"users[{number}].{field} of {self.name}",
                    given=listing(key.fingerprint for key in self.keys) if field == "keys" else show(value),
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
