"""The impact of another operating system or release of Slurm."""

from collections.abc import Callable

from cluster.catalog import IMAGES
from cluster.catalog.upgrades import UPGRADES, takes_over, way
from cluster.config.impact import Effect, Impact, Refuse, Replace
from cluster.findings import listing
from cluster.impact.edits import Edit
from cluster.impact.rule import Rule
from cluster.platforms import registry

ALL = "every machine is recreated"
WITH_IMAGE = f"Slurm comes with the machines' image: {ALL}"


def release(recreate: Callable[[Edit], Impact]) -> Rule:
    """A rule for another release of Slurm, or a system that may have one: what it does, unless it is refused."""
    return Rule(lambda edit: _refused(edit) or recreate(edit), (Effect.REPLACE, Effect.REFUSED))


base = release(lambda _: Replace(ALL))
slurm = release(lambda _: Replace(WITH_IMAGE))


def _refused(edit: Edit) -> Impact | None:
    """The refusal of a release that can't take over from the one before: slurmdbd would not start on its database."""
    old, new = edit.before.slurm_version, edit.after.slurm_version
    if takes_over(new, old):
        return None
    back = f"put Slurm {old} back, or give up job records and the queue"
    steps = way(old, new)
    if not steps:
        return Refuse(f"Slurm can't go back: {new} does not read the database and the state of {old}: {back}")
    there = {
        release: image.name
        for image in IMAGES.values()
        if image.name in registry.get(edit.after.platform).images
        for release in image.slurm_versions
    }
    between = steps[1:-1]
    known = f"Slurm {new} takes over from {listing(UPGRADES[new])} only: the way from {old} is {' -> '.join(steps)}"
    if missing := [one for one in between if one not in there]:
        return Refuse(f"{known}, and no image of platform {edit.after.platform} has {listing(missing)}: {back}")
    first = f'`image: {{base: {there[between[0]]}}}`, `slurm: {{version: "{between[0]}"}}`'
    return Refuse(f"{known}; begin with {first}", command="./hpc up {stack}")
