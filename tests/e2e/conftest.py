"""Whole clusters on real machines, each with a home, a root and a network of its own, beside whatever else runs."""

import subprocess
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from components.local.host import network
from tests.e2e.cluster import Cluster
from tests.e2e.forked import Program
from tests.places import add_logs, own_root

LAB_PACKAGES = [
    "docker-cli", "openmpi-bin", "podman", "python3-mpi4py", "python3-torch", "squashfs-tools", "squashfuse", "sudo",
    "uidmap",
]  # fmt: skip
"""Of the cluster `lab`: MPI, PyTorch, containers, sudo, and a docker that jobs don't get."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rehearsal on Kubernetes comes last: on a new machine its programs are built meanwhile."""
    items.sort(key=lambda item: item.path.name == "test_rehearse_nebius.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A red test prints the logs that explain it."""
    report = yield
    add_logs(report)
    return report


@pytest.fixture(scope="session")
def e2e_root() -> Iterator[Path]:
    """A root for the machines of this run."""
    with own_root("e2e") as root:
        yield root


@pytest.fixture(scope="session")
def alices_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private half of a user's SSH key; the public one lies beside it."""
    key = tmp_path_factory.mktemp("alice") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "alice@laptop", "-f", str(key)], check=True)
    return key


@pytest.fixture(scope="session")
def clusters(e2e_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Makes cluster objects; the clusters themselves are made by their `up`."""
    program = Program()

    def make(name: str, **sections: object) -> Cluster:
        home = tmp_path_factory.mktemp(name)
        return Cluster(name, program=program, home=home, root=e2e_root, sections=sections)

    yield make
    program.close()


@pytest.fixture(scope="module")
def bring_up(clusters: Callable[..., Cluster]) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that are up; they go with the module."""
    made: list[Cluster] = []

    def make(name: str, **sections: object) -> Cluster:
        made.append(clusters(name, **sections))
        made[-1].up()
        return made[-1]

    yield make
    for cluster in made:
        cluster.hpc("destroy", check=False)


@pytest.fixture(scope="session")
def pair(clusters: Callable[..., Cluster], alices_key: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """Two clusters that come up side by side: one of many machines, and the one of guide 004 that is all on one."""
    public = alices_key.with_suffix(".pub").read_text().strip()
    many = clusters(
        "many",
        nodesets={"cpu": {"count": 2}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"], "qos": "urgent"}},
        users=[
            {"name": "alice", "uid": 2001, "account": "research", "groups": ["ml"], "keys": [public]},
            {"name": "bob", "uid": 2002, "account": "teaching"},
        ],
        groups={"ml": 3001},
        accounting={
            "accounts": [{"name": "research"}, {"name": "teaching"}],
            "qos": [{"name": "urgent", "priority": 100}],
        },
        slurm={"pam_slurm_adopt": True, "scrontab": True, "prolog_flags": ["Contain", "X11"], "topology": "places"},
    )
    one = clusters(
        "one",
        image={"base": "debian-12"},
        login={"on": "controller"},
        nodesets={"cpu": {"on": "controller"}},
        users=[{"name": "carol", "uid": 2001}],
    )
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda cluster: cluster.hpc("up"), (many, one)):
            assert done.returncode == 0, done.stdout + done.stderr
    yield many, one
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda cluster: cluster.hpc("destroy", check=False), (many, one)))


@pytest.fixture(scope="session")
def lab(clusters: Callable[..., Cluster], alices_key: Path) -> Iterator[Cluster]:
    """A cluster for users' jobs: eight CPU nodes, one with two stand-in GPUs, and what jobs of all kinds need."""
    public = alices_key.with_suffix(".pub").read_text().strip()
    cluster = clusters(
        "lab",
        image={"packages": LAB_PACKAGES},
        nodesets={"cpu": {"count": 8}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}},
        users=[
            {"name": "alice", "uid": 2001, "account": "research", "keys": [public]},
            {"name": "bob", "uid": 2002, "account": "teaching"},
        ],
        accounting={"accounts": [{"name": "research"}, {"name": "teaching"}]},
    )
    cluster.hpc("up")
    yield cluster
    cluster.hpc("destroy", check=False)


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
    return lambda name: [line for line in network.leftovers(e2e_root) if name in line]
