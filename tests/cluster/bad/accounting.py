"""Accounts, QOS and what is enforced.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.change import accounting, extra

CASES = {
    "a limit on GPUs that no node has": (
        accounting(qos=[{"name": "q", "max_tres_per_user": {"gres/gpu": 1}}]),
        "accounting.qos[0].max_tres_per_user.gres/gpu",
        "gres/gpu",
        "cpu, mem, node",
        "remove the limit",
    ),
    "more shares than the database keeps": (
        accounting(accounts=[{"name": "a", "fairshare": 2**31 - 1}]),
        "accounting.accounts[0].fairshare",
        "2147483647",
        "at most 2147483646",
        "lower it",
    ),
    "a priority that the database would leave out": (
        accounting(qos=[{"name": "q", "priority": 2**31}]),
        "accounting.qos[0].priority",
        "2147483648",
        "at most 2147483647",
        "lower it",
    ),
    "a limit beyond what JSON keeps": (
        accounting(qos=[{"name": "q", "grp_tres": {"cpu": 2**70}}]),
        "accounting.qos[0].grp_tres.cpu",
        "1180591620717411303424",
        "at most 9007199254740991",
        "lower it",
    ),
    "a description over two lines": (
        accounting(accounts=[{"name": "a", "description": "one\ntwo"}]),
        "accounting.accounts[0].description",
        "one two",
        "on one line",
        "remove line ends",
    ),
    "an organization that clears the screen": (
        accounting(accounts=[{"name": "a", "organization": "\x1b[2J"}]),
        "accounting.accounts[0].organization",
        "\\x1b[2J",
        "can be printed",
        "control characters",
    ),
    "a description of a page": (
        accounting(accounts=[{"name": "a", "description": "x" * 256}]),
        "accounting.accounts[0].description",
        "xxx",
        "up to 255 characters",
        "shorten it",
    ),
    "an account below none": (
        accounting(accounts=[{"name": "a", "parent": "b"}]),
        "accounting.accounts[0].parent",
        "b",
        "root",
        "leave `parent` out",
    ),
    "accounts in a circle": (
        accounting(accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]),
        "accounting.accounts[0].parent",
        "b",
        "lead up to root",
        "a -> b -> a",
    ),
    "a QOS that preempts itself": (
        accounting(qos=[{"name": "q", "preempt": ["q"]}]),
        "accounting.qos[0].preempt",
        "q",
        "preempt no QOS which preempts them",
        "q -> q",
    ),
    "QOS that preempt each other": (
        accounting(qos=[{"name": "p", "preempt": ["normal", "q"]}, {"name": "q", "preempt": ["p"]}]),
        "accounting.qos[0].preempt",
        "normal, q",
        "preempt no QOS which preempts them",
        "p -> q -> p",
    ),
    "preemption by QOS that is switched off again": (
        extra(PreemptMode="OFF") | accounting(qos=[{"name": "q", "preempt": ["normal"]}]),
        "slurm.extra.PreemptMode",
        "OFF",
        "REQUEUE",
        "take `preempt` out",
    ),
    "an account twice": (
        accounting(accounts=[{"name": "a"}, {"name": "a"}]),
        "accounting.accounts[1].name",
        "a",
        "once",
        "rename",
    ),
    "an account called root": (
        accounting(accounts=[{"name": "root"}]),
        "accounting.accounts[0].name",
        "root",
        "root",
        "top",
    ),
    "an account in capitals": (
        accounting(accounts=[{"name": "Lab"}]),
        "accounting.accounts[0].name",
        "Lab",
        "a letter",
        "lower",
    ),
    "a limit on no resource": (
        accounting(qos=[{"name": "q", "grp_tres": {"gpus": 1}}]),
        "accounting.qos[0].grp_tres.gpus",
        "gpus",
        "gres/gpu",
        "sacctmgr",
    ),
    "enforcing nothing known": (
        accounting(enforce=["limit"]),
        "accounting.enforce[0]",
        "limit",
        "associations",
        "write limits",
    ),
}
