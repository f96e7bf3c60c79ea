"""Unix users, groups and keys: the same on every machine."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.health import ClusterObservation, MachineObservation


def unix(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Users and groups that are missing, different, or still there."""
    for one in seen.machines:
        found = one.part("unix")
        if found is None:
            continue
        for group in wanted.groups:
            gid = found["groups"].get(group["name"])
            if gid is None:
                yield _of(one, "group-changed", f"group {group['name']}", f"gid {group['gid']}", "no such group")
            elif gid != group["gid"]:
                text = f"group {group['name']}: gid"
                yield _of(one, "group-changed", text, str(group["gid"]), str(gid), hand=True)
        for user in wanted.users:
            yield from _user(one, user, found["users"].get(user["name"]))
        managed = found["managed"]
        for name in sorted(set(managed.get("users", ())) - {user["name"] for user in wanted.users}):
            if name in found["users"]:
                yield _of(one, "user-changed", f"user {name}", "no such user", "a user")


def _user(one: MachineObservation, user: Mapping[str, Any], found: Mapping[str, Any] | None) -> Iterator[Difference]:
    name = user["name"]
    if found is None:
        yield _of(one, "user-changed", f"user {name}", f"uid {user['uid']}", "no such user")
        return
    for key in ("uid", "gid", "groups", "shell"):
        said, there = _text(user[key]), _text(found[key])
        if said != there:
            # Files belong to a number: it is not changed behind anybody's back.
            yield _of(one, "user-changed", f"user {name}: {key}", said, there, hand=key == "uid")
    for key, default in (("sudo", False), ("containers", None)):
        # A machine of an earlier version reports neither, one without sudo not this.
        right = user.get(key, default)
        if right is not None and key in found and found[key] != right:
            yield _of(one, "user-changed", f"user {name}: {key}", *(str(yes).lower() for yes in (right, found[key])))


def keys(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """SSH keys that the stack gives and that are not what is there; those that users added are theirs."""
    for one in seen.machines:
        found = one.part("keys") or {}
        for user in wanted.users:
            there = found.get(user["name"])
            if there is not None and there != digest(user["keys"]):
                text = f"user {user['name']}: authorized_keys"
                what = there if " " in there else "others"  # no hash: what kept them from being read
                yield _of(one, "keys-changed", text, f"{len(user['keys'])} of the stack's", what)


def digest(lines: list[str]) -> str:
    """The hash that scripts/node/system/user_facts.py reports."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _of(one: MachineObservation, kind: str, what: str, stack: str, there: str, *, hand: bool = False) -> Difference:
    return Difference(id=kind, where=(one.name,), what=what, stack=stack, there=there, mends="hand" if hand else "mend")


def _text(value: Any) -> str:  # noqa: ANN401 - a number, a text or a list of texts
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
