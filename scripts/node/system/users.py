"""The cluster's users and groups, the same uid and gid on every machine.

MUNGE authenticates a uid, not a name: a user with another uid on one node would run jobs as somebody else there.
Users that we made and that the stack no longer names lose their account; their home and its files stay.
"""

from __future__ import annotations

import grp
import json
import pwd
from pathlib import Path

from interface import Group, User
from rights import subordinate_ids, sudoers
from system import homes, sessions
from system.host import SetupError, log, read_json, run, write

MANAGED = Path("/etc/hpc/users.json")  # what we made, so that we only ever remove that


def converge(users: list[User], groups: list[Group], *, with_homes: bool) -> bool:
    """Have exactly these users and groups of ours; True when anything changed.

    `with_homes`: make home folders and authorized_keys too (where /home is shared, one machine does it for all).
    Raises SetupError when a name or number is taken by something that is not ours.
    """
    managed = _managed()
    # First of all: somebody who loses the right loses it also where a later step fails.
    changed = [sudoers.converge(users)]
    changed += [_group(group) for group in groups]
    changed += [_user(user) for user in users]
    gone = managed["users"] - {u["name"] for u in users}
    changed += [_remove_user(name) for name in sorted(gone) if _has_user(name)]
    gone = managed["groups"] - {g["name"] for g in groups}
    changed += [_remove(["groupdel", name], f"removed group {name}") for name in sorted(gone) if _has_group(name)]
    changed.append(subordinate_ids.converge(users))
    if with_homes:
        changed += [homes.converge(user["name"], user["uid"], user["gid"], user["keys"]) for user in users]
    _remember({u["name"] for u in users}, {g["name"] for g in groups})
    return any(changed)


def leaving(users: list[User]) -> set[str]:
    """Names of those that we made and that are not among `users`."""
    return _managed()["users"] - {user["name"] for user in users}


def _managed() -> dict[str, set[str]]:
    found = read_json(MANAGED, {})
    return {"users": set(found.get("users", [])), "groups": set(found.get("groups", []))}


def _remember(users: set[str], groups: set[str]) -> None:
    write(MANAGED, json.dumps({"users": sorted(users), "groups": sorted(groups)}) + "\n")


def _group(group: Group) -> bool:
    name, gid = group["name"], group["gid"]
    if _has_group(name):
        if grp.getgrnam(name).gr_gid != gid:
            raise SetupError(
                f"group {name} has gid {grp.getgrnam(name).gr_gid} on this machine, the stack says {gid}. "
                "Its files would change hands: keep the number, or move the files by hand first."
            )
        return False
    run("groupadd", "--gid", str(gid), name)
    log(f"made group {name} ({gid})")
    return True


def _user(user: User) -> bool:
    name, uid, gid = user["name"], user["uid"], user["gid"]
    wanted = set(user["groups"])
    if not _has_user(name):
        run(
            "useradd", "--uid", str(uid), "--gid", str(gid), "--groups", ",".join(sorted(wanted)),
            "--shell", user["shell"], "--home-dir", f"/home/{name}", "--no-create-home", name,
        )  # fmt: skip
        log(f"made user {name} ({uid})")
        return True
    found = pwd.getpwnam(name)
    if found.pw_uid != uid:
        raise SetupError(
            f"user {name} has uid {found.pw_uid} on this machine, the stack says {uid}. "
            "Files and running jobs belong to the number: keep it, or remove the user first and move the files by hand."
        )
    has = {g.gr_name for g in grp.getgrall() if name in g.gr_mem}
    # A removal that was stopped before its end, and then taken back, would let nobody log in for ever.
    back = ["--expiredate", ""] if sessions.closed(name) else []
    if found.pw_gid == gid and found.pw_shell == user["shell"] and has == wanted and not back:
        return False
    run("usermod", "--gid", str(gid), "--groups", ",".join(sorted(wanted)), "--shell", user["shell"], *back, name)
    log(f"changed user {name}")
    return True


def _remove_user(name: str) -> bool:
    sessions.end(name, pwd.getpwnam(name).pw_uid)
    return _remove(["userdel", name], f"removed user {name} (the home folder stays)")


def _remove(command: list[str], text: str) -> bool:
    run(*command)
    log(text)
    return True


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
