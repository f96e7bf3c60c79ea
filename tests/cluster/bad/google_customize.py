"""Google Cloud: changes of single resources that can't be made.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from typing import Any

INSTANCE = "gcp:compute/instance:Instance"


def change(**entry: Any) -> dict[str, Any]:
    return {"customize": [{"type": INSTANCE, **entry}]}


CASES = {
    "a type of another provider": (
        {"customize": [{"type": "aws:ec2/instance:Instance", "set": {"a": 1}}]},
        "customize[0].type",
        "aws:ec2/instance:Instance",
        "a type of resource of Google Cloud",
        "copy it from a preview",
    ),
    **{
        f"a customized {name}": (
            change(set={name: "x"}),
            f"customize[0].set.{name}",
            "x",
            "inputs other than account_id, address",
            f"the cluster depends on the {name}",
        )
        for name in ("name", "project", "zone", "network_interfaces")
    },
    "a label of the program's": (
        change(set={"labels": {"team": "ml", "hpc-cluster": "other"}}),
        "customize[0].set.labels.hpc-cluster",
        "other",
        "keys of labels other than",
        "the cluster depends on it",
    ),
    "no metadata at all": (
        change(set={"metadata": None}),
        "customize[0].set.metadata",
        "None",
        "a mapping, since the cluster needs its own metadata",
        "name single keys",
    ),
    "nothing to set": (change(set={}), "customize[0].set", "{}", "", ""),
}
