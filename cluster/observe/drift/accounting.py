"""Slurm's database: the stack's accounts, users and QOS. What others added to it is theirs."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.config.accounting import Qos
from cluster.config.metadata import slurm_fields
from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.drift.values import alike, span
from cluster.observe.health import ClusterObservation

Row = Mapping[str, Any]
TRES = {"MaxTRESPerJob", "MaxTRESPerUser", "GrpTRES"}
LISTS = {"Preempt", "Flags"}
LIMITS = tuple(slurm.parameter for _, slurm in slurm_fields(Qos))
"""What a stack can set of a QOS."""
PLACE = {"account", "user", "parentname", "share", "defaultqos", "qos"}
"""Of an association, what is no limit."""


def ledger(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Accounts, users and QOS of the stack that differ in the database."""
    found = {name: seen.controller.part("accounting", name) for name in ("accounts", "associations", "users", "qos")}
    if any(part is None for part in found.values()):
        return
    where = seen.controller.name
    for row in wanted.accounting["qos"]:
        yield from _qos(where, row, found["qos"].get(row["name"]))
    places = {one["account"]: one for one in found["associations"] if not one["user"]}
    for row in wanted.accounting["accounts"]:
        yield from _account(where, row, found["accounts"].get(row["name"]), places.get(row["name"], {}))
    for row in wanted.accounting["users"]:
        mine = {one["account"]: one for one in found["associations"] if one["user"] == row["name"]}
        yield from _user(where, row, found["users"].get(row["name"]), mine)


def _qos(where: str, row: Row, found: Row | None) -> Iterator[Difference]:
    name = row["name"]
    if found is None:
        yield _of(where, f"QOS {name}", "a QOS", "no such QOS")
        return
    for key in LIMITS:
        said, there = row.get(key, ""), found.get(key, "")
        if not _same(key, said, there):
            words = ("modify", "qos", "where", f"name={name}", "set", f"{key}={_value(key, said, there)}")
            yield _of(where, f"QOS {name}: {key}", said or "no limit", there or "no limit", *words)


def _account(where: str, row: Row, found: Row | None, place: Row) -> Iterator[Difference]:
    name = row["name"]
    if found is None:
        yield _of(where, f"account {name}", "an account", "no such account")
        return
    there = {
        "description": found["description"],
        "organization": found["organization"],
        "parent": place.get("parentname", ""),
        "fairshare": place.get("share", ""),
    }
    said = {**row, "fairshare": row.get("fairshare", 1)}
    for key, value in there.items():
        # Slurm keeps descriptions and organizations in lower case.
        if str(said[key]).lower() != value.lower():
            words = ("modify", "account", "where", f"name={name}", "set", f"{key}={said[key]}")
            yield _of(where, f"account {name}: {key}", str(said[key]), value or "none", *words)
    yield from _limits(where, f"account {name}", place, ("modify", "account", "where", f"name={name}"))


def _user(where: str, row: Row, default: str | None, mine: Mapping[str, Row]) -> Iterator[Difference]:
    name = row["name"]
    modify = ("modify", "user", "where", f"name={name}")
    if default is None:
        yield _of(where, f"user {name} in the accounting", "a user", "no such user")
        return
    if default != row["default_account"]:
        words = (*modify, "set", f"defaultaccount={row['default_account']}")
        yield _of(where, f"user {name}: default account", row["default_account"], default or "none", *words)
    for account in row["accounts"]:
        if account not in mine:
            yield _of(where, f"user {name}: account {account}", "a member", "not a member")
            continue
        place = mine[account]
        said, there = row["qos"] or ["normal"], sorted(filter(None, place["qos"].split(",")))
        if sorted(said) != there:
            words = (*modify, f"account={account}", "set", f"qos={','.join(said)}")
            yield _of(where, f"user {name} in {account}: QOS", ",".join(said), ",".join(there) or "none", *words)
        first = row["qos"][0] if row["qos"] else ""
        if place["defaultqos"] != first:
            words = (*modify, f"account={account}", "set", f"defaultqos={first or -1}")
            yield _of(
                where, f"user {name} in {account}: default QOS", first or "none", place["defaultqos"] or "none", *words
            )
        if place["share"] != "1":
            words = (*modify, f"account={account}", "set", "fairshare=1")
            yield _of(where, f"user {name} in {account}: fairshare", "1", place["share"], *words)
        yield from _limits(where, f"user {name} in {account}", place, (*modify, f"account={account}"))


def _limits(where: str, what: str, place: Row, modify: tuple[str, ...]) -> Iterator[Difference]:
    """Limits of an account or of a user in one. A stack sets none: it limits by QOS."""
    for key, there in place.items():
        if key not in PLACE and there:
            value = _value("GrpTRES", "", there) if "TRES" in key else "-1"
            yield _of(where, f"{what}: {key}", "no limit", there, *modify, "set", f"{key}={value}")


def _same(key: str, said: str, there: str) -> bool:
    if key == "Priority":
        return int(said or 0) == int(there or 0)
    if key in TRES or key in LISTS:
        return set(filter(None, said.lower().split(","))) == set(filter(None, there.lower().split(",")))
    if key == "MaxWall" and said and there:
        # A lone number is minutes here, as everywhere in sacctmgr.
        return _minutes(said) == _minutes(there)
    return bool(said) == bool(there) and alike(said, there)


def _minutes(text: str) -> int | None:
    return int(text) * 60 if text.isdigit() else span(text)


def _value(key: str, said: str, there: str) -> str:
    """The value for sacctmgr that makes `there` into `said`: sacctmgr keeps what is not named, so that is set to -1."""
    if key in TRES:
        kept = {word.partition("=")[0] for word in said.split(",")}
        gone = [name for word in there.split(",") if (name := word.partition("=")[0]) and name not in kept]
        return ",".join([*filter(None, [said]), *(f"{name}=-1" for name in gone)])
    if key == "Preempt":
        return said
    if key == "Priority":
        return said or "0"
    return said or "-1"


def _of(where: str, what: str, stack: str, there: str, *words: str) -> Difference:
    return Difference(id="accounting-changed", where=(where,), what=what, stack=stack, there=there, sacctmgr=words)
