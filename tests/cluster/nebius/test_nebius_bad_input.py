"""Bad input for Nebius is refused in words, once: where it stands, what was given, what is allowed, what to do."""

import pytest

from tests.cluster.nebius import bad_files, bad_nodes
from tests.cluster.nebius.changes import EXISTING, KEY, Changes, filesystems, nodeset, submount, version
from tests.cluster.nebius.samples import FABRIC, GB300, findings, gpus, nebius

CASES = {**bad_files.CASES, **bad_nodes.CASES}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_once_with_what_to_do(case: str) -> None:
    changes, where, given, allowed, todo = CASES[case]
    found = findings(**changes)
    assert [*found] == [where], {place: str(one) for place, one in found.items()}
    finding = found[where]
    assert given in finding.given
    assert allowed in finding.allowed
    assert todo in finding.todo


FINE: dict[str, Changes] = {
    "preemptible nodes": nodeset(capacity={"spot": {}}),
    "nodes on demand": nodeset(capacity={"on_demand": {}}),
    "nodes of a capacity block": nodeset(capacity={"reservation": "capacityblockgroup-e00abc"}),
    "101 nodes": gpus(count=101),
    "a fabric of another region": {**gpus(), "nebius": {"workers": {"worker": {"infiniband": {"fabric": "fabric-5"}}}}},
    "a jail that may be overwritten": filesystems(jail={"existing": EXISTING, "overwrite_existing": True}),
    "a submount below /home": submount("/home/data"),
    "a later patch": version("4.1.11", **gpus()),
    "a version to come": version("5.0.0", **gpus()),
    "another name with it": version("5.0.0", name="research"),
    "parameters": {"slurm": {"extra": {"MaxArraySize": 5000}, "timers": {"kill_wait": 60}}},
    "REST API": {"slurm": {"slurmrestd": True}},
    "a root key": {"nebius": {"login": {"root_keys": [KEY]}}},
    "nodes of ARM": {
        "nodesets": {"gpu": {"machine_type": GB300}}, "nebius": {"workers": {"gpu": FABRIC}}},
    "a network of its own": {"nebius": {"subnet": "create"}},
}  # fmt: skip


@pytest.mark.parametrize("case", FINE)
def test_it_is_accepted(case: str) -> None:
    assert nebius(**FINE[case]).platform == "nebius"
