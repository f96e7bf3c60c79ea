"""Commands of sacctmgr change the database from any contents to those of the stack."""

import contextlib
import copy
import itertools
import json
from typing import Any

import pytest
from accounting import accounts
from hypothesis import given, settings
from hypothesis import strategies as st
from system.host import SetupError

from cluster.config.accounting import GroupLimits, Qos
from cluster.config.section import slurm_fields
from tests.node.accounting.sacctmgr import Database, Killed


def user(name: str, accounts: list[str], qos: list[str] | None = None) -> dict[str, Any]:
    return {"name": name, "default_account": accounts[0], "accounts": accounts, "qos": qos or []}


DESIRED: dict[str, Any] = {
    "cluster": "dev",
    "accounts": [
        {"name": "science", "parent": "root", "description": "Everybody", "organization": "lab"},
        {
            "name": "research",
            "parent": "science",
            "description": "r",
            "organization": "science",
            "fairshare": 3,
            "GrpTRESMins": "cpu=600,gres/gpu=24000",
            "GrpJobs": "20",
        },
    ],
    "users": [
        user("alice", ["research", "science"], ["normal", "urgent"]) | {"GrpTRES": "gres/gpu=8"},
        user("bob", ["science"]),
    ],
    "qos": [{"name": "urgent", "Priority": "100", "MaxWall": "01:00:00", "MaxTRESPerUser": "cpu=4,node=2"}],
}
NONE = {"cluster": "dev", **accounts.NOTHING}
LIMITS, RIGHTS = "GrpTRESMins=cpu=600,gres/gpu=24000 GrpJobs=20", "qos=normal,urgent defaultqos=normal"


@pytest.fixture
def database(tmp_path, monkeypatch):
    """An empty database, with MANAGED in a temporary folder."""
    return _connect(monkeypatch, tmp_path)


def _connect(patch, folder):
    there = Database()
    for module in (accounts, accounts.database):
        patch.setattr(module, "run", there.run)
    patch.setattr(accounts, "listens", lambda _: True)
    patch.setattr(accounts.join, "wait_for_config_version", lambda **_: None)
    patch.setattr(accounts, "MANAGED", folder / "managed.json")
    patch.setattr(accounts, "TRES_SECONDS", 0)
    patch.setattr(accounts, "_busy_associations", set)
    patch.setattr(accounts, "write", lambda path, text, **_: path.write_text(text))
    return there


def converge(desired):
    accounts.converge(copy.deepcopy(desired))


def edited(**changes):
    """The cluster with other values of `kind_name`: {key: value}, None for none."""
    found = copy.deepcopy(DESIRED)
    for place, values in changes.items():
        kind, _, name = place.partition("_")
        row = next(row for row in found[kind] if row["name"] == name)
        row.update(values)
        for key in [key for key, value in row.items() if value is None]:
            del row[key]
    return found


def without(kind, name):
    return {**DESIRED, kind: [row for row in DESIRED[kind] if row["name"] != name]}


def test_entities_are_added_in_order(database):
    converge(DESIRED)
    assert database.commands == [
        "add qos urgent Priority=100 MaxWall=01:00:00 MaxTRESPerUser=cpu=4,node=2",
        "add account science parent=root description=Everybody organization=lab",
        f"add account research parent=science description=r organization=science fairshare=3 {LIMITS}",
        f"add user name=alice account=research,science defaultaccount=research {RIGHTS} GrpTRES=gres/gpu=8",
        "add user name=bob account=science defaultaccount=science",
    ]


def test_a_current_database_needs_no_command(database):
    converge(DESIRED)
    del database.commands[:]
    converge(DESIRED)
    assert database.commands == []


def set_slurmctld(monkeypatch, database, *answers):
    """Set slurmctld's associations: a list of (account, user) per request; the last one stays."""
    row = "ClusterName=dev Account={} UserName={} Partition= ID=3\n".format
    rest = [
        "Association Records\n" + "".join(row(account, f"{user}(2001)" if user else "") for account, user in answer)
        for answer in answers
    ]

    def run(*words, **more):
        if words[0] != "scontrol":
            return database.run(*words, **more)
        return rest.pop(0) if len(rest) > 1 else rest[0]

    monkeypatch.setattr(accounts, "run", run)
    monkeypatch.setattr(accounts, "CACHE_SECONDS", 1)


