"""The cluster's users and groups, the same uid and gid on every machine.

MUNGE authenticates a uid, not a name: a user with another uid on one node would run jobs as somebody else there.
Users that we made and that the stack no longer names lose their account; their home and its files stay.
"""

import contextlib
import grp
import json
import os
import pwd
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from interface import Group, User
from system import homes
from system.host import SetupError, has_user, log, read_json, run, which, write

MANAGED = Path("/etc/hpc/users.json")  # what we made, so that we only ever remove that
PROC = Path("/proc")
SHADOW = Path("/etc/shadow")
EXPIRED = "1"  # days since 1970 (shadow(5))
SIGNAL_SECONDS = {signal.SIGTERM: 3.0, signal.SIGKILL: 5.0}  # for processes to end by each, in this order
# sudo reads the files of this folder whose names have no dot (sudoers(5), includedir).
SUDOERS = Path("/etc/sudoers.d/hpc-users")
SUDOERS_HEAD = "# Written by the cluster's set-up: users with `sudo: true` in the stack file.\n"
SUBORDINATE_IDS = {"u": Path("/etc/subuid"), "g": Path("/etc/subgid")}  # by the letter in usermod's options
FIRST_SUBORDINATE_ID, SUBORDINATE_ID_COUNT = 100_000, 65_536  # as in Debian's login.defs (SUB_UID_MIN, SUB_UID_COUNT)


def converge(users: list[User], groups: list[Group], *, with_homes: bool) -> bool:
    """Create, change and remove users and groups of ours until they are exactly these; True when anything changed.

    `with_homes`: make home folders and authorized_keys too (where /home is shared, one machine does it for all).
    Raises SetupError when a name or number is taken by something that is not ours.
    """
    managed = _managed()
    # First of all: somebody who loses the right loses it also where a later step fails.
    changed = [converge_sudoers(users)]
    changed += [_group(group) for group in groups]
    changed += [_user(user) for user in users]
    wanted = {"users": sorted(u["name"] for u in users), "groups": sorted(g["name"] for g in groups)}
    for name in sorted(filter(has_user, managed["users"].difference(wanted["users"]))):
        end_processes(name, pwd.getpwnam(name).pw_uid)
        run("userdel", name)
        log(f"removed user {name} (the home folder stays)")
        changed.append(True)
    for name in sorted(filter(_has_group, managed["groups"].difference(wanted["groups"]))):
        run("groupdel", name)
        log(f"removed group {name}")
        changed.append(True)
    changed.append(converge_subordinate_ids(users))
    if with_homes:
        changed += [homes.converge(user["name"], user["uid"], user["gid"], user["keys"]) for user in users]
    write(MANAGED, json.dumps(wanted) + "\n")
    return any(changed)


def leaving(users: list[User]) -> set[str]:
    """Return the names of users that the set-up has made and that are not among `users`."""
    return _managed()["users"] - {user["name"] for user in users}


def _managed() -> dict[str, set[str]]:
    found = read_json(MANAGED, {})
    return {"users": set(found.get("users", [])), "groups": set(found.get("groups", []))}


def _group(group: Group) -> bool:
    name, gid = group["name"], group["gid"]
    if _has_group(name):
        if grp.getgrnam(name).gr_gid != gid:
            raise SetupError(
                f"group {name} has gid {grp.getgrnam(name).gr_gid} on this machine, the stack says {gid}. "
                "Its files would change hands: keep the number, or move the files first."
            )
        return False
    run("groupadd", "--gid", str(gid), name)
    log(f"made group {name} ({gid})")
    return True


def _user(user: User) -> bool:
    name, uid, gid = user["name"], user["uid"], user["gid"]
    wanted = set(user["groups"])
    if not has_user(name):
        more = ("--shell", user["shell"], "--home-dir", f"/home/{name}", "--no-create-home")
        run("useradd", "--uid", str(uid), "--gid", str(gid), "--groups", ",".join(sorted(wanted)), *more, name)
        log(f"made user {name} ({uid})")
        return True
    found = pwd.getpwnam(name)
    if found.pw_uid != uid:
        raise SetupError(
            f"user {name} has uid {found.pw_uid} on this machine, the stack says {uid}. "
            "Files and running jobs belong to the number: keep it, or remove the user first and move the files."
        )
    has = {g.gr_name for g in grp.getgrall() if name in g.gr_mem}
    # A removal that was stopped before its end, and then taken back, would let nobody log in for ever.
    back = ["--expiredate", ""] if is_closed(name) else []
    if found.pw_gid == gid and found.pw_shell == user["shell"] and has == wanted and not back:
        return False
    run("usermod", "--gid", str(gid), "--groups", ",".join(sorted(wanted)), "--shell", user["shell"], *back, name)
    log(f"changed user {name}")
    return True


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def end_processes(name: str, uid: int) -> None:
    """Close the account, and end all processes of the user; at last by SIGKILL."""
    if not any(processes(uid)):
        return
    run("usermod", "--expiredate", EXPIRED, name)  # sshd refuses an account that has expired
    log(f"{name}: ending {len(list(processes(uid)))} processes")
    for number, seconds in SIGNAL_SECONDS.items():
        deadline = time.monotonic() + seconds
        while any(processes(uid)) and time.monotonic() < deadline:
            for pid in processes(uid):
                _send_signal(pid, uid, number)
            time.sleep(0.1)


