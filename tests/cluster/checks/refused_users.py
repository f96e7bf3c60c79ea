"""Users, groups, accounts and QOS that are refused.

Each case: what is replaced in a small cluster, and words of its error, `where | given | allowed | to do`.
"""

from tests.cluster.stacks import KEY, accounting, extra, user, users

CAROL = {"name": "carol", "uid": 2003}
USERS = {
    "the uid of a former user": (
        {"users": [{"name": "dave", "uid": 2003}], "former_users": [CAROL]},
        "users[0].uid | 2003 | 2003 was carol's | 2004",
    ),
    "a former user with another uid": (
        {"users": [{"name": "carol", "uid": 2009}], "former_users": [CAROL]},
        "users[0].uid | 2009 | 2003, the number that carol had before | write 2003",
    ),
    "a uid twice": (
        users({"name": "bob", "uid": 2001}),
        "users[1].uid | 2001 | 2001 is alice's | choose another number, e.g. 2002",
    ),
    "a name twice": (users({"name": "alice", "uid": 2002}), "users[1].name | alice | no other user | rename"),
    "a system uid": (user(uid=999), "users[0].uid | 999 | 1000 to 60000 | outside the operating system's"),
    "the uid of nobody": (user(uid=65534), "users[0].uid | 65534 | 65536 to 524287 | outside"),
    "a user with a name of systemd's": (user(name="systemd-x"), "users[0].name | systemd-x | no system user | choose"),
    "a group whose members become root": (
        {"groups": {"wheel": 3001}},
        "groups.wheel | wheel | people who do not become root | members of group wheel become root",
    ),
    "a user whose own group has rights": (
        user(name="admin"),
        "users[0].name | admin | do not become root | group admin",
    ),
    "a shell that no machine has": (
        user(shell="/usr/bin/zsh"),  # noqa: S604 - a login shell
        "users[0].shell | /usr/bin/zsh | /bin/bash | ~/.bashrc can start others",
    ),
    "a key whose comment ends a line": (
        user(keys=[f"{KEY}\u2028ssh-rsa x"]),
        "users[0].keys[0] | ssh-ed25519 AAAA | one line | remove what can't be printed",
    ),
    "a name that useradd refuses": (user(name="Al Ice"), "users[0].name | Al Ice | e.g. alice | useradd"),
    "a user's uid as a group's gid": ({**user(), "groups": {"ml": 2001}}, "users[0].uid | 2001 | ml | `gid: 2001`"),
    "a gid twice": ({"groups": {"ml": 3001, "bio": 3001}}, "groups.bio | 3001 | ml's | e.g. 3002"),
    "a gid of another user": (
        users({"name": "bob", "uid": 2002, "gid": 2001}),
        "users[1].gid | 2001 | alice's | define a group",
    ),
    "a group with a user's name": ({**user(), "groups": {"alice": 3001}}, "groups.alice | alice | same name | rename"),
    "a group that is not defined": (user(groups=["ml"]), "users[0].groups[0] | ml | none | define ml under `groups`"),
    "a key cut short": (user(keys=[KEY[:50]]), "users[0].keys[0] | ssh-ed25519 AAAA | ssh-ed25519 | id_ed25519.pub"),
    "a key of another type": (
        user(keys=["ssh-rsa " + KEY.split()[1]]),
        "users[0].keys[0] | ssh-rsa | a whole ssh-rsa key | another type",
    ),
    "a private key": (
        user(keys=["-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz"]),
        "users[0].keys[0] | a private key (not shown) | a public key | others may have read this one",
    ),
    "a user's QOS that does not exist": (user(qos=["hihg"]), "users[0].qos[0] | hihg | normal | define hihg"),
    "an account that does not exist": (
        {**user(account="reserch"), **accounting(accounts=[{"name": "research"}, {"name": "b"}])},
        "users[0].account | reserch | research | write research",
    ),
    "no account where there are several": (
        {**user(), **accounting(accounts=[{"name": "a"}, {"name": "b"}])},
        "users[0].account | nothing | a, b | charged to",
    ),
}


ACCOUNTING = {
    "a limit on GPUs that no node has": (
        accounting(qos=[{"name": "q", "max_tres_per_user": {"gres/gpu": 1}}]),
        "accounting.qos[0].max_tres_per_user.gres/gpu | gres/gpu | cpu, mem, node | remove the limit",
    ),
    "a limit beyond what JSON keeps": (
        accounting(qos=[{"name": "q", "grp_tres": {"cpu": 2**70}}]),
        "accounting.qos[0].grp_tres.cpu | 1180591620717411303424 | at most 9007199254740991 | lower it",
    ),
    "a description over two lines": (
        accounting(accounts=[{"name": "a", "description": "one\ntwo"}]),
        "accounting.accounts[0].description | one two | on one line | remove line ends",
    ),
    "a description of a page": (
        accounting(accounts=[{"name": "a", "description": "x" * 256}]),
        "accounting.accounts[0].description | xxx | up to 255 characters | shorten it",
    ),
    "an account below none": (
        accounting(accounts=[{"name": "a", "parent": "b"}]),
        "accounting.accounts[0].parent | b | root | leave `parent` out",
    ),
    "accounts in a circle": (
        accounting(accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]),
        "accounting.accounts[0].parent | b | lead up to root | a -> b -> a",
    ),
    "a QOS that preempts itself": (
        accounting(qos=[{"name": "q", "preempt": ["q"]}]),
        "accounting.qos[0].preempt | q | preempt no QOS which preempts them | q -> q",
    ),
    "QOS that preempt each other": (
        accounting(qos=[{"name": "p", "preempt": ["normal", "q"]}, {"name": "q", "preempt": ["p"]}]),
        "accounting.qos[0].preempt | normal, q | preempt no QOS which preempts them | p -> q -> p",
    ),
    "preemption by QOS that is switched off again": (
        extra(PreemptMode="OFF") | accounting(qos=[{"name": "q", "preempt": ["normal"]}]),
        "slurm.extra.PreemptMode | OFF | REQUEUE | take `preempt` out",
    ),
    "an account twice": (
        accounting(accounts=[{"name": "a"}, {"name": "a"}]),
        "accounting.accounts[1].name | a | once | rename",
    ),
    "an account called root": (
        accounting(accounts=[{"name": "root"}]),
        "accounting.accounts[0].name | root | root | top",
    ),
    "an account in capitals": (
        accounting(accounts=[{"name": "Lab"}]),
        "accounting.accounts[0].name | Lab | a letter | lower",
    ),
    "a limit on no resource": (
        accounting(qos=[{"name": "q", "grp_tres": {"gpus": 1}}]),
        "accounting.qos[0].grp_tres.gpus | gpus | gres/gpu | sacctmgr",
    ),
    "enforcing nothing known": (
        accounting(enforce=["limit"]),
        "accounting.enforce[0] | limit | associations | write limits",
    ),
}


CASES = USERS | ACCOUNTING
