"""The cluster's users and groups, with the same uid and gid on every machine.

MUNGE authenticates a uid, not a name: a user with another uid on one node would run jobs as somebody else there.
Users that the set-up made and that the stack no longer has lose their account; their home and its files stay.
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

from interface import Group, UnixUser
from system import homes
from system.host import SetupError, has_group, has_user, log, read_json, run, which, write

MANAGED = Path("/etc/hpc/users.json")  # users and groups that the set-up made: it removes no others
PROC = Path("/proc")
SHADOW = Path("/etc/shadow")
EXPIRED = "1"  # days since 1970 (shadow(5))
SIGNAL_SECONDS = {signal.SIGTERM: 3.0, signal.SIGKILL: 5.0}  # signals in order, with the time to wait after each
# sudo reads the files of this folder whose names have no dot (sudoers(5), includedir).
SUDOERS = Path("/etc/sudoers.d/hpc-users")
SUDOERS_HEAD = "# Written by the cluster's set-up: users with `sudo: true` in the stack file.\n"
SUBORDINATE_IDS = {"u": Path("/etc/subuid"), "g": Path("/etc/subgid")}  # by the letter of usermod's options
FIRST_SUBORDINATE_ID, SUBORDINATE_ID_COUNT = 100_000, 65_536  # as in Debian's login.defs (SUB_UID_MIN, SUB_UID_COUNT)


def converge(users: list[UnixUser], groups: list[Group], *, with_homes: bool) -> bool:
    """Make the users and groups of the set-up exactly these; return whether anything changed.

    `with_homes`: also create home folders and authorized_keys (where /home is shared, one machine does it for all).
    Raises SetupError if somebody else's user or group has the name or the number.
    """
    managed = _managed()
    # First, so that a user loses sudo even if a later step fails.
    changed = [converge_sudoers(users)]
    changed += [_converge_group(group) for group in groups]
    changed += [_converge_user(user) for user in users]
    wanted = {"users": sorted(user["name"] for user in users), "groups": sorted(group["name"] for group in groups)}
    for name in sorted(filter(has_user, managed["users"].difference(wanted["users"]))):
        end_processes(name, pwd.getpwnam(name).pw_uid)
        run("userdel", name)
        log(f"removed user {name} (the home folder stays)")
        changed.append(True)
    for name in sorted(filter(has_group, managed["groups"].difference(wanted["groups"]))):
        run("groupdel", name)
        log(f"removed group {name}")
        changed.append(True)
    changed.append(converge_subordinate_ids(users))
    if with_homes:
        changed += [homes.converge(user["name"], user["uid"], user["gid"], user["keys"]) for user in users]
    write(MANAGED, json.dumps(wanted) + "\n")
    return any(changed)


def removed_names(users: list[UnixUser]) -> set[str]:
    """Return the names of the users that the set-up made and that are not in `users`."""
    return _managed()["users"] - {user["name"] for user in users}


def _managed() -> dict[str, set[str]]:
    names = read_json(MANAGED, {})
    return {"users": set(names.get("users", [])), "groups": set(names.get("groups", []))}


def _converge_group(group: Group) -> bool:
    name, gid = group["name"], group["gid"]
    if has_group(name):
        if grp.getgrnam(name).gr_gid != gid:
            raise SetupError(
                f"group {name} has gid {grp.getgrnam(name).gr_gid} on this machine, the stack says {gid}. "
                "Its files would change hands: keep the number, or move the files first."
            )
        return False
    run("groupadd", "--gid", str(gid), name)
    log(f"made group {name} ({gid})")
    return True


def _converge_user(user: UnixUser) -> bool:
    name, uid, gid = user["name"], user["uid"], user["gid"]
    groups = set(user["groups"])
    if not has_user(name):
        options = ("--shell", user["shell"], "--home-dir", f"/home/{name}", "--no-create-home")
        run("useradd", "--uid", str(uid), "--gid", str(gid), "--groups", ",".join(sorted(groups)), *options, name)
        log(f"made user {name} ({uid})")
        return True
    account = pwd.getpwnam(name)
    if account.pw_uid != uid:
        raise SetupError(
            f"user {name} has uid {account.pw_uid} on this machine, the stack says {uid}. "
            "Files and running jobs belong to the number: keep it, or remove the user first and move the files."
        )
    member_of = {group.gr_name for group in grp.getgrall() if name in group.gr_mem}
    # If a removal was interrupted and then reverted, the account is still closed.
    reopen = ["--expiredate", ""] if is_closed(name) else []
    if account.pw_gid == gid and account.pw_shell == user["shell"] and member_of == groups and not reopen:
        return False
    run("usermod", "--gid", str(gid), "--groups", ",".join(sorted(groups)), "--shell", user["shell"], *reopen, name)
    log(f"changed user {name}")
    return True


def end_processes(name: str, uid: int) -> None:
    """Close the account, and end all processes of the user, with SIGKILL if SIGTERM is not enough."""
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
    """Return whether `end_processes` has closed this account."""
    try:
        rows = [line.split(":") for line in SHADOW.read_text().splitlines()]
    except FileNotFoundError:
        return False
    return any(row[0] == name and row[7:8] == [EXPIRED] for row in rows)


def processes(uid: int) -> Iterator[int]:
    """Yield the ids of the processes whose real, effective or saved uid is this one."""
    for folder in PROC.iterdir():
        if folder.name.isdigit() and _runs_as(int(folder.name), uid):
            yield int(folder.name)


def _send_signal(pid: int, uid: int, number: signal.Signals) -> None:
    """Send a signal to a process if it is still the user's, by a pidfd, since another process may get the same id."""
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
    # A zombie (Z) has ended, and its parent has not waited for it yet.
    return str(uid) in fields["Uid"].split() and not fields["State"].strip().startswith("Z")