def is_closed(name: str) -> bool:
    """Return whether `end_processes` has closed this account, and it is still there."""
    try:
        rows = [line.split(":") for line in SHADOW.read_text().splitlines()]
    except FileNotFoundError:
        return False
    return any(row[0] == name and row[7:8] == [EXPIRED] for row in rows)


def processes(uid: int) -> Iterator[int]:
    """Yield the ids of processes that run as this user, really or effectively."""
    for folder in PROC.iterdir():
        if folder.name.isdigit() and _runs_as(int(folder.name), uid):
            yield int(folder.name)


def _send_signal(pid: int, uid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is still the user's: by a descriptor, since another one may get its id."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with contextlib.suppress(ProcessLookupError):
            if _runs_as(pid, uid):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _runs_as(pid: int, uid: int) -> bool:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    # A process that has ended, and for which its parent has not waited yet (Z), counts for nothing.
    return str(uid) in fields["Uid"].split() and not fields["State"].strip().startswith("Z")


def converge_sudoers(users: list[User]) -> bool:
    """Have exactly these users of ours in sudoers, those with `sudo`; True when anything changed.

    A machine without sudo is left without the file. Raises SetupError: visudo refuses the file, which is not installed.
    """
    names = sorted(user["name"] for user in users if user.get("sudo"))
    if names and not has_sudo():
        log(f"sudo is not installed on this machine: {', '.join(names)} can't use it here")
        names = []
    if not names:
        try:
            SUDOERS.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        log("sudo: nobody")
        return True
    text = SUDOERS_HEAD + "".join(f"{name} ALL=(ALL:ALL) NOPASSWD: ALL\n" for name in names)
    import tempfile

    # A file with an error in it would keep everybody from using sudo.
    with tempfile.NamedTemporaryFile("w", prefix="hpc-sudoers-") as file:
        file.write(text)
        file.flush()
        try:
            run("visudo", "--check", "--quiet", f"--file={file.name}")
        except SetupError as error:
            raise SetupError(f"sudoers is left as it was: {error}") from None
    changed = write(SUDOERS, text, mode=0o440, quiet=True)
    if changed:
        log(f"sudo: {', '.join(names)}")
    return changed


def sudo_users() -> set[str] | None:
    """Return the users whom our file names; None on a machine without sudo."""
    if not has_sudo():
        return None
    try:
        lines = SUDOERS.read_text().splitlines()
    except FileNotFoundError:
        return set()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def has_sudo() -> bool:
    """Return whether this machine has sudo, and visudo, which checks its files."""
    return all(which(name, "/usr/sbin:/usr/bin:/sbin:/bin") for name in ("sudo", "visudo"))


def converge_subordinate_ids(users: list[User]) -> bool:
    """Have a range for users with `containers: true`, and none for those with false; True when anything changed.

    Others keep what useradd gave them. Users must exist.
    """
    changed = False
    for user in users:
        wanted = user.get("containers")
        if wanted is None:
            continue
        name = user["name"]
        for letter, file in SUBORDINATE_IDS.items():
            ranges = _ranges(file)
            mine = [(first, count) for owner, first, count in ranges if owner in (name, str(user["uid"]))]
            if wanted and not mine:
                first = max([FIRST_SUBORDINATE_ID, *(first + count for _, first, count in ranges)])
                run("usermod", f"--add-sub{letter}ids", f"{first}-{first + SUBORDINATE_ID_COUNT - 1}", name)
                log(f"{name}: sub{letter}ids {first} to {first + SUBORDINATE_ID_COUNT - 1}")
                changed = True
            for first, count in [] if wanted else mine:
                run("usermod", f"--del-sub{letter}ids", f"{first}-{first + count - 1}", name)
                log(f"{name}: no sub{letter}ids any more")
                changed = True
    return changed


def subordinate_id_owners() -> set[str]:
    """Return the names, or uids as text, of users who have a range of uids."""
    return {owner for owner, _, _ in _ranges(SUBORDINATE_IDS["u"])}


def _ranges(file: Path) -> list[tuple[str, int, int]]:
    """Return (owner, first, count) of each line."""
    try:
        rows = [line.split(":") for line in file.read_text().splitlines()]
    except FileNotFoundError:
        return []
    return [
        (row[0], int(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[1].isdigit() and row[2].isdigit()
    ]
