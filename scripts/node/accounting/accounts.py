"""Clusters, accounts, QOS and users in Slurm's database, made to match the stack by sacctmgr.

What was made before is remembered here, so that only what is ours is ever taken away. Job records always stay: sacctmgr
keeps those of a deleted user or account.
"""

import json
import re
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

from accounting import database
from slurm import join, output, slurmctld
from system.host import SetupError, listens, log, read_json, run, wait, write

# On the state disk where there is one: it belongs to the database.
MANAGED = Path("/var/lib/hpc/controller/accounting.json")
NODES_SECONDS = 180  # nodes look for a new config version every two seconds
TRES_SECONDS = 60  # slurmctld reports its GPUs to slurmdbd when it registers, a moment after it answers
READ_SECONDS = 120
NOTHING: dict[str, Any] = {"accounts": [], "users": [], "qos": []}
# sacctmgr's three messages, with exit code 1, for a value that the database holds already
# (src/sacctmgr/{user,account,qos}_functions.c, ESLURM_NO_CHANGE_IN_DATA, as_mysql_assoc.c).
UNCHANGED = ("Nothing modified", "Data has not changed since time specified", "Request didn't affect anything")
SACCTMGR_SECONDS = 3
CACHE_SECONDS = 180
_CACHED = re.compile(r"^ClusterName=\S+ Account=(\S+) UserName=([^\s(]+)\(", re.MULTILINE)
# What a stack can set of a QOS: sacctmgr's option, and the short name of the column that it prints.
QOS_LIMITS = {
    "Priority": "priority",
    "MaxWall": "maxwall",
    "MaxJobsPerUser": "maxjobspu",
    "MaxSubmitJobsPerUser": "maxsubmitpu",
    "MaxTRESPerJob": "maxtres",
    "MaxTRESPerUser": "maxtrespu",
    "GrpTRES": "grptres",
    "Preempt": "preempt",
    "Flags": "flags",
}
ON_PEOPLE = ("GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpWall", "MaxJobs", "MaxSubmitJobs", "MaxTRES", "MaxWall")
Command = list[str]
Row = dict[str, Any]


def converge(desired: dict[str, Any]) -> None:
    """Make accounts, QOS and users as `desired` says: {cluster, accounts, users, qos}, accounts with parents first.

    With a key `mend`, limits that the stack does not name are taken away as well. Raises SetupError with sacctmgr's own
    words; what was done by then is seen and kept by the next run.
    """
    mend = desired.pop("mend", False)
    before = read_json(MANAGED, NOTHING)
    if {row["name"] for row in desired["users"]} - {row["name"] for row in before["users"]}:
        # A job of somebody whom its node does not know yet would drain the node.
        join.wait_for_config_version(seconds=NODES_SECONDS)
    before = merged(before, desired)
    # Ours from here on, however far this run comes: the next one takes back what is too much.
    write(MANAGED, json.dumps(before, indent=1) + "\n", quiet=True)
    commands = plan(desired, before, read_database(), mend=mend)
    failed: list[Command] = []
    while commands:
        command = commands[0]
        try:
            _modify(command)
        except SetupError:
            # A run that was killed may have left its sacctmgr running: what counts is what the database holds now.
            commands = plan(desired, before, read_database(), mend=mend)
            if command in commands or command in failed:
                raise
            failed.append(command)
        else:
            log("sacctmgr " + " ".join(command))
            commands = commands[1:]
    write(MANAGED, json.dumps(desired, indent=1) + "\n")


def merged(before: dict[str, Any], desired: dict[str, Any]) -> dict[str, Any]:
    """Return what is ours while `before` becomes `desired`: all rows of both, with all that they say. A pure
    function."""
    found: dict[str, Any] = dict(desired)
    for kind in NOTHING:
        rows: dict[str, Row] = {row["name"]: dict(row) for row in before[kind]}
        for row in desired[kind]:
            old = rows.get(row["name"], {})
            lists = {
                key: [*row[key], *(name for name in old.get(key, ()) if name not in row[key])]
                for key in row.keys() & {"accounts", "qos"}
            }
            rows[row["name"]] = {**old, **row, **lists}
        found[kind] = list(rows.values())
    return found


def _modify(command: Command) -> None:
    """Run one command, again while the database does not know a resource yet that slurmctld is about to register."""
    end = time.monotonic() + TRES_SECONDS
    while True:
        try:
            run("sacctmgr", "--immediate", *command)
        except SetupError as error:
            if command[0] == "modify" and any(words in str(error) for words in UNCHANGED):
                return
            if "TRES" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return


