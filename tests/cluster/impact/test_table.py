"""Each field knows what changing it does to running jobs, and the machine agrees: it decides by the rendered text."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from slurm import conf_changes

from cluster.config import ClusterConfig
from cluster.config.impact_annotations import Effect
from cluster.edits import edits
from cluster.impact.rules import RULES
from cluster.impact.table import (
    declared_impacts,
    editable_patterns,
    effects,
    find_rule,
    impact,
    possible_effects,
    worst_effect,
)
from cluster.load import cluster_model, parse
from cluster.platforms import registry
from cluster.platforms.local.address_plan import plan
from cluster.slurm.files import render
from tests.cluster.samples import CLUSTERS, LAB, ONE_CHOICE, Cluster, edited, edits_of
from tests.cluster.stacks import Changes

ALL = [
    (base, *edit[:3])
    for name, base in CLUSTERS.items()
    if base["platform"] != "nebius"  # it renders no files of Slurm; see test_nebius_impact.py
    for edit in edits_of(name)
]
"""Each with the cluster that it changes."""


def config(cluster: Cluster) -> ClusterConfig:
    return _config(json.dumps(cluster))


@cache
def _config(text: str) -> ClusterConfig:
    cluster: Cluster = json.loads(text)
    place = {f"gcp:{key}": value for key, value in (cluster.get("gcp") or {}).items()}
    return parse(
        {"hpc:cluster": {key: value for key, value in cluster.items() if key != "gcp" and value is not None}, **place}
    )


def test_every_field_has_an_impact_and_every_impact_a_field():
    assert [pattern for pattern in editable_patterns() if not possible_effects(pattern)] == []
    every = editable_patterns(cluster_model())
    above = {section.rpartition(".")[0] for pattern in every for section in _above(pattern)}
    for platform in registry.all_platforms():
        assert not set(platform.impacts()) - every - above, platform.name
    assert not {*declared_impacts(), *RULES} - every - above


def _above(pattern: str) -> Iterator[str]:
    """The pattern, and those of all sections that it is in."""
    while pattern:
        yield pattern
        pattern = pattern.rpartition(".")[0]


def test_the_impact_of_adding_a_member_is_not_that_of_its_fields():
    assert find_rule("partitions.*", "gcp") is not None
    assert find_rule("partitions.*.unheard_of", "gcp") is None
    assert find_rule("nodesets.*.unheard_of", "gcp") is None


def test_effects_of_samples_are_possible_effects():
    found: dict[str, set[Effect]] = {}
    for _, pattern, _, effect in ALL:
        found.setdefault(pattern, set()).add(effect)
    for pattern, effects_ in found.items():
        assert effects_ <= set(possible_effects(pattern, cluster_model())), pattern
    assert all(possible_effects(pattern) for pattern in editable_patterns())


def test_every_field_has_a_sample():
    assert {pattern for _, pattern, _, _ in ALL} | ONE_CHOICE == editable_patterns() | {"gcp.project", "gcp.zone"}


@pytest.mark.parametrize(
    ("base", "pattern", "changes", "effect"), ALL, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_impact_of_an_edit_is_that_of_its_rendered_files(
    base: Cluster, pattern: str, changes: Changes, effect: Effect
):
    """What the machine needs for the new files is what the table says, where jobs run on."""
    before, after = config(base), config(edited(base, changes))
    found = {edit.pattern: result for edit in edits(before, after) if (result := impact(edit))}
    assert found[pattern].effect is effect, found[pattern].reason
    effect_of_all = worst_effect(effects(before, after, "lab"))
    keep = registry.get(before.platform).keep
    before, after = keep(None, before), keep(before, after)
    need = conf_changes.need(
        *(render(side, plan(side).of if side.platform == "local" else None) for side in (before, after))
    )
    if "scripts" in pattern or pattern.endswith((".prolog", ".epilog")):
        # Only the first or the last script of a place changes slurm.conf, which names the one that runs them all.
        assert Effect(need.value).harm <= effect_of_all.harm
    elif effect_of_all.harm <= Effect.RESTART.harm:
        assert need.value == effect_of_all.value
    if effect_of_all is Effect.DRAIN and pattern != "partitions.*":
        assert need is conf_changes.Need.RESTART


def test_only_the_first_qos_that_preempts_restarts_slurmctld():
    first = edited(LAB, {"accounting.qos.urgent.preempt": ["idle"]})
    second = edited(first, {"accounting.qos.now": {"name": "now", "preempt": ["urgent"]}})
    for before, after, effect in ((LAB, first, Effect.RESTART), (first, second, Effect.NOTHING)):
        assert worst_effect(effects(config(before), config(after), "lab")) is effect


def test_equal_configurations_have_no_effects():
    assert effects(config(LAB), config(LAB), "lab") == []
    assert worst_effect([]) is Effect.NOTHING


class TestWords:
    """What an operator reads."""

    def test_worst_first_with_path_values_reason_and_command(self):
        after = edited(LAB, {"partitions.cpu.max_time": "01:00:00", "nodesets.cpu.count": 1})
        drained, limit = effects(config(LAB), config(after), "mine")
        assert drained.shown == "nodesets.cpu.count: 3 -> 1"
        assert "lab-cpu-[1-2]" in drained.reason
        assert drained.command == "./hpc ssh mine controller -- squeue --nodelist='lab-cpu-[1-2]'"
        assert (limit.shown, limit.effect) == ("partitions.cpu.max_time: INFINITE -> 01:00:00", Effect.RECONFIGURE)
        assert limit.command == "./hpc up mine"

    def test_added_and_removed_members_are_single_changes(self):
        after = edited(LAB, {"users.bob": None, "partitions.night": {"nodesets": ["cpu"]}})
        shown = [change.shown for change in effects(config(LAB), config(after), "lab")]
        assert shown == ["partitions.night: added", "users.bob: removed"]

    def test_a_nodeset_in_front_of_others_moves_none(self):
        after = {**LAB, "nodesets": {"a-new-one": {}, **LAB["nodesets"]}}
        assert [change.shown for change in effects(config(LAB), config(after), "lab")] == ["nodesets.a-new-one: added"]

    def test_a_block_that_another_nodeset_takes_is_refused_with_the_line_to_write(self):
        after = edited(LAB, {"nodesets.new": {"addresses": "10.77.4.0/23"}})
        refused = effects(config(LAB), config(after), "lab")[0]
        assert (refused.effect, refused.path) == (Effect.REFUSED, "nodesets.cpu.addresses")
        assert "write `addresses: 10.77.4.0/23` under nodesets.cpu" in refused.command

    @pytest.mark.parametrize("pattern", sorted(editable_patterns()))
    def test_every_impact_has_a_reason_and_a_command(self, pattern: str):
        effect_of_all = [c for base, p, changes, _ in ALL if p == pattern for c in _impacts(base, changes, pattern)]
        assert all(len(sample_impact.reason) > 20 and sample_impact.command for sample_impact in effect_of_all)


def _impacts(base: Cluster, changes: Changes, pattern: str) -> list[Any]:
    found = edits(config(base), config(edited(base, changes)))
    return [impact(edit) for edit in found if edit.pattern == pattern]
