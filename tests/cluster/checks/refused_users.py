"""Users, groups, accounts and QOS that are refused.

Each case: what is replaced in a small cluster. tests/golden/refused has the errors.
"""

from tests.cluster.stacks import KEY, accounting, extra, user, users

CAROL = {"name": "carol", "uid": 2003}
USERS = {
    "the uid of a former user": {"users": [{"name": "dave", "uid": 2003}], "former_users": [CAROL]},
    "a former user with another uid": {"users": [{"name": "carol", "uid": 2009}], "former_users": [CAROL]},
    "a uid twice": users({"name": "bob", "uid": 2001}),
    "a name twice": users({"name": "alice", "uid": 2002}),
    "a system uid": user(uid=999),
    "the uid of nobody": user(uid=65534),
    "a user with a name of systemd's": user(name="systemd-x"),
    "a group whose members become root": {"groups": {"wheel": 3001}},
    "a user whose own group has rights": user(name="admin"),
    "a shell that no machine has": user(shell="/usr/bin/zsh"),  # noqa: S604 - a key of the user
    "a key whose comment ends a line": user(keys=[f"{KEY}\u2028ssh-rsa x"]),
    "a name that useradd refuses": user(name="Al Ice"),
    "a user's uid as a group's gid": {**user(), "groups": {"ml": 2001}},
    "a gid twice": {"groups": {"ml": 3001, "bio": 3001}},
    "a gid of another user": users({"name": "bob", "uid": 2002, "gid": 2001}),
    "a group with a user's name": {**user(), "groups": {"alice": 3001}},
    "a group that is not defined": user(groups=["ml"]),
    "a key cut short": user(keys=[KEY[:50]]),
    "a key of another type": user(keys=["ssh-rsa " + KEY.split()[1]]),
    "a private key": user(keys=["-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz"]),
    "a user's QOS that does not exist": user(qos=["hihg"]),
    "an account that does not exist": {
        **user(account="reserch"),
        **accounting(accounts=[{"name": "research"}, {"name": "b"}]),
    },
    "no account where there are several": {**user(), **accounting(accounts=[{"name": "a"}, {"name": "b"}])},
}


ACCOUNTING = {
    "a limit on GPUs that no node has": accounting(qos=[{"name": "q", "max_tres_per_user": {"gres/gpu": 1}}]),
    "a limit beyond what JSON keeps": accounting(qos=[{"name": "q", "grp_tres": {"cpu": 2**70}}]),
    "a description over two lines": accounting(accounts=[{"name": "a", "description": "one\ntwo"}]),
    "a description of a page": accounting(accounts=[{"name": "a", "description": "x" * 256}]),
    "an account below none": accounting(accounts=[{"name": "a", "parent": "b"}]),
    "accounts in a circle": accounting(accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]),
    "a QOS that preempts itself": accounting(qos=[{"name": "q", "preempt": ["q"]}]),
    "QOS that preempt each other": accounting(
        qos=[{"name": "p", "preempt": ["normal", "q"]}, {"name": "q", "preempt": ["p"]}]
    ),
    "preemption by QOS that is switched off again": extra(PreemptMode="OFF")
    | accounting(qos=[{"name": "q", "preempt": ["normal"]}]),
    "an account twice": accounting(accounts=[{"name": "a"}, {"name": "a"}]),
    "an account called root": accounting(accounts=[{"name": "root"}]),
    "an account in capitals": accounting(accounts=[{"name": "Lab"}]),
    "a limit on no resource": accounting(qos=[{"name": "q", "grp_tres": {"gpus": 1}}]),
    "enforcing nothing known": accounting(enforce=["limit"]),
}


CASES = USERS | ACCOUNTING
