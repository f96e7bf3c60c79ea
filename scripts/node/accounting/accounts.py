"""Makes accounts, QOS and users in Slurm's database match the stack, by sacctmgr.

MANAGED has what earlier runs made, so that nothing of others is removed. Job records always stay: sacctmgr keeps those
of a deleted user or account.
"""

import json
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from accounting import database
from slurm import hours, join, output, scheduler, slurmctld
from system.host import SetupError, listens, log, read_json, run, succeeds, wait, write

# On the state disk if there is one, together with the database.
MANAGED = Path("/var/lib/hpc/controller/accounting.json")
NODES_SECONDS = 180  # nodes check for a new config version every two seconds
TRES_SECONDS = 60  # slurmctld reports its GPUs to slurmdbd when it registers, a moment after it starts to answer
READ_SECONDS = 120
NOTHING: dict[str, Any] = {"accounts": [], "users": [], "qos": []}
# sacctmgr's three messages, with exit code 1, if the database has the value already
# (src/sacctmgr/{user,account,qos}_functions.c, ESLURM_NO_CHANGE_IN_DATA, as_mysql_assoc.c).
UNCHANGED = ("Nothing modified", "Data has not changed since time specified", "Request didn't affect anything")
SACCTMGR_SECONDS = 3
CACHE_SECONDS = 180
_CACHED = re.compile(r"^ClusterName=\S+ Account=(\S+) UserName=([^\s(]+)\(", re.MULTILINE)
# The limits of a QOS that a stack can set: sacctmgr's option, and the short name of its column.
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
# The limits of an association: those that a stack can set, and others, which `mend` removes.
LIMITS = (
    "GrpTRESMins",
    "GrpTRES",
    "GrpJobs",
    "GrpSubmitJobs",
    "GrpWall",
    "MaxJobs",
    "MaxSubmitJobs",
    "MaxTRES",
    "MaxWall",
)
Command = list[str]
Row = dict[str, Any]
Associations = AbstractSet[tuple[str, str]]
"""Users, each with an account."""


def converge(desired: dict[str, Any]) -> None:
    """Make accounts, QOS and users match `desired`: {cluster, accounts, users, qos}, with parent accounts first.

    With the key `mend`, limits that the stack does not have are removed as well. A user's place in an account stays
    while jobs charge it, as sacctmgr does not remove it then; a later run removes it. Raises SetupError with sacctmgr's
    message; the next run continues from there.
    """
    mend = desired.pop("mend", False)
    before = read_json(MANAGED, NOTHING)
    if {row["name"] for row in desired["users"]} - {row["name"] for row in before["users"]}:
        # A job of a user that its node does not have yet would drain the node.
        join.wait_for_config_version(seconds=NODES_SECONDS)
    before = merged(before, desired)
    # Recorded before the changes: if this run is interrupted, the next one can remove what it has made.
    write(MANAGED, json.dumps(before, indent=1) + "\n", quiet=True)
    busy = _busy_associations()
    commands = plan(desired, before, read_database(), busy, mend=mend)
    failed: list[Command] = []
    while commands:
        command = commands[0]
        try:
            _modify(command)
        except SetupError:
            # The sacctmgr of a killed run may still be running, so that the database has changed since: plan again.
            busy = _busy_associations()
            commands = plan(desired, before, read_database(), busy, mend=mend)
            if command in commands or command in failed:
                raise
            failed.append(command)
        else:
            log("sacctmgr " + " ".join(command))
            commands = commands[1:]
    for user, account in sorted(_kept(desired, before, busy)):
        log(f"{user} stays in account {account} until the jobs there have ended: `./hpc drift STACK --mend` removes it")
    write(MANAGED, json.dumps(with_kept(desired, before, busy), indent=1) + "\n")


def _busy_associations() -> Associations:
    """Return user and account of the jobs that have not ended; none if slurmctld does not answer."""
    if not succeeds("scontrol", "ping"):
        return set()
    return {(job.user, job.account) for job in scheduler.all_jobs() if not job.ended}


