"""`drift` of a cluster of pods: manual changes are found, whoever made them, and nothing else is."""

import base64
import gzip
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.platforms.nebius.drift import (
    UNKNOWN,
    all_value_differences,
    expected_releases,
    parse_releases,
    value_differences,
)
from cluster.platforms.nebius.releases import ChartRelease
from components.deploy import config_text
from tests.cluster.nebius.clusters import nebius, settings
from tests.nebius.access.cluster_objects import IDLE, World, elastic_node_set, host, node_set
from tests.nebius.access.conftest import Hpc

Made = Callable[[str], Path]
CONFIG = nebius(
    name="soperator",
    users=[{"name": "alice", "uid": 2001, "account": "research"}],
    accounting={"accounts": [{"name": "research"}], "qos": [{"name": "short", "max_wall": "1:00:00"}]},
)
RELEASES = {release.name: release for release in expected_releases(CONFIG, settings(CONFIG), "nebius")}
NODE_SET = {
    "apiVersion": "slurm.nebius.ai/v1alpha1",
    "kind": "NodeSet",
    "metadata": {"name": "worker"},
    "spec": {"replicas": 2, "slurmd": {"resources": {"cpu": "15", "memory": "57Gi"}}, "munge": {"port": 0}},
}
LIVE = {
    **NODE_SET,
    "metadata": {"name": "worker", "namespace": "soperator", "uid": "1"},
    "spec": {
        "replicas": 2,
        "slurmd": {"resources": {"cpu": "15000m", "memory": "57Gi"}, "security": {"limits": ""}},
        "maxUnavailable": 1,
    },
    "status": {"replicas": 2},
}
LABELS = [
    {"slurm.nebius.ai/nodeset": "controller"},
    {"slurm.nebius.ai/nodeset": "login"},
    *2 * [{"slurm.nebius.ai/nodeset": "worker", "slurm.nebius.ai/nodeset-name": "worker"}],
]
DATABASE = {
    "cluster": "soperator",
    "user": "alice|research\nroot|root",
    "account": "root\nresearch",
    "qos": "normal\nshort",
}