class TestWaitForAssociations:
    ALL = (("science", ""), ("research", "alice"), ("science", "alice"), ("science", "bob"))

    def test_it_waits_for_missing_associations(self, database, monkeypatch):
        converge(DESIRED)
        set_slurmctld(monkeypatch, database, self.ALL[:2], self.ALL[:2], self.ALL)
        accounts.wait_for_associations()

    def test_a_deleted_association_is_not_awaited(self, database, monkeypatch):
        converge(DESIRED)
        database.run("sacctmgr", "--immediate", "delete", "user", "name=bob")
        set_slurmctld(monkeypatch, database, self.ALL[:3])
        accounts.wait_for_associations()

    def test_it_fails_if_slurmctld_never_has_them(self, database, monkeypatch):
        converge(DESIRED)
        set_slurmctld(monkeypatch, database, self.ALL[:2])
        with pytest.raises(SetupError, match="the associations of the stack's users in slurmctld did not come within"):
            accounts.wait_for_associations()


@pytest.mark.parametrize(
    ("new", "commands"),
    [
        # Beside its parent, which stays, sacctmgr takes no other value of an account.
        (edited(accounts_research={"fairshare": 5}), ["modify account where name=research set fairshare=5"]),
        (edited(accounts_research={"fairshare": None}), ["modify account where name=research set fairshare=1"]),
        (edited(accounts_research={"parent": "root", "fairshare": 5, "description": "New"}),
         ["modify account where name=research set parent=root description=New fairshare=5"]),
        (edited(qos_urgent={"MaxWall": None}), ["modify qos where name=urgent set MaxWall=-1"]),
        (edited(qos_urgent={"MaxWall": "60"}), []),
        (edited(qos_urgent={"Priority": None, "Flags": "DenyOnLimit"}),
         ["modify qos where name=urgent set Priority=0 Flags=DenyOnLimit"]),
        # It keeps what is not named.
        (edited(qos_urgent={"MaxTRESPerUser": "cpu=8"}),
         ["modify qos where name=urgent set MaxTRESPerUser=cpu=8,node=-1"]),
        (edited(qos_urgent={"MaxTRESPerUser": None}),
         ["modify qos where name=urgent set MaxTRESPerUser=cpu=-1,node=-1"]),
        (edited(accounts_research={"GrpTRESMins": "gres/gpu=12000", "GrpJobs": None, "GrpSubmitJobs": "0"}),
         ["modify account where name=research set GrpTRESMins=gres/gpu=12000,cpu=-1 GrpJobs=-1 GrpSubmitJobs=0"]),
        (edited(accounts_research={"GrpTRESMins": None, "GrpJobs": None}),
         ["modify account where name=research set GrpTRESMins=cpu=-1,gres/gpu=-1 GrpJobs=-1"]),
        (edited(users_alice={"GrpTRES": None, "GrpJobs": "5"}),
         ["modify user where name=alice account=research,science set GrpTRES=gres/gpu=-1 GrpJobs=5"]),
        (edited(users_alice={"qos": []}),
         ["modify user where name=alice account=research,science set qos=normal defaultqos=-1"]),
        (edited(users_bob={"default_account": "research", "accounts": ["research"]}),
         ["add user name=bob account=research", "modify user where name=bob set defaultaccount=research",
          "delete user name=bob account=science"]),
        (edited(users_bob={"accounts": ["science", "research"], "qos": ["urgent"]}),
         ["add user name=bob account=research",
          "modify user where name=bob account=science,research set qos=urgent defaultqos=urgent"]),
        (NONE, ["delete user name=bob", "delete user name=alice", "delete account name=research",
                "delete account name=science", "delete qos name=urgent"]),
    ],
)  # fmt: skip
def test_an_edit_sends_only_differences(database, new, commands):
    converge(DESIRED)
    del database.commands[:]
    converge(new)
    assert sorted(database.commands) == sorted(commands)
    assert accounts.plan(new, accounts.merged(DESIRED, new), accounts.read_database()) == []


