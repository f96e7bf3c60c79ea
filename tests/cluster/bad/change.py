"""Parts of a small cluster to replace with something wrong."""

from typing import Any

Changes = dict[str, Any]

PARTITION = {"nodesets": ["cpu"], "default": True}
ALICE = {"name": "alice", "uid": 2001}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNpTp8sZTrWHTKHIEY6xkYfOHfY5ufmf6QfgC/8UbOW alice@laptop"


def nodeset(**keys: Any) -> Changes:
    return {"nodesets": {"cpu": keys}}


def partition(**keys: Any) -> Changes:
    return {"partitions": {"cpu": PARTITION | keys}}


def user(**keys: Any) -> Changes:
    return {"users": [ALICE | keys]}


def users(*others: Changes) -> Changes:
    return {"users": [ALICE, *others]}


def accounting(**keys: Any) -> Changes:
    return {"accounting": keys}


def extra(**keys: Any) -> Changes:
    return {"slurm": {"extra": keys}}
