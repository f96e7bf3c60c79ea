"""Whole clusters on real machines, each with a home, a root and a network of its own, beside whatever else runs."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from components.local.host import stacks
from components.local.host.locks import locked
from tests.e2e.cluster import Cluster
from tests.local.conftest import PLACE, _clear


@pytest.fixture(scope="session")
def e2e_root() -> Iterator[Path]:
    """A root for the machines of this run; what killed runs left of theirs is removed first, and of this at the end."""
    PLACE.mkdir(mode=0o700, exist_ok=True)
    for left in PLACE.glob("e2e-*/"):
        with locked(PLACE / f"{left.name}.lock", wait=False) as dead:
            if dead:
                _clear(left)
    root = PLACE / f"e2e-{os.getpid()}"
    with locked(PLACE / f"{root.name}.lock"):
        root.mkdir()
        yield root
        _clear(root)


@pytest.fixture(scope="session")
def clusters(e2e_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Cluster]:
    """Makes cluster objects; the clusters themselves are made by their `up`."""

    def make(name: str, **sections: object) -> Cluster:
        return Cluster(name, home=tmp_path_factory.mktemp(name), root=e2e_root, sections=sections)

    return make


@pytest.fixture(scope="session")
def pair(clusters: Callable[..., Cluster]) -> Iterator[tuple[Cluster, Cluster]]:
    """Two clusters that come up side by side: one of many machines, and the one of guide 004 that is all on one."""
    many = clusters(
        "many",
        nodesets={"cpu": {"count": 2}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}},
        users=[
            {"name": "alice", "uid": 2001, "account": "research", "groups": ["ml"]},
            {"name": "bob", "uid": 2002, "account": "teaching"},
        ],
        groups={"ml": 3001},
        accounting={
            "accounts": [{"name": "research"}, {"name": "teaching"}],
            "qos": [{"name": "urgent", "priority": 100}],
        },
    )
    one = clusters(
        "one",
        login={"on": "controller"},
        nodesets={"cpu": {"on": "controller"}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True}},
        users=[{"name": "carol", "uid": 2001}],
    )
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda cluster: cluster.hpc("up"), (many, one)):
            assert done.returncode == 0, done.stdout + done.stderr
    yield many, one
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda cluster: cluster.hpc("destroy", check=False), (many, one)))


@pytest.fixture
def many(pair: tuple[Cluster, Cluster]) -> Cluster:
    """A controller, a login machine, two CPU nodes and one with two stand-in GPUs."""
    return pair[0]


@pytest.fixture
def one(pair: tuple[Cluster, Cluster]) -> Cluster:
    """One machine that is controller, login machine and node at once."""
    return pair[1]


@pytest.fixture
def nothing_left(e2e_root: Path) -> Callable[[str], list[str]]:
    """What is on this host of a cluster."""
    return lambda name: [line for line in stacks.leftovers(e2e_root) if name in line]