def test_a_user_with_jobs_stays_in_the_account_that_is_left_until_they_end(database, monkeypatch):
    """sacctmgr refuses to remove an association with jobs, and an account with one, or above one."""
    moved = edited(
        users_alice={"accounts": ["lab"], "default_account": "lab"},
        users_bob={"accounts": ["lab"], "default_account": "lab"},
    )
    lab = {"name": "lab", "parent": "root", "description": "l", "organization": "lab"}
    moved |= {"accounts": [lab]}
    converge(DESIRED)
    del database.commands[:]
    monkeypatch.setattr(accounts, "_busy_associations", lambda: {("alice", "research"), ("bob", "lab")})
    converge(moved)
    removed = [command for command in database.commands if command.startswith("delete")]
    assert removed == ["delete user name=alice account=science", "delete user name=bob account=science"]
    assert {("alice", "research"), ("alice", "lab"), ("bob", "lab")} == {
        (row["user"], row["account"]) for row in accounts.associations() if row["user"] not in ("", "root")
    }
    del database.commands[:]
    converge(moved)
    assert database.commands == []
    monkeypatch.setattr(accounts, "_busy_associations", set)
    converge(moved)
    assert database.commands == [
        "delete user name=alice account=research", "delete account name=research", "delete account name=science",
    ]  # fmt: skip
    assert json.loads(accounts.MANAGED.read_text()) == moved


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (NONE, DESIRED),
        (DESIRED, NONE),
        (DESIRED, without("users", "alice")),
        (DESIRED, edited(qos_urgent={"Priority": "5", "GrpTRES": "cpu=64"}, accounts_research={"fairshare": 9},
                         users_bob={"accounts": ["science", "research"], "qos": ["urgent"]})),
    ],
)  # fmt: skip
def test_the_next_run_completes_one_killed_at_any_command(tmp_path, monkeypatch, old, new, lost):
    for at, goal in itertools.product(range(10), (old, new)):
        database = _connect(monkeypatch, tmp_path)
        accounts.MANAGED.unlink(missing_ok=True)
        converge(old)
        there = copy.deepcopy((database.accounts, database.places, database.users))
        database.kill_at, database.lost = len(database.commands) + at, lost
        with contextlib.suppress(Killed):
            converge(new)
        database.kill_at = float("inf")
        converge(goal)
        assert accounts.plan(goal, accounts.merged(new, old), accounts.read_database(), mend=True) == []
        assert json.loads(accounts.MANAGED.read_text()) == goal
        if goal == old and NONE not in (old, new):
            assert (database.accounts, database.places, database.users) == there


def test_a_value_that_is_set_already_is_not_sent(database):
    converge(DESIRED)
    database.run("sacctmgr", "-i", "modify", "account", "where", "name=research", "set", "fairshare=7")
    database.run("sacctmgr", "-i", "modify", "qos", "where", "name=urgent", "set", "Priority=7")
    del database.commands[:]
    converge(edited(accounts_research={"fairshare": 7}, qos_urgent={"Priority": "7"}))
    assert database.commands == []


def test_changes_by_the_sacctmgr_of_a_killed_run_are_accepted(database, monkeypatch):
    once = []

    def run(*words, **_):
        if "science" in words and not once:
            once.append(words)
            database.run(*words)
        return database.run(*words)

    monkeypatch.setattr(accounts, "run", run)
    converge(DESIRED)
    assert once
    assert accounts.plan(DESIRED, DESIRED, accounts.read_database()) == []


def test_a_refused_command_fails_and_is_repeated(database, monkeypatch):
    def run(*words, **_):
        if "delete" in words:
            raise SetupError("Error with request: Job(s) active, cancel job(s) before remove")
        return database.run(*words)

    converge(DESIRED)
    monkeypatch.setattr(accounts, "run", run)
    with pytest.raises(SetupError, match=r"Job\(s\) active"):
        converge(without("users", "bob"))
    monkeypatch.setattr(accounts, "run", database.run)
    converge(without("users", "bob"))
    assert "bob" not in database.users, "what was ours is not forgotten by a run that failed"


def test_entities_of_others_are_never_removed(database):
    converge(DESIRED)
    for words in (
        ["add", "account", "theirs", "parent=root", "description=x", "organization=y"],
        ["add", "user", "name=carol", "account=theirs"],
        ["add", "user", "name=bob", "account=theirs"],
        ["add", "qos", "theirs"],
        ["modify", "user", "where", "name=bob", "set", "MaxJobs=1", "GrpTRES=node=2", "qos=normal,theirs"],
        ["modify", "qos", "where", "name=urgent", "set", "MaxJobsPerUser=3"],
    ):
        database.run("sacctmgr", "-i", *words)
    del database.commands[:]
    converge(DESIRED)
    assert database.commands == []
    accounts.converge({**copy.deepcopy(DESIRED), "mend": True})
    assert database.commands == [
        "modify qos where name=urgent set MaxJobsPerUser=-1",
        "modify user where name=bob account=science set qos=normal GrpTRES=node=-1 MaxJobs=-1",
    ]
    converge(NONE)
    assert {"carol", "theirs"} <= {*database.users, *database.accounts}
    assert "theirs" in database.qos


NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = {"description": "d", "organization": "o"}
WORLDS = st.fixed_dictionaries(
    {
        "accounts": st.permutations(["a", "b", "c"]).flatmap(
            lambda order: st.lists(st.integers(0, 3), min_size=3, max_size=3).map(
                lambda picks: [
                    {"name": name, "parent": ["root", *order[:at]][pick % (at + 1)], **TEXTS}
                    for at, (name, pick) in enumerate(zip(order, picks, strict=True))
                ]
            )
        ),
        "qos": st.lists(NAMES, unique=True).map(lambda names: [{"name": f"q{n}"} for n in names]),
        "users": st.lists(st.tuples(NAMES, NAMES), unique_by=lambda pair: pair[0]).map(
            lambda pairs: [user(name, [account]) for name, account in pairs]
        ),
    }
)
"""Accounts in any tree."""


@settings(max_examples=40)
@given(st.lists(WORLDS, min_size=2, max_size=3), st.integers(0, 8))
def test_any_edit_after_any_killed_one_succeeds(tmp_path_factory, worlds, at):
    with pytest.MonkeyPatch.context() as patch:
        database = _connect(patch, tmp_path_factory.mktemp("world"))
        converge(worlds[0])
        database.kill_at = len(database.commands) + at
        with contextlib.suppress(Killed):
            for world in worlds[1:]:
                converge(world)
        database.kill_at = float("inf")
        converge(worlds[-1])
        goal = worlds[-1]
        assert {*database.accounts} == {"root", *(row["name"] for row in goal["accounts"])}
        assert {*database.qos} == {"normal", *(row["name"] for row in goal["qos"])}
        assert database.users == {"root": "root", **{row["name"]: row["default_account"] for row in goal["users"]}}
        parents = {account: place["parentname"] for (account, user), place in database.places.items() if not user}
        assert parents == {"root": "", **{row["name"]: row["parent"] for row in goal["accounts"]}}


def test_new_users_with_the_same_rights_need_one_command(database):
    converge(DESIRED)
    del database.commands[:]
    converge({**DESIRED, "users": [*DESIRED["users"], *(user(f"u{number}", ["science"]) for number in range(200))]})
    assert len(database.commands) == 1


def test_every_limit_of_a_qos_and_of_an_association_is_read():
    assert [slurm.parameter for _, slurm in slurm_fields(Qos)] == list(accounts.QOS_LIMITS)
    assert {slurm.parameter for _, slurm in slurm_fields(GroupLimits)} <= {*accounts.LIMITS}


def test_memory_that_sacctmgr_prints_with_a_unit_is_the_same_limit(database):
    """sacctmgr prints 2048 MiB as 2G (CONVERT_NUM_UNIT_EXACT in src/sacctmgr/common.c at slurm-26-05-3-1)."""
    converge(edited(accounts_research={"GrpTRES": "mem=2048"}))
    database.places["research", ""]["grptres"] = "mem=2G"
    del database.commands[:]
    converge(edited(accounts_research={"GrpTRES": "mem=2048"}))
    assert database.commands == []
    converge(edited(accounts_research={"GrpTRES": "mem=1000"}))
    assert database.commands == ["modify account where name=research set GrpTRES=mem=1000"]


def test_hours_are_read_only_where_the_stack_limits_some(database, monkeypatch):
    converge(edited(accounts_research={"GrpTRESMins": None}))
    assert accounts.hours_used() == []
    converge(DESIRED)
    line = "ClusterName=dev Account=research UserName= GrpTRESMins=cpu=600(90) GrpTRESRunMins=cpu=N(30)\n"
    monkeypatch.setattr(accounts, "run", lambda *_, **__: f"Association Records\n\n{line}")
    assert accounts.hours_used() == [
        {"account": "research", "user": "", "resource": "cpu", "limit": 10.0, "used": 1.5, "reserved": 0.5}
    ]
