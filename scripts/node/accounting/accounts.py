"""Clusters, accounts, QOS and users in Slurm's database, made to match the stack by sacctmgr.

What was made before is remembered here, so that only what is ours is ever taken away. Job records always stay: sacctmgr
keeps those of a deleted user or account.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm import join
from system.host import SetupError, log, read_json, run, write

# On the state disk where there is one: it belongs to the database.
MANAGED = Path("/var/lib/hpc/controller/accounting.json")
FORMER = Path("/etc/hpc/accounting.json")  # where earlier versions had it
NODES_SECONDS = 60  # nodes look for a new config version every two seconds
TRES_SECONDS = 15  # slurmctld tells slurmdbd of its GPUs when it registers, a moment after it answers
NOTHING: dict[str, Any] = {"accounts": [], "users": [], "qos": []}
Command = list[str]
Row = dict[str, Any]


def converge(desired: dict[str, Any]) -> None:
    """Make accounts, QOS and users as `desired` says: {cluster, accounts, users, qos}, accounts with parents first.

    Raises SetupError with sacctmgr's own words; what was done by then is seen and kept by the next run.
    """
    if FORMER.exists() and not MANAGED.exists():
        write(MANAGED, FORMER.read_text())
        FORMER.unlink()
    before = read_json(MANAGED, NOTHING)
    if {row["name"] for row in desired["users"]} - {row["name"] for row in before["users"]}:
        # A job of somebody whom its node does not know yet would drain the node.
        join.wait_for_config_version(seconds=NODES_SECONDS)
    for command in plan(desired, before, existing()):
        _tell(command)
        log("sacctmgr " + " ".join(command))
    write(MANAGED, json.dumps(desired, indent=1) + "\n")


def _tell(command: Command) -> None:
    """Run one command, again while the database does not know a resource yet that slurmctld is about to register."""
    end = time.monotonic() + TRES_SECONDS
    while True:
        try:
            run("sacctmgr", "--immediate", *command)
        except SetupError as error:
            # It was so already: a run was cut off before it could remember.
            if "Nothing modified" in str(error):
                return
            if "TRES" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return


def existing() -> dict[str, set[Any]]:
    """What the database holds: names of accounts and QOS, and (user, account) for each membership."""
    memberships = {(user, account) for user, account in _list("association", "user", "account") if user}
    return {
        "accounts": {name for (name,) in _list("account", "account")},
        "qos": {name for (name,) in _list("qos", "name")},
        "users": memberships,
    }


def plan(desired: dict[str, Any], before: dict[str, Any], found: dict[str, set[Any]]) -> list[Command]:
    """The sacctmgr commands that lead from `before` (what we made last) and `found` (what is there) to `desired`.

    A pure function. Things are made before they are named, and taken away after nobody names them.
    """
    return [
        *_named("qos", desired["qos"], before["qos"], found["qos"]),
        *_named("account", desired["accounts"], before["accounts"], found["accounts"]),
        *_users(desired["users"], before["users"], found["users"]),
        *_removals(desired, before, found),
    ]


def _named(kind: str, desired: list[Row], before: list[Row], found: set[str]) -> Iterator[Command]:
    known = {row["name"]: row for row in before}
    for row in desired:
        name = row["name"]
        settings = [f"{key}={value}" for key, value in row.items() if key != "name"]
        if name not in found:
            yield ["add", kind, name, *settings]
        elif row != known.get(name):
            # A limit that is no longer named goes back to none.
            dropped = [f"{key}=-1" for key in known.get(name, {}) if key not in row]
            if settings or dropped:
                yield ["modify", kind, "where", f"name={name}", "set", *settings, *dropped]


def _users(desired: list[Row], before: list[Row], found: set[tuple[str, str]]) -> Iterator[Command]:
    known = {row["name"]: row for row in before}
    # New users with the same rights are made together: every call of sacctmgr takes half a second.
    new: dict[tuple[str, ...], list[str]] = {}
    for row in desired:
        name = row["name"]
        if not any(user == name for user, _ in found):
            new.setdefault((f"account={','.join(row['accounts'])}", *_rights(row)), []).append(name)
            continue
        missing = [account for account in row["accounts"] if (name, account) not in found]
        if missing:
            yield ["add", "user", f"name={name}", f"account={','.join(missing)}"]
        old = _rights(known[name]) if name in known else []
        rights = _rights(row)
        if missing or old != rights:
            # A QOS that is no longer given goes back to Slurm's own.
            back = ["qos=normal", "defaultqos=-1"] if len(rights) < len(old) else []
            yield ["modify", "user", "where", f"name={name}", "set", *rights, *back]
    yield from (["add", "user", f"name={','.join(names)}", *settings] for settings, names in new.items())


def _rights(row: Row) -> list[str]:
    qos = [f"qos={','.join(row['qos'])}", f"defaultqos={row['qos'][0]}"] if row["qos"] else []
    return [f"defaultaccount={row['default_account']}", *qos]


def _removals(desired: dict[str, Any], before: dict[str, Any], found: dict[str, set[Any]]) -> Iterator[Command]:
    wanted = {row["name"]: set(row["accounts"]) for row in desired["users"]}
    for row in before["users"]:
        name = row["name"]
        if name not in wanted:
            if any(user == name for user, _ in found["users"]):
                yield ["delete", "user", f"name={name}"]
            continue
        for account in row["accounts"]:
            if account not in wanted[name] and (name, account) in found["users"]:
                yield ["delete", "user", f"name={name}", f"account={account}"]
    # Children before parents: the lists have parents first.
    yield from _gone("account", "accounts", desired, before, found)
    yield from _gone("qos", "qos", desired, before, found)


def _gone(
    kind: str, key: str, desired: dict[str, Any], before: dict[str, Any], found: dict[str, set[Any]]
) -> Iterator[Command]:
    names = {row["name"] for row in desired[key]}
    for row in reversed(before[key]):
        if row["name"] not in names and row["name"] in found[key]:
            yield ["delete", kind, f"name={row['name']}"]


def _list(kind: str, *fields: str) -> list[tuple[str, ...]]:
    text = run("sacctmgr", "--noheader", "--parsable2", "show", kind, f"format={','.join(fields)}")
    return [tuple(line.split("|")) for line in text.split("\n") if line]