def _kept(desired: dict[str, Any], before: dict[str, Any], busy: Associations) -> Associations:
    """Return the users' places in accounts that leave, and stay as jobs charge them."""
    users = _by_name(desired["users"])
    return {
        (name, account)
        for name, row in _by_name(before["users"]).items()
        for account in row["accounts"]
        if name in users and account not in users[name]["accounts"] and (name, account) in busy
    }


def _kept_accounts(desired: dict[str, Any], before: dict[str, Any], busy: Associations) -> set[str]:
    """Return the accounts that leave, and stay as users stay in them or in accounts below them."""
    parents = {row["name"]: row.get("parent", "") for row in before["accounts"]}
    kept = {account for _, account in _kept(desired, before, busy)}
    while above := {parents.get(account, "") for account in kept} - kept - {""}:
        kept |= above
    return kept - _by_name(desired["accounts"]).keys()


def with_kept(desired: dict[str, Any], before: dict[str, Any], busy: Associations) -> dict[str, Any]:
    """Return the stack's rows with what stays for the sake of jobs, which a later run can remove. A pure function."""
    kept, accounts = _kept(desired, before, busy), _kept_accounts(desired, before, busy)
    return {
        **desired,
        "users": [
            {**row, "accounts": [*row["accounts"], *sorted(account for name, account in kept if name == row["name"])]}
            for row in desired["users"]
        ],
        "accounts": [*desired["accounts"], *(row for row in before["accounts"] if row["name"] in accounts)],
    }