def known(values: Any) -> Any:
    """Values as a cloud has filled them in."""
    if isinstance(values, Mapping):
        return {key: known(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [known(value) for value in values]
    return "an id of the cloud's" if values == UNKNOWN else values


def secret(release: ChartRelease, *, revision: int = 1, manifest: str = "", **changes: Any) -> dict[str, Any]:
    """The Secret in which Helm records a revision, packed as Helm packs it (pkg/storage/driver/util.go)."""
    document = {
        "name": release.name,
        "namespace": release.namespace,
        "version": revision,
        "config": known(deepcopy(dict(release.values))),
        "chart": {"metadata": {"name": release.chart, "version": release.version}},
        "manifest": manifest,
        **changes,
    }
    packed = base64.b64encode(gzip.compress(json.dumps(document).encode()))
    return {"kind": "Secret", "data": {"release": base64.b64encode(packed).decode()}}


def same() -> World:
    """A cluster as `up` left it."""
    world = World()
    manifests = {"nodesets": yaml.safe_dump_all([NODE_SET], explicit_start=True)}
    world.secrets = [secret(release, manifest=manifests.get(name, "")) for name, release in RELEASES.items()]
    world.live = [LIVE]
    world.hosts = [host(f"host-{index}", labels=labels) for index, labels in enumerate(LABELS)]
    world.database = DATABASE
    return world


@pytest.fixture
def drift(hpc: Hpc, kubectl: Made, up: dict[str, Any]) -> Callable[[World], dict[str, dict[str, Any]]]:
    """drift(WORLD): differences by id and what."""
    up["config"] = config_text(CONFIG)

    def run(world: World) -> dict[str, dict[str, Any]]:
        kubectl(world.script())
        ended = hpc("drift", "nebius", "--json")
        assert ended.out, ended.err
        document = json.loads(ended.out)
        assert document["unseen"] == []
        assert ended.code == (1 if document["differences"] else 0)
        return {f"{difference['id']} {difference['what']}": difference for difference in document["differences"]}

    return run


Drift = Callable[[World], dict[str, dict[str, Any]]]


def test_nothing_differs_after_an_up(drift: Drift, hpc: Hpc) -> None:
    assert drift(same()) == {}
    assert hpc("drift", "nebius").out == "nebius: nothing differs from the stack.\n"


def given_to_helm() -> dict[str, Any]:
    """The values of a release that somebody has changed."""
    values = known(deepcopy(dict(RELEASES["slurm-cluster"].values)))
    values["slurmNodes"]["login"]["size"] = 7
    return {**values, "extra": {"key": "by hand"}}


def other_releases() -> list[dict[str, Any]]:
    """One of another version, and one less."""
    found = {name: secret(release) for name, release in RELEASES.items() if name != "soperatorchecks"}
    found["nodesets"] = same().secrets[list(RELEASES).index("nodesets")]
    chart = {"metadata": {"name": "helm-soperator", "version": "4.1.6"}}
    return [*(found | {"soperator": secret(RELEASES["soperator"], chart=chart)}).values()]


def edited() -> dict[str, Any]:
    object_ = deepcopy(LIVE)
    object_["spec"]["slurmd"]["resources"]["memory"] = "32Gi"
    return object_


DIFFERENCES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "values that somebody gave Helm": {
        "secrets": [*same().secrets, secret(RELEASES["slurm-cluster"], revision=2, config=given_to_helm())]
    },
    "a release of another version and one that is gone": {"secrets": other_releases()},
    "an edited object": {"live": [edited()]},
    "a deleted object": {"live": []},
    "a node set that was scaled": {"node_sets": [node_set(wanted=5, ready=2)]},
    "a node group with a node less": {"hosts": same().hosts[:-1]},
    "nodes and partitions": {
        "nodes": {"worker-0": IDLE["worker-0"], "worker-9": IDLE["worker-1"]},
        "partitions": "PartitionName=main Default=NO State=DRAIN\nPartitionName=other State=UP\n"
        "PartitionName=hidden State=UP",
    },
    "the database": {"database": {**DATABASE, "user": "alice|root", "account": "root", "qos": "normal"}},
}


def test_differences_are_shown_with_both_values(drift: Drift, reviewed) -> None:
    shown = {}
    for case, changes in DIFFERENCES.items():
        world = same()
        vars(world).update(changes)
        rows = drift(world).values()
        shown[case] = "\n".join(
            f"{row['id']} on {','.join(row['where'])}: {row['what']}\n  stack: {row['stack']}\n"
            f"  there: {row['there']}\n  mends: {row['mends']}"
            for row in rows
        )
    reviewed("drift/pods", shown)


def test_elastic_nodes_that_sleep_or_run_are_no_difference(drift: Drift, up: dict[str, Any]) -> None:
    up["config"] = config_text(nebius(nodesets={"worker": {"count": {"min": 1, "max": 2}}}))
    for there in (1, 2):
        world = same()
        world.node_sets = elastic_node_set("worker", 2, range(there), there)
        world.hosts = world.hosts if there == 2 else world.hosts[:-1]
        found = drift(world)
        assert not [id_ for id_ in found if id_.startswith(("nodeset-size", "node-group-size"))]
    world.node_sets = elastic_node_set("worker", 5, [0], 1)
    assert drift(world)["nodeset-size replicas of nodeset worker"]["there"] == "5"


class TestUnseen:
    def test_parts_that_can_not_be_compared_are_listed(self, hpc: Hpc, kubectl: Made, up: dict[str, Any]) -> None:
        up["config"] = config_text(CONFIG)
        world = same()
        world.ping = "Slurmctld(primary) at controller-0 is DOWN"
        refused = "echo 'Error from server (Forbidden): secrets is forbidden' >&2; exit 1"
        kubectl(f'[ "$1 $2" != "get secrets" ] || {{ {refused}; }}\n{world.script()}')
        ended = hpc("drift", "nebius", "--json")
        document = json.loads(ended.out)
        assert (ended.code, document["ok"], document["differences"]) == (1, False, [])
        assert "controller-0: slurmctld does not answer" in document["unseen"]
        assert "Helm's releases: Error from server (Forbidden): secrets is forbidden" in document["unseen"]

    def test_mend_is_refused_by_the_capability(
        self, hpc: Hpc, kubectl: Made, up: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cli.stack.project.held", lambda _stack: nullcontext())
        log = kubectl("exit 1")
        ended = hpc("drift", "dev", "--mend")
        assert (ended.code, ended.out) == (1, "")
        assert "a platform without the capability mend" in ended.err
        assert not log.exists()

    def test_advice_is_that_of_pods(self, hpc: Hpc, kubectl: Made, up: dict[str, Any]) -> None:
        up["config"] = config_text(CONFIG)
        world = same()
        world.node_sets = [node_set(wanted=5, ready=5)]
        kubectl(world.script())
        shown = hpc("drift", "nebius").out
        assert "worker: replicas of nodeset worker\n    stack: 2\n    there: 5\n" in shown
        assert "./hpc refresh nebius, then ./hpc up nebius" in shown
        assert "files belong to" not in shown


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"cpu": "1"}, {"cpu": "1000m"}), ({"a": 1}, {"a": "1"}), ({"a": 1}, {"a": 1.0}), ({"a": None}, {}),
        ({"a": []}, {}), ({"memory": "1Gi"}, {"memory": "1024Mi"}), ({"id": UNKNOWN}, {"id": "x"}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": "a default"}}),
    ],
)  # fmt: skip
def test_equivalent_values_are_no_difference(wanted: Any, found: Any) -> None:
    assert list(value_differences(wanted, found)) == []


@pytest.mark.parametrize(
    ("wanted", "found", "paths"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b"]), ({"a": [1, 2]}, {"a": [1]}, ["a"]), ({"a": 1}, {}, ["a"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, ["a[0].b"]), ({"a": True}, {"a": False}, ["a"]),
        ({"cpu": "1"}, {"cpu": "1Gi"}, ["cpu"]),
    ],
)  # fmt: skip
def test_differences_have_their_path(wanted: Any, found: Any, paths: list[str]) -> None:
    assert [path for path, _, _ in all_value_differences(wanted, found)] == paths


def test_a_secret_that_is_none_of_helms_is_left_out() -> None:
    broken = [{}, {"data": {"release": "!"}}, {"data": {"release": base64.b64encode(b"{}").decode()}}]
    assert list(parse_releases([*broken, secret(RELEASES["kruise"])])) == ["kruise"]
