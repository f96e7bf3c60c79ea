"""Slurm's database: the stack's accounts, users and QOS. What others added to it is theirs."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.config.accounting import Qos
from cluster.config.metadata import slurm_fields
from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.health import ClusterObservation
from scripts.node.accounting.limits import same

Row = Mapping[str, Any]
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
        if not same(key, said, there):
            yield _of(where, f"QOS {name}: {key}", said or "no limit", there or "no limit")


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
    for key, text in there.items():
        # Slurm keeps descriptions and organizations in lower case.
        if str(said[key]).lower() != text.lower():
            yield _of(where, f"account {name}: {key}", str(said[key]), text or "none")
    yield from _limits(where, f"account {name}", place)


def _user(where: str, row: Row, default: str | None, mine: Mapping[str, Row]) -> Iterator[Difference]:
    name = row["name"]
    if default is None:
        yield _of(where, f"user {name} in the accounting", "a user", "no such user")
        return
    if default != row["default_account"]:
        yield _of(where, f"user {name}: default account", row["default_account"], default or "none")
    for account in row["accounts"]:
        if account not in mine:
            yield _of(where, f"user {name}: account {account}", "a member", "not a member")
            continue
        place = mine[account]
        said, there = row["qos"] or ["normal"], sorted(filter(None, place["qos"].split(",")))
        if sorted(said) != there:
            yield _of(where, f"user {name} in {account}: QOS", ",".join(said), ",".join(there) or "none")
        first = row["qos"][0] if row["qos"] else ""
        if place["defaultqos"] != first:
            there = place["defaultqos"] or "none"
            yield _of(where, f"user {name} in {account}: default QOS", first or "none", there)
        if place["share"] != "1":
            yield _of(where, f"user {name} in {account}: fairshare", "1", place["share"])
        yield from _limits(where, f"user {name} in {account}", place)


def _limits(where: str, what: str, place: Row) -> Iterator[Difference]:
    """Limits of an account or of a user in one. A stack sets none: it limits by QOS."""
    for key, there in place.items():
        if key not in PLACE and there:
            yield _of(where, f"{what}: {key}", "no limit", there)


def _of(where: str, what: str, stack: str, there: str) -> Difference:
    return Difference(id="accounting-changed", where=(where,), what=what, stack=stack, there=there)
