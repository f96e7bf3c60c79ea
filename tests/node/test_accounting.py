"""sacctmgr is told exactly what leads from what is there to what the stack says, in an order that it accepts."""

import itertools

from accounting import accounts, sacctmgr
from hypothesis import given
from hypothesis import strategies as st

from cluster.config.accounting import Qos
from cluster.config.metadata import slurm_fields

DESIRED = {
    "cluster": "dev",
    "accounts": [
        {"name": "science", "parent": "root", "description": "Everybody", "organization": "lab"},
        {"name": "research", "parent": "science", "description": "r", "organization": "science", "fairshare": 3},
    ],
    "users": [
        {
            "name": "alice",
            "default_account": "research",
            "accounts": ["research", "science"],
            "qos": ["normal", "urgent"],
        },
        {"name": "bob", "default_account": "science", "accounts": ["science"], "qos": []},
    ],
    "qos": [{"name": "urgent", "Priority": "100", "MaxWall": "01:00:00"}],
}
EMPTY = {"accounts": {"root"}, "qos": {"normal"}, "users": {("root", "root")}}
FULL = {
    "accounts": {"root", "science", "research"},
    "qos": {"normal", "urgent"},
    "users": {("root", "root"), ("alice", "research"), ("alice", "science"), ("bob", "science")},
}


def test_an_empty_database_gets_everything_in_order():
    assert accounts.plan(DESIRED, accounts.NOTHING, EMPTY) == [
        ["add", "qos", "urgent", "Priority=100", "MaxWall=01:00:00"],
        ["add", "account", "science", "parent=root", "description=Everybody", "organization=lab"],
        ["add", "account", "research", "parent=science", "description=r", "organization=science", "fairshare=3"],
        [
            "add",
            "user",
            "name=alice",
            "account=research,science",
            "defaultaccount=research",
            "qos=normal,urgent",
            "defaultqos=normal",
        ],
        ["add", "user", "name=bob", "account=science", "defaultaccount=science"],
    ]


def test_a_right_database_is_left_alone():
    assert accounts.plan(DESIRED, DESIRED, FULL) == []


def test_what_somebody_else_made_is_never_taken_away():
    found = {**FULL, "users": {*FULL["users"], ("carol", "theirs")}, "accounts": {*FULL["accounts"], "theirs"}}
    assert accounts.plan(DESIRED, DESIRED, found) == []


def test_a_user_who_moves_gets_the_new_account_before_losing_the_old_one():
    new = {
        **DESIRED,
        "users": [
            DESIRED["users"][0],
            {**DESIRED["users"][1], "default_account": "research", "accounts": ["research"]},
        ],
    }
    assert accounts.plan(new, DESIRED, FULL) == [
        ["add", "user", "name=bob", "account=research"],
        ["modify", "user", "where", "name=bob", "set", "defaultaccount=research"],
        ["delete", "user", "name=bob", "account=science"],
    ]


def test_what_the_stack_no_longer_names_goes_users_first_and_parents_last():
    nothing = {"cluster": "dev", **accounts.NOTHING}
    assert accounts.plan(nothing, DESIRED, FULL) == [
        ["delete", "user", "name=alice"],
        ["delete", "user", "name=bob"],
        ["delete", "account", "name=research"],
        ["delete", "account", "name=science"],
        ["delete", "qos", "name=urgent"],
    ]


def test_a_limit_that_is_dropped_goes_back_to_none():
    new = {**DESIRED, "qos": [{"name": "urgent", "Priority": "100"}]}
    assert accounts.plan(new, DESIRED, FULL) == [
        ["modify", "qos", "where", "name=urgent", "set", "Priority=100", "MaxWall=-1"]
    ]


NAMES = st.sampled_from(["a", "b", "c"])
WORLDS = st.fixed_dictionaries(
    {
        "accounts": st.lists(NAMES, unique=True).map(lambda names: [{"name": n, "parent": "root"} for n in names]),
        "qos": st.lists(NAMES, unique=True).map(lambda names: [{"name": n} for n in names]),
        "users": st.lists(st.tuples(NAMES, NAMES), unique_by=lambda pair: pair[0]).map(
            lambda pairs: [{"name": u, "default_account": a, "accounts": [a], "qos": []} for u, a in pairs]
        ),
    }
)


def closed(world):
    """A world whose users' accounts exist, as the configuration guarantees."""
    names = {row["name"] for row in world["accounts"]}
    return {**world, "users": [row for row in world["users"] if row["default_account"] in names]}


@given(WORLDS.map(closed), WORLDS.map(closed))
def test_any_edit_leads_from_the_old_state_to_the_new_one(old, new):
    database = {"accounts": {"root"}, "qos": {"normal"}, "users": set()}
    for world, before in ((old, accounts.NOTHING), (new, old)):
        for command in accounts.plan(world, before, database):
            obey(database, command)
        assert database["accounts"] == {"root"} | {row["name"] for row in world["accounts"]}
        assert database["qos"] == {"normal"} | {row["name"] for row in world["qos"]}
        assert database["users"] == {(row["name"], row["default_account"]) for row in world["users"]}
        assert accounts.plan(world, world, database) == []


def obey(database, command):
    """What sacctmgr does to the names, with the refusals that matter here."""
    verb, kind, *words = command
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if kind == "user" and verb == "add":
        for user, account in itertools.product(options["name"].split(","), options["account"].split(",")):
            assert account in database["accounts"]
            database["users"].add((user, account))
    elif kind == "user" and verb == "delete":
        gone = {
            pair
            for pair in database["users"]
            if pair[0] == options["name"] and options.get("account", pair[1]) == pair[1]
        }
        assert gone
        database["users"] -= gone
    elif verb == "add":
        database[f"{kind}s" if kind == "account" else kind].add(words[0])
    elif verb == "delete":
        assert not (kind == "account" and any(account == options["name"] for _, account in database["users"]))
        database[f"{kind}s" if kind == "account" else kind].remove(options["name"])


def test_many_new_users_with_the_same_rights_are_one_command():
    users = [{"name": f"u{i}", "default_account": "a", "accounts": ["a"], "qos": []} for i in range(200)]
    world = {"cluster": "dev", "accounts": [], "qos": [], "users": users}
    assert len(accounts.plan(world, accounts.NOTHING, EMPTY)) == 1


def test_a_qos_that_is_taken_back_leaves_slurms_own():
    new = {**DESIRED, "users": [{**DESIRED["users"][0], "qos": []}, DESIRED["users"][1]]}
    assert accounts.plan(new, DESIRED, FULL) == [
        ["modify", "user", "where", "name=alice", "set", "defaultaccount=research", "qos=normal", "defaultqos=-1"]
    ]


def test_every_limit_of_a_qos_that_a_stack_can_set_is_read_back():
    assert [slurm.parameter for _, slurm in slurm_fields(Qos)] == list(sacctmgr.LIMITS)