def merged(before: dict[str, Any], desired: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of both, with the keys of both: the stack's rows while `before` becomes `desired`. A pure
    function."""
    result: dict[str, Any] = dict(desired)
    for kind in NOTHING:
        rows: dict[str, Row] = {row["name"]: dict(row) for row in before[kind]}
        for row in desired[kind]:
            old = rows.get(row["name"], {})
            lists = {
                key: [*row[key], *(name for name in old.get(key, ()) if name not in row[key])]
                for key in row.keys() & {"accounts", "qos"}
            }
            rows[row["name"]] = {**old, **row, **lists}
        result[kind] = list(rows.values())
    return result


def _modify(command: Command) -> None:
    """Run one command, and repeat it while the database does not have a TRES that slurmctld is about to register."""
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
    """Wait until slurmctld has the associations of the stack's users. Raises SetupError after CACHE_SECONDS.

    If slurmctld starts before slurmdbd listens, it reads the associations that it saved last, asks slurmdbd ten seconds
    later, and refuses jobs of newer users until then (ctld_assoc_mgr_init, slurmdbd_agent.c).
    """
    users = read_json(MANAGED, NOTHING)["users"]
    wanted = {(account, row["name"]) for row in users for account in row["accounts"]}
    if wanted <= _cached_associations():
        return
    # An association that somebody deleted is drift: slurmctld never gets it.
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
    """Return the contents of the database, as sacctmgr prints them."""
    return {name: read(seconds=READ_SECONDS) for name, read in PARTS.items()}


def plan(
    desired: dict[str, Any],
    before: dict[str, Any],
    found: dict[str, Any],
    busy: Associations = frozenset(),
    *,
    mend: bool = False,
) -> list[Command]:
    """Return the sacctmgr commands that change the database from `found`, its contents, to `desired`. A pure function.

    What is in `before` (made by earlier runs) and not in `desired` is removed, but for accounts of users that are
    `busy` there (slurm_errno.c, ESLURM_JOBS_RUNNING_ON_ASSOC); with `mend`, also limits that others set
    on the stack's rows. Entities are created before they are referenced, and removed after that. Only values that
    differ are sent: if an account's parent is unchanged, sacctmgr ignores all other values and fails.
    """
    return [
        *_qos(desired["qos"], _by_name(before["qos"]), found["qos"], mend=mend),
        *_accounts(desired["accounts"], _by_name(before["accounts"]), found, mend=mend),
        *_users(desired["users"], _by_name(before["users"]), found, mend=mend),
        *_removals(desired, before, found, busy),
    ]


def _by_name(rows: list[Row]) -> dict[str, Row]:
    return {row["name"]: row for row in rows}


def _qos(desired: list[Row], before: dict[str, Row], found: dict[str, Row], *, mend: bool) -> Iterator[Command]:
    for row in desired:
        name = row["name"]
        if name not in found:
            yield ["add", "qos", name, *(f"{key}={value}" for key, value in row.items() if key != "name")]
            continue
        if settings := _limits(QOS_LIMITS, row, before.get(name, {}), found[name], mend=mend):
            yield ["modify", "qos", "where", f"name={name}", "set", *settings]


def _limits(keys: Iterable[str], row: Row, before: Row, found: Row, *, mend: bool) -> list[str]:
    """Return the settings of limits that differ: of those that the stack has or had, with `mend` of all `keys`."""
    managed = keys if mend else {**row, **before}
    limits = [(key, row.get(key, ""), found.get(key, "")) for key in keys if key in managed]
    return [
        f"{key}={output.limit_value(key, wanted, current)}"
        for key, wanted, current in limits
        if not output.same_limit(key, wanted, current)
    ]


def _accounts(desired: list[Row], before: dict[str, Row], found: dict[str, Any], *, mend: bool) -> Iterator[Command]:
    places = {row["account"]: row for row in found["associations"] if not row["user"]}
    for row in desired:
        name = row["name"]
        if name not in found["accounts"]:
            yield ["add", "account", name, *(f"{key}={value}" for key, value in row.items() if key != "name")]
            continue
        place = places.get(name, {})
        current = {**found["accounts"][name], "parent": place.get("parentname"), "fairshare": place.get("share")}
        wanted = {key: value for key, value in row.items() if key != "name" and key not in LIMITS}
        if mend or "fairshare" in before.get(name, {}):
            wanted.setdefault("fairshare", 1)
        # Slurm stores descriptions and organizations in lower case.
        settings = [
            f"{key}={value}" for key, value in wanted.items() if str(value).lower() != str(current[key]).lower()
        ]
        settings += _limits(LIMITS, row, before.get(name, {}), place, mend=mend)
        if settings:
            yield ["modify", "account", "where", f"name={name}", "set", *settings]


def _users(desired: list[Row], before: dict[str, Row], found: dict[str, Any], *, mend: bool) -> Iterator[Command]:
    # New users with the same rights are created by one command, because each call of sacctmgr takes half a second.
    new: dict[tuple[str, ...], list[str]] = {}
    for row in desired:
        name = row["name"]
        places = {place["account"]: place for place in found["associations"] if place["user"] == name}
        if not places:
            rights = [f"qos={','.join(row['qos'])}", f"defaultqos={row['qos'][0]}"] if row["qos"] else []
            rights += [f"{key}={row[key]}" for key in LIMITS if key in row]
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
            limits = _limits(LIMITS, row, before.get(name, {}), place, mend=mend)
            settings = (*_rights(row, before.get(name), place, mend=mend), *limits)
            changes.setdefault(settings, []).append(account)
        for settings, accounts in changes.items():
            if settings:
                yield ["modify", "user", "where", f"name={name}", f"account={','.join(accounts)}", "set", *settings]
    yield from (["add", "user", f"name={','.join(names)}", *settings] for settings, names in new.items())


def _rights(row: Row, before: Row | None, place: Row, *, mend: bool) -> Iterator[str]:
    """Yield the settings of a user's QOS in an account that differ. Slurm's default QOS is `normal`."""
    if row["qos"] or mend or (before or {}).get("qos"):
        qos = row["qos"] or ["normal"]
        if set(qos) != set(filter(None, place["qos"].split(","))):
            yield f"qos={','.join(qos)}"
        first = row["qos"][0] if row["qos"] else ""
        if place["defaultqos"] != first:
            yield f"defaultqos={first or -1}"
    if mend:
        yield from ["fairshare=1"] if place["share"] != "1" else []


def _removals(
    desired: dict[str, Any], before: dict[str, Any], found: dict[str, Any], busy: Associations
) -> Iterator[Command]:
    kept, kept_accounts = _kept(desired, before, busy), _kept_accounts(desired, before, busy)
    wanted = {row["name"]: set(row["accounts"]) for row in desired["users"]}
    associated = {(row["user"], row["account"]) for row in found["associations"] if row["user"]}
    for row in before["users"]:
        name = row["name"]
        if name not in wanted:
            if any(user == name for user, _ in associated):
                yield ["delete", "user", f"name={name}"]
            continue
        for account in row["accounts"]:
            if account not in wanted[name] and (name, account) in associated - kept:
                yield ["delete", "user", f"name={name}", f"account={account}"]
    # Children before parents, in the tree that the database has now.
    parents = {row["account"]: row.get("parentname", "") for row in found["associations"] if not row["user"]}
    for name in sorted(
        _removed("accounts", desired, before, found["accounts"]), key=lambda name: -_depth(name, parents)
    ):
        if name not in kept_accounts:
            yield ["delete", "account", f"name={name}"]
    yield from (["delete", "qos", f"name={name}"] for name in _removed("qos", desired, before, found["qos"]))


def _removed(kind: str, desired: dict[str, Any], before: dict[str, Any], existing: Container[str]) -> list[str]:
    """Return the names that are in `before` and in the database, and not in `desired`."""
    wanted = _by_name(desired[kind])
    return [name for name in reversed(_by_name(before[kind])) if name not in wanted and name in existing]


def _depth(name: str, parents: dict[str, str]) -> int:
    parent = parents.get(name, "")
    return _depth(parent, parents) + 1 if parent else 0


def known_accounts(*, seconds: float = SACCTMGR_SECONDS) -> dict[str, dict[str, str]]:
    """Return description and organization of every account."""
    rows = _show("account", "account", "descr", "org", seconds=seconds)
    return {name: {"description": text, "organization": owner} for name, text, owner in rows}


def associations(*, seconds: float = SACCTMGR_SECONDS) -> list[dict[str, str]]:
    """Return the association of every account and of every user in an account: parent, shares, QOS and limits."""
    fields = ("account", "user", "parentname", "share", "defaultqos", "qos", *LIMITS)
    rows = [dict(zip(fields, row, strict=False)) for row in _show("assoc", *fields, seconds=seconds)]
    return [{key: value for key, value in row.items() if value or key not in LIMITS} for row in rows]


def default_accounts(*, seconds: float = SACCTMGR_SECONDS) -> dict[str, str]:
    """Return every user's default account."""
    return {row[0]: row[1] for row in _show("user", "user", "defaultaccount", seconds=seconds)}


def known_qos(*, seconds: float = SACCTMGR_SECONDS) -> dict[str, dict[str, str]]:
    """Return the limits of every QOS, by the names of sacctmgr's options."""
    rows = _show("qos", "name", *QOS_LIMITS.values(), seconds=seconds)
    return {
        name: {key: value for key, value in zip(QOS_LIMITS, values, strict=False) if value} for name, *values in rows
    }


def hours_used(*, seconds: float = SACCTMGR_SECONDS) -> list[dict[str, Any]]:
    """Return the hours that the stack limits and how many of them are used (slurm/hours.py)."""
    managed = read_json(MANAGED, NOTHING)
    if not any("GrpTRESMins" in row for kind in ("accounts", "users") for row in managed[kind]):
        return []
    return [row._asdict() for row in hours.parse(run(*hours.COMMAND, timeout=seconds))]


def _show(kind: str, *fields: str, seconds: float) -> list[list[str]]:
    # Without slurmdbd, sacctmgr retries for many seconds. In pods without slurmdbd.conf, slurmdbd runs elsewhere.
    if (slurmctld.ETC / "slurmdbd.conf").exists() and not listens(slurmctld.SLURMDBD_PORT):
        raise SetupError(f"nothing listens on slurmdbd's port {slurmctld.SLURMDBD_PORT}")
    return database.sacctmgr_show(kind, *fields, timeout=seconds)


PARTS: dict[str, Callable[..., Any]] = {
    "accounts": known_accounts,
    "associations": associations,
    "users": default_accounts,
    "qos": known_qos,
}
