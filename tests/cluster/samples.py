"""Clusters that together have every field of the configuration, and edits of each field.

tests/golden/impact has both, with the effects of edits on running jobs.
"""

import copy
from functools import cache
from typing import Any, NamedTuple

import yaml

from cluster.config.impact_annotations import Effect
from cluster.impact.table import editable_patterns
from tests.cluster.stacks import ROOT, Changes

Cluster = dict[str, Any]


@cache
def _impact(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "tests/golden/impact" / f"{name}.yaml").read_text())


CLUSTERS: dict[str, Cluster] = _impact("clusters")
LAB, CLOUD, MANAGED = (CLUSTERS[name] for name in ("lab", "cloud", "managed"))
ONE_CHOICE = {pattern for pattern in editable_patterns() if pattern.startswith(("slurm.rxdm", "image.recipe"))}
"""Fields of rxdm, which a rehearsal does not have, and the one recipe."""


class Edit(NamedTuple):
    """An edit of a field: the field's pattern, what is changed by its path, and the effect on running jobs."""

    pattern: str
    changes: Changes
    effect: Effect
    reason: str = ""


def edits_of(cluster: str) -> list[Edit]:
    """Return the edits of a cluster, by its name."""
    return [
        Edit(pattern, changes, Effect(effect), *reason)
        for pattern, changes, effect, *reason in _impact("edits")[cluster]
    ]


def edited(cluster: Cluster, changes: Changes) -> Cluster:
    """Return a copy of a cluster with values at dotted paths replaced; None removes one. Members of a list have names.

    Sections that are missing are added.
    """
    after = copy.deepcopy(cluster)
    for path, value in changes.items():
        *steps, last = path.split(".")
        section: Any = after
        for step in steps:
            if isinstance(section, list):
                section = next(member for member in section if member["name"] == step)
            else:
                section = section.setdefault(step, {})
        if isinstance(section, list):
            section[:] = [member for member in section if member["name"] != last] + ([] if value is None else [value])
        elif value is None:
            del section[last]
        else:
            section[last] = value
    return after