def wait_for_associations() -> None:
    """Wait until slurmctld has the associations of the stack's users.

    A slurmctld that starts before slurmdbd listens reads those that it saved last, asks slurmdbd ten seconds later, and
    refuses jobs of newer users until then (ctld_assoc_mgr_init, slurmdbd_agent.c). Raises SetupError.
    """
    users = read_json(MANAGED, NOTHING)["users"]
    wanted = {(account, row["name"]) for row in users for account in row["accounts"]}
    if wanted <= _cached_associations():
        return
    # One that somebody deleted manually is drift: slurmctld never gets it.
    wanted &= {(row["account"], row["user"]) for row in associations(seconds=READ_SECONDS)}
    wait(
        "the associations of the stack's users in slurmctld",
        lambda: wanted <= _cached_associations(),
        seconds=CACHE_SECONDS,
        interval=0.5,
        hint="slurmctld refuses jobs of users without one: /var/log/slurm/slurmctld.log",
    )


def _cached_associations() -> set[tuple[str, str]]:
    """Return account and user of each association that slurmctld has in memory."""
    return set(_CACHED.findall(run("scontrol", "--oneliner", "show", "assoc_mgr", "flags=assoc")))


def read_database() -> dict[str, Any]:
    """Return what the database holds, as sacctmgr prints it."""
    return {name: read(seconds=READ_SECONDS) for name, read in PARTS.items()}


def plan(
    desired: dict[str, Any], before: dict[str, Any], found: dict[str, Any], *, mend: bool = False
) -> list[Command]:
    """The sacctmgr commands that lead from `found` (what the database holds) to `desired`.

    `before` is what was ours so far: what is in there and no longer wanted goes; with `mend`, so do limits that others
    set on what is ours. A pure function. Things are made before they are named, and taken away after nobody names
    them. No value is sent that is there: beside an account's unchanged parent, sacctmgr ignores all others and fails.
    """
    return [
        *_qos(desired["qos"], _named(before["qos"]), found["qos"], mend=mend),
        *_accounts(desired["accounts"], _named(before["accounts"]), found, mend=mend),
        *_users(desired["users"], _named(before["users"]), found, mend=mend),
        *_removals(desired, before, found),
    ]


def _named(rows: list[Row]) -> dict[str, Row]:
    return {row["name"]: row for row in rows}


def _qos(desired: list[Row], before: dict[str, Row], found: dict[str, Row], *, mend: bool) -> Iterator[Command]:
    for row in desired:
        name = row["name"]
        if name not in found:
            yield ["add", "qos", name, *(f"{key}={value}" for key, value in row.items() if key != "name")]
            continue
        ours = QOS_LIMITS if mend else {**row, **before.get(name, {})}
        settings = [
            f"{key}={output.limit_value(key, said, there)}"
            for key in QOS_LIMITS
            if key in ours and not output.same_limit(key, said := row.get(key, ""), there := found[name].get(key, ""))
        ]
        if settings:
            yield ["modify", "qos", "where", f"name={name}", "set", *settings]


def _accounts(desired: list[Row], before: dict[str, Row], found: dict[str, Any], *, mend: bool) -> Iterator[Command]:
    places = {row["account"]: row for row in found["associations"] if not row["user"]}
    for row in desired:
        name = row["name"]
        if name not in found["accounts"]:
            yield ["add", "account", name, *(f"{key}={value}" for key, value in row.items() if key != "name")]
            continue
        place = places.get(name, {})
        there = {**found["accounts"][name], "parent": place.get("parentname"), "fairshare": place.get("share")}
        said = {key: value for key, value in row.items() if key != "name"}
        if mend or "fairshare" in before.get(name, {}):
            said.setdefault("fairshare", 1)
        # Slurm keeps descriptions and organizations in lower case.
        settings = [f"{key}={value}" for key, value in said.items() if str(value).lower() != str(there[key]).lower()]
        settings += _unlimited(place) if mend else []
        if settings:
            yield ["modify", "account", "where", f"name={name}", "set", *settings]


def _users(desired: list[Row], before: dict[str, Row], found: dict[str, Any], *, mend: bool) -> Iterator[Command]:
    # New users with the same rights are made together: every call of sacctmgr takes half a second.
    new: dict[tuple[str, ...], list[str]] = {}
    for row in desired:
        name = row["name"]
        places = {place["account"]: place for place in found["associations"] if place["user"] == name}
        if not places:
            rights = [f"qos={','.join(row['qos'])}", f"defaultqos={row['qos'][0]}"] if row["qos"] else []
            words = (f"account={','.join(row['accounts'])}", f"defaultaccount={row['default_account']}", *rights)
            new.setdefault(words, []).append(name)
            continue
        missing = [account for account in row["accounts"] if account not in places]
        if missing:
            yield ["add", "user", f"name={name}", f"account={','.join(missing)}"]
        if found["users"].get(name) != row["default_account"]:
            yield ["modify", "user", "where", f"name={name}", "set", f"defaultaccount={row['default_account']}"]
        changes: dict[tuple[str, ...], list[str]] = {}
        for account in row["accounts"]:
            place = places.get(account, {"qos": "normal", "defaultqos": "", "share": "1"})
            settings = tuple(_rights(row, before.get(name), place, mend=mend))
            changes.setdefault(settings, []).append(account)
        for settings, accounts in changes.items():
            if settings:
                yield ["modify", "user", "where", f"name={name}", f"account={','.join(accounts)}", "set", *settings]
    yield from (["add", "user", f"name={','.join(names)}", *settings] for settings, names in new.items())


