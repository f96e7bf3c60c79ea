"""A user to be added to a stack file: the new text, or what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli import console
from cli.stack.stackfile import StackFile
from cli.stack.text.items import line_of_item, with_item
from cli.users import edit, numbers
from cluster import people
from cluster.config import ClusterConfig
from cluster.config.validators.ssh_key import SshKey
from cluster.findings import Finding, listing, show


@dataclass(frozen=True, kw_only=True)
class AddRequest:
    """A user to be added."""

    name: str
    given: Mapping[str, Any]
    """Fields of a user in the stack file, as far as they were given."""
    keys: Sequence[SshKey]
    wrong: Sequence[Finding]
    """What is wrong with the keys."""
    before: ClusterConfig | None
    """What the cluster runs with."""
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
        new = with_item(text, edit.USERS, {"name": self.name, "uid": uid, **_in_order(self.given)})
        # Of a former user's number the check of the file says more.
        owned = [] if uid in {one.uid for one in config.former_users} else self._owned(uid)
        return new, [*self.wrong, *owned]

    def _number(self, config: ClusterConfig) -> int:
        uid = numbers.own_number(self.name, config, self.homes)
        if uid is None:
            return numbers.free_number(config, self.before, self.homes)
        console.note(f"{self.name} had uid {uid} before, and gets it again.")
        return uid

    def _owned(self, uid: int) -> list[Finding]:
        """A number whose files somebody else left, where the stack file does not remember them."""
        others = sorted(home for home, owner in self.homes.items() if owner == uid and home != self.name)
        if not others or (self.before and any(user.uid == uid and user.name in others for user in self.before.users)):
            return []
        return [
            Finding(
                id="user-uid-home", at="--uid", given=str(uid),
                allowed=f"a number that owns no files: /home/{others[0]} on the cluster has this one",
                todo="leave --uid out, which finds a free one",
            )
        ]  # fmt: skip

    def _differences(self, file: StackFile, config: ClusterConfig, text: str, number: int) -> list[Finding]:
        """What the user of this name has otherwise than asked for."""
        user = config.users[number]
        line = line_of_item(text, edit.USERS, number)
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
        known = {one.name for one in config.accounting.accounts}
        for name in dict.fromkeys([self.given.get("account"), *self.given.get("accounts", ())]):
            if name and name not in known:
                text = with_item(text, edit.ACCOUNTS, {"name": name})
        return text


def _in_order(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as examples have them: keys, which are long, at the end."""
    order = ("account", "accounts", "qos", "groups", "shell", "sudo", "containers", "keys")
    return {field: given[field] for field in order if field in given}
