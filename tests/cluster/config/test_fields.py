"""A field with an annotation `Slurm` is rendered, refused elsewhere, checked by release, and has an impact and a
description."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import Field

from cluster.checks.settings import find_errors
from cluster.config.accounting import Accounting, Qos
from cluster.config.cluster import ClusterConfig
from cluster.config.impact_annotations import Effect, NoEffect, Reconfigure, Restart
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.section import Slurm
from cluster.config.slurm import SlurmSettings, Timers
from cluster.config.types import Flag, Positive, Seconds
from cluster.impact.table import effects
from cluster.load import with_defaults
from cluster.slurm.accounting import desired
from cluster.slurm.files import render
from cluster.stack_file_reference import json_schema, reference


class MoreTimers(Timers):
    """More of it."""

    complete: Annotated[Seconds, Slurm("CompleteWait"), Reconfigure("read again")] = 32
    """CompleteWait: how long a job may take to end."""


class MoreSettings(SlurmSettings):
    """More of it."""

    timers: MoreTimers = Field(default_factory=MoreTimers)
    array_size: Annotated[Positive | None, Slurm("MaxArraySize"), Restart("read at start")] = None
    """Largest job array."""
    requeue: Annotated[Flag, Slurm("JobRequeue", {True: 1, False: None}, replaceable=True), Reconfigure("read again")]
    """Whether jobs are queued again."""


class MoreNodeset(Nodeset):
    """More of it."""

    weight: Annotated[Positive | None, Slurm("Weight"), Restart("read at start")] = None
    """Nodes of a lower weight are given first."""


class MorePartition(Partition):
    """More of it."""

    grace: Annotated[Seconds | None, Slurm("GraceTime"), Reconfigure("read again")] = None
    """Seconds that a job has to end when it is preempted."""
    per_socket: Annotated[Positive | None, Slurm("MaxCPUsPerSocket"), Reconfigure("read again")] = None
    """CPUs of a socket that jobs may have."""


class MoreQos(Qos):
    """More of it."""

    group_jobs: Annotated[Positive | None, Slurm("GrpJobs"), NoEffect("in the database")] = None
    """Running jobs of the QOS."""


class MoreAccounting(Accounting):
    """More of it."""

    qos: tuple[MoreQos, ...] = ()
    """QOS."""


class MoreConfig(ClusterConfig):
    """More of it."""

    nodesets: Mapping[str, MoreNodeset]
    """Nodes."""
    partitions: Mapping[str, MorePartition]
    """Partitions."""
    accounting: MoreAccounting = Field(default_factory=MoreAccounting)
    """Accounting."""
    slurm: MoreSettings
    """Slurm."""


def more(partition: Mapping[str, Any] = {}, nodeset: Mapping[str, Any] = {}, **slurm: Any) -> MoreConfig:
    return MoreConfig.model_validate(
        with_defaults(
            {
                "platform": "local",
                "name": "more",
                "nodesets": {"cpu": dict(nodeset)},
                "partitions": {"cpu": {"nodesets": ["cpu"], "default": True, **partition}},
                "accounting": {"qos": [{"name": "few", "group_jobs": 3}]},
                "slurm": {"requeue": True, **slurm},
            }
        )
    )


def test_a_field_is_rendered():
    lines = render(more({"grace": 30}, {"weight": 7}, array_size=99, timers={"complete": 5}))["slurm.conf"].splitlines()
    assert {"CompleteWait=5", "MaxArraySize=99", "JobRequeue=1"} <= {*lines}
    assert lines.index("WaitTime=0") < lines.index("CompleteWait=5") < lines.index("ReturnToService=2")
    (node,) = (line for line in lines if line.startswith("NodeName="))
    (partition,) = (line for line in lines if line.startswith("PartitionName="))
    assert "Weight=7" in node.split()
    assert "GraceTime=30" in partition.split()
    assert "MaxCPUsPerSocket" not in partition


def test_a_limit_of_a_qos_goes_to_the_database():
    assert desired(more())["qos"] == [{"name": "few", "GrpJobs": "3"}]


@pytest.mark.parametrize(
    ("config", "todo"),
    [
        (more(extra={"maxarraysize": 5}), "set `slurm.array_size` instead"),
        (more(extra={"CompleteWait": 5}), "set `slurm.timers.complete` instead"),
        (more(nodeset={"node_conf": {"Weight": 5}}), "set `weight:` of the nodeset instead"),
        (more({"conf": {"GraceTime": 5}}), "set `grace:` of the partition instead"),
    ],
)
def test_a_parameter_of_a_field_is_refused_in_free_settings(config: MoreConfig, todo: str):
    assert [finding.todo for finding in find_errors(config)] == [todo]


def test_a_replaceable_field_may_be_set_in_extra():
    config = more(extra={"JobRequeue": 0})
    assert not list(find_errors(config))
    assert [line for line in render(config)["slurm.conf"].splitlines() if "JobRequeue" in line] == ["JobRequeue=0"]


def test_a_field_of_a_later_release_is_refused():
    assert not list(find_errors(more({"per_socket": 4}, version="23.11")))
    (found,) = find_errors(more({"per_socket": 4}, version="22.05"))
    assert found.at == ("partitions", "cpu", "per_socket")
    assert "MaxCPUsPerSocket" not in found.given
    assert "23.11" in found.allowed


def test_a_field_is_in_the_schema_and_on_the_reference_page():
    keys = json_schema(MoreConfig)["$defs"]["MoreSettings"]["properties"]
    assert keys["array_size"] == {"type": "integer", "minimum": 1, "description": "Largest job array."}
    rows = "".join(reference(MoreConfig).values()).splitlines()
    assert "| `array_size` | Largest job array. |  | a whole number ≥ 1 | restart |" in rows
    assert any(row.startswith("| `group_jobs` |") and row.endswith("| nothing |") for row in rows)
    assert any(row.startswith("| `complete` |") and row.endswith("| reconfigure |") for row in rows)


def test_a_field_has_an_impact():
    changes = effects(more(), more({"grace": 30}, {"weight": 7}, array_size=99), "s")
    assert [(change.path, change.effect, change.reason) for change in changes] == [
        ("nodesets.cpu.weight", Effect.RESTART, "read at start"),
        ("slurm.array_size", Effect.RESTART, "read at start"),
        ("partitions.cpu.grace", Effect.RECONFIGURE, "read again"),
    ]