def _rights(row: Row, before: Row | None, place: Row, *, mend: bool) -> Iterator[str]:
    """Yield what differs of a user's QOS in an account; without any, `normal` is Slurm's own."""
    if row["qos"] or mend or (before or {}).get("qos"):
        said = row["qos"] or ["normal"]
        if set(said) != set(filter(None, place["qos"].split(","))):
            yield f"qos={','.join(said)}"
        first = row["qos"][0] if row["qos"] else ""
        if place["defaultqos"] != first:
            yield f"defaultqos={first or -1}"
    if mend:
        yield from ["fairshare=1"] if place["share"] != "1" else []
        yield from _unlimited(place)


def _unlimited(place: Row) -> list[str]:
    """Return what takes away the limits of an association: a stack sets none there, it limits by QOS."""
    none = {key: output.limit_value("GrpTRES" if "TRES" in key else key, "", place.get(key, "")) for key in ON_PEOPLE}
    return [f"{key}={value}" for key, value in none.items() if place.get(key)]


def _removals(desired: dict[str, Any], before: dict[str, Any], found: dict[str, Any]) -> Iterator[Command]:
    wanted = {row["name"]: set(row["accounts"]) for row in desired["users"]}
    there = {(row["user"], row["account"]) for row in found["associations"] if row["user"]}
    for row in before["users"]:
        name = row["name"]
        if name not in wanted:
            if any(user == name for user, _ in there):
                yield ["delete", "user", f"name={name}"]
            continue
        for account in row["accounts"]:
            if account not in wanted[name] and (name, account) in there:
                yield ["delete", "user", f"name={name}", f"account={account}"]
    # Children before parents, wherever an edit that failed has left them.
    parents = {row["account"]: row.get("parentname", "") for row in found["associations"] if not row["user"]}
    for name in sorted(_gone("accounts", desired, before, found["accounts"]), key=lambda name: -_depth(name, parents)):
        yield ["delete", "account", f"name={name}"]
    yield from (["delete", "qos", f"name={name}"] for name in _gone("qos", desired, before, found["qos"]))


def _gone(kind: str, desired: dict[str, Any], before: dict[str, Any], there: Container[str]) -> list[str]:
    kept = _named(desired[kind])
    return [name for name in reversed(_named(before[kind])) if name not in kept and name in there]


def _depth(name: str, parents: dict[str, str]) -> int:
    parent = parents.get(name, "")
    return _depth(parent, parents) + 1 if parent else 0


def known_accounts(*, seconds: float = SACCTMGR_SECONDS) -> dict[str, dict[str, str]]:
    """Every account: description, organization."""
    rows = _show("account", "account", "descr", "org", seconds=seconds)
    return {name: {"description": text, "organization": owner} for name, text, owner in rows}


def associations(*, seconds: float = SACCTMGR_SECONDS) -> list[dict[str, str]]:
    """Every account's place in the tree, and every user's in an account: parent, shares, QOS, limits that it has."""
    fields = ("account", "user", "parentname", "share", "defaultqos", "qos", *ON_PEOPLE)
    rows = [dict(zip(fields, row, strict=False)) for row in _show("assoc", *fields, seconds=seconds)]
    return [{key: value for key, value in row.items() if value or key not in ON_PEOPLE} for row in rows]


def default_accounts(*, seconds: float = SACCTMGR_SECONDS) -> dict[str, str]:
    """Every user's default account."""
    return {row[0]: row[1] for row in _show("user", "user", "defaultaccount", seconds=seconds)}


def known_qos(*, seconds: float = SACCTMGR_SECONDS) -> dict[str, dict[str, str]]:
    """Every QOS with the limits that it has, by the names of sacctmgr's options."""
    rows = _show("qos", "name", *QOS_LIMITS.values(), seconds=seconds)
    return {
        name: {key: value for key, value in zip(QOS_LIMITS, values, strict=False) if value} for name, *values in rows
    }


def _show(kind: str, *fields: str, seconds: float) -> list[list[str]]:
    # Without slurmdbd, sacctmgr tries for many seconds before it says so. Pods have their slurmdbd elsewhere.
    if (slurmctld.ETC / "slurmdbd.conf").exists() and not listens(slurmctld.SLURMDBD_PORT):
        raise SetupError(f"nothing listens on slurmdbd's port {slurmctld.SLURMDBD_PORT}")
    return database.sacctmgr_show(kind, *fields, timeout=seconds)


PARTS: dict[str, Callable[..., Any]] = {
    "accounts": known_accounts,
    "associations": associations,
    "users": default_accounts,
    "qos": known_qos,
}
