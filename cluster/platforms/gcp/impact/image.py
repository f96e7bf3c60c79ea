"""The impact of another image on the machines that start from it."""

from cluster.catalog.fabrics import FABRICS
from cluster.config.impact import Effect, Impact, NoEffect
from cluster.impact.edits import Edit, Rule, rule
from cluster.impact.rules import ALL_RECREATED, WITH_IMAGE, recreate_controller, release
from cluster.platforms.gcp.image.content import parts
from cluster.platforms.gcp.image.source import bakes
from cluster.platforms.gcp.impact.capacity import RECORDS_STAY


@rule(Effect.REPLACE)
def system(edit: Edit) -> Impact:
    """Another content of the image."""
    return _recreate_all(edit)


@rule(Effect.NOTHING, Effect.REPLACE)
def recipe(edit: Edit) -> Impact:
    if edit.after.image.name:
        return NoEffect("it says which driver the image has that is named; no machine is recreated")
    return _recreate_all(edit)


@rule(Effect.NOTHING, Effect.REPLACE)
def snapshot(edit: Edit) -> Impact:
    if not bakes(edit.after):
        return NoEffect("machines that are created from then on install from it; those that run update themselves")
    return _recreate_all(edit, f"the image gets the packages of another day: {ALL_RECREATED}")


def or_image(otherwise: Rule) -> Rule:
    """A rule for what may want other software in the image that the stack bakes."""

    def find(edit: Edit) -> Impact | None:
        if not bakes(edit.before) or not bakes(edit.after):
            return otherwise(edit)
        was, now = (parts(config) for config in (edit.before, edit.after))
        buckets = edit.pattern.startswith("storage.buckets")
        found = sorted({_TITLES[name] for name in was if was[name] != now[name] and (name == "gcsfuse") == buckets})
        if not found:
            return otherwise(edit)
        return _recreate_all(edit, f"the image gets other software ({', '.join(found)}), and {ALL_RECREATED}")

    return Rule(find, tuple(dict.fromkeys((*otherwise.possible, Effect.REPLACE))))


_TITLES = {
    "gpus": "GPU driver",
    "local_ssds": "local SSDs",
    "gcsfuse": "GCS FUSE",
    **{fabric.key: fabric.short for fabric in FABRICS},
}
"""Parts of an image, in words."""


def _recreate_all(edit: Edit, how: str = ALL_RECREATED) -> Impact:
    return recreate_controller(edit, RECORDS_STAY, f"{how}, nodes when their jobs have ended")


base = release(_recreate_all)
slurm = release(lambda edit: _recreate_all(edit, WITH_IMAGE))
