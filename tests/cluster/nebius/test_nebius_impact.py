"""What each edit does to running jobs on Nebius."""

import pytest

from cluster.config.impact_annotations import Effect
from cluster.edits import edits
from cluster.impact.table import editable_patterns, find_rule, impact, possible_effects
from cluster.load import cluster_model, parse
from tests.cluster.nebius.clusters import given
from tests.cluster.samples import CLUSTERS, edited, edits_of
from tests.cluster.stacks import Changes


@pytest.mark.parametrize(
    ("pattern", "changes", "effect", "text"), edits_of("nebius"), ids=lambda one: one if isinstance(one, str) else ""
)
def test_an_edit_does_what_the_preview_says(pattern: str, changes: Changes, effect: Effect, text: str) -> None:
    before = parse({"hpc:cluster": CLUSTERS["nebius"]})
    cluster = edited(CLUSTERS["nebius"], changes)
    cluster["partitions"]["main"]["nodesets"] = [*cluster["nodesets"]]
    after = parse({"hpc:cluster": cluster})
    found = {edit.pattern: edit for edit in edits(before, after)}
    if not text:
        assert not found
        return
    assert pattern in found
    one = impact(found[pattern])
    assert one is not None
    assert (one.effect, text in one.reason) == (effect, True), one.reason
    assert effect in possible_effects(pattern, type(before))
    assert "{stack}" in one.command or effect is Effect.REFUSED


def test_every_field_of_the_section_has_an_impact() -> None:
    model = cluster_model()
    mine = {pattern for pattern in editable_patterns(model) if pattern.startswith("nebius")}
    assert len(mine) > 50
    assert {pattern for pattern in mine if find_rule(pattern, "nebius", model) is None} == set()


def test_a_grown_nodeset_may_need_another_group_and_recreates_none() -> None:
    old, new = (parse({"hpc:cluster": given(nodesets={"worker": {"count": count}})}) for count in (90, 250))
    (edit,) = edits(old, new)
    one = impact(edit)
    assert one is not None
    assert (one.effect, "worker-[90-249] joins" in one.reason) == (Effect.RECONFIGURE, True)


@pytest.mark.parametrize("protected", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(
    "ends", [{"backups": {"enabled": False}}, {"filesystems": {"jail": {"spec": {"size_gib": 12 * 1024}}}}]
)
def test_an_edit_that_deletes_backups_is_refused(protected: tuple[bool, bool], ends: Changes) -> None:
    """A bucket is kept by the protection of the last `up`, and backups of `auto` end with the jail's size."""
    pairs = zip(protected, ({}, ends), strict=True)
    old, new = (parse({"hpc:cluster": given(deletion_protection=on, nebius=changes)}) for on, changes in pairs)
    found = [impact(edit) for edit in edits(old, new) if edit.pattern.startswith("nebius")]
    effects = {row.effect for row in found if row is not None}
    assert effects == {Effect.NOTHING if all(protected) else Effect.REFUSED}, found