def converge_sudoers(users: list[UnixUser]) -> bool:
    """Write the users with `sudo` to SUDOERS, without a file if there are none; return whether anything changed.

    A machine without sudo gets no file. Raises SetupError, and installs nothing, if visudo refuses the file.
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

    # An invalid file would stop sudo for everybody.
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
    """Return the users in SUDOERS; None on a machine without sudo."""
    if not has_sudo():
        return None
    try:
        lines = SUDOERS.read_text().splitlines()
    except FileNotFoundError:
        return set()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def has_sudo() -> bool:
    """Return whether this machine has sudo, and visudo to check its files."""
    return all(which(name, "/usr/sbin:/usr/bin:/sbin:/bin") for name in ("sudo", "visudo"))


def converge_subordinate_ids(users: list[UnixUser]) -> bool:
    """Give users with `containers: true` a range, and remove those of users with false; return whether any changed.

    Users without the key keep the range of useradd. The users must exist.
    """
    changed = False
    for user in users:
        allowed = user.get("containers")
        if allowed is None:
            continue
        name = user["name"]
        for letter, file in SUBORDINATE_IDS.items():
            ranges = _ranges(file)
            own = [(first, count) for owner, first, count in ranges if owner in (name, str(user["uid"]))]
            if allowed and not own:
                first = max([FIRST_SUBORDINATE_ID, *(first + count for _, first, count in ranges)])
                run("usermod", f"--add-sub{letter}ids", f"{first}-{first + SUBORDINATE_ID_COUNT - 1}", name)
                log(f"{name}: sub{letter}ids {first} to {first + SUBORDINATE_ID_COUNT - 1}")
                changed = True
            for first, count in [] if allowed else own:
                run("usermod", f"--del-sub{letter}ids", f"{first}-{first + count - 1}", name)
                log(f"{name}: no sub{letter}ids any more")
                changed = True
    return changed


def subordinate_id_owners() -> set[str]:
    """Return the names, or the uids as text, of the users who have a range of uids."""
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
