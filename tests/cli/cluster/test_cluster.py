"""A cluster from a stack's outputs: names of machines, users, capabilities, and drivers of any kind."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.access import remote
from cli.access.target import Driver, Target
from cli.cluster import scheduler as module
from cli.cluster.cluster import from_outputs
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from tests.cli.commands.jobs.test_check import NODES
from tests.cli.conftest import OUTPUTS, Hpc, Tool, patch_outputs

TOY = {
    "cluster": "toy",
    "platform": {"name": "toy", "title": "Toy pods", "capabilities": ["run", "nodes"]},
    "targets": {"toy-login": {"method": "toy", "roles": ["controller", "login"], "pod": "login-0"}},
    "login": "toy-login",
    "users": ["alice"],
}


class ToyDriver(Driver):
    """Runs commands on this host, as nobody else."""

    @contextmanager
    def connect(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> Generator[Callable]:
        yield lambda target, user, command, **_: ["echo", target.row["pod"], user, *command]

    @staticmethod
    def explain(target: Target, stderr: str) -> str:  # noqa: ARG004
        return stderr


@pytest.fixture
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack of a platform that has two capabilities and a driver of its own is up."""
    patch_outputs(monkeypatch, TOY)
    monkeypatch.setattr(remote, "DRIVERS", {"toy": cache(ToyDriver)})


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["ssh", "dev"], "ssh"), (["ssh-config", "dev"], "ssh"), (["status", "dev"], "status"),
        (["drift", "dev"], "drift"), (["logs", "dev", "slurmd"], "logs"), (["usage", "dev"], "usage"),
        (["nodes", "dev", "reboot", "cpu-0"], "reboot"), (["accounting", "backup", "dev"], "backup"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)  # fmt: skip
def test_a_command_without_its_capability_is_refused(hpc: Hpc, up: None, words: list[str], missing: str) -> None:
    ended = hpc(*words)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"error: stack dev is on Toy pods, a platform without the capability {missing}. It has: run, nodes.\n"
    )


def test_a_command_with_its_capability_runs_with_the_targets_driver(hpc: Hpc, up: None) -> None:
    ended = hpc("run", "dev", "--", "hostname", "-f")
    assert (ended.code, ended.out) == (0, "login-0 alice hostname -f\n"), ended.err


class TestNames:
    @pytest.mark.parametrize("given", ["dev-cpu-0", "cpu-0", "cpu"])
    def test_a_target_is_found_with_or_without_the_clusters_name(self, given: str) -> None:
        assert from_outputs("dev", OUTPUTS).target(given).name == "dev-cpu-0"

    def test_a_stack_that_is_down_says_how_to_bring_it_up(self) -> None:
        with pytest.raises(CliError, match=r"^stack dev is not up\. Bring it up with: \./hpc up dev$"):
            from_outputs("dev", {})

    def test_an_incomplete_stack_names_the_missing_outputs(self) -> None:
        with pytest.raises(CliError, match="no output admin_key"):
            from_outputs("dev", {key: value for key, value in OUTPUTS.items() if key != "admin_key"})

    def test_in_a_cluster_without_users_only_root_is_allowed(self) -> None:
        cluster = from_outputs("dev", OUTPUTS | {"users": []})
        assert cluster.user("root") == "root"
        with pytest.raises(CliError, match="use --as root"):
            cluster.user(None)


ELASTIC = {
    "cluster": "grow",
    "targets": {
        "grow-controller": {"method": "ssh", "roles": ["controller", "login"], "address": "10.77.0.2"},
        "grow-cpu-0": {"method": "ssh", "roles": ["node"], "address": "10.77.4.1"},
    },
    "login": "grow-controller",
    "admin_key": "key",
    "place": {"addresses": {"grow-cpu-1": "10.77.4.2"}},
    "config": {
        "platform": "local",
        "name": "grow",
        "nodesets": {"cpu": {"count": {"min": 1, "max": 3}}},
        "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
    },
}


def test_an_elastic_node_in_the_outputs_has_the_connection_of_its_row() -> None:
    row = {"method": "kubectl", "roles": ["node"], "pod": "gpu-1", "container": "slurmd", "namespace": "soperator"}
    targets = {"controller-0": {**row, "roles": ["controller"], "pod": "controller-0", "container": "slurmctld"}}
    cluster = from_outputs("neb", {**ELASTIC, "targets": targets, "elastic": {"gpu-1": row}, "kubernetes": {"a": "b"}})
    found = cluster.target("gpu-1")
    assert (found.method, found.row["pod"], found.row["kubernetes"]) == ("kubectl", "gpu-1", {"a": "b"})
    assert "gpu-1" not in cluster.targets


def test_an_elastic_node_is_reached_through_the_controller() -> None:
    cluster = from_outputs("grow", ELASTIC)
    assert cluster.target("cpu-0").jump is None
    for name, address in (("cpu-1", "10.77.4.2"), ("grow-cpu-2", "grow-cpu-2")):
        found = cluster.target(name)
        assert (found.address, found.jump, found.roles) == (address, cluster.controller, ("node",))
    with pytest.raises(CliError, match="has no machine 'cpu-3'"):
        cluster.target("cpu-3")
    assert set(cluster.targets) == {"grow-controller", "grow-cpu-0"}


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return Scheduler(from_outputs("dev", OUTPUTS))


def test_a_wait_for_nodes_continues_when_the_controller_answers_again(
    scheduler: Scheduler, tool: Tool, tmp_path: object, capsys: pytest.CaptureFixture[str]
):
    tool("ssh", f"[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; exit 255; }}; echo '{NODES}'")
    assert scheduler.wait(["dev-cpu-0"], lambda node: node.fine, describe=str, seconds=60) == []
    assert "does not answer: exit code 255; asking again ..." in capsys.readouterr().err


def test_a_wait_for_nodes_ends_when_the_controller_stays_unreachable(
    scheduler: Scheduler, tool: Tool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tool("ssh", "exit 255")
    # A minute for each look at the clock, however long `ssh` takes.
    clock = count(step=60.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _seconds: None))
    with pytest.raises(CliError, match="does not answer: exit code 255"):
        scheduler.wait(["dev-cpu-0"], lambda node: node.fine, describe=str)
    assert capsys.readouterr().err.count("asking again") == 1
