"""What becomes of the machines when their operating system is another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.catalog import IMAGES
from cluster.catalog.upgrades import UPGRADES, takes_over, way
from cluster.findings import listing
from cluster.impact.impact import Consequence, Effect, nothing, refused, replace
from cluster.impact.rule import POSSIBLE, STATE_STAYS, Verdict, among, controller_anew
from cluster.platforms.gcp.image.content import parts
from cluster.platforms.gcp.image.source import bakes

if TYPE_CHECKING:
    from cluster.impact.edits import Edit

_ALL = "every machine is made anew"


@among(Effect.REPLACE, Effect.REFUSED)
def base(edit: Edit) -> Consequence:
    """Another operating system, perhaps with another release of Slurm."""
    return _release(edit) or _anew(edit, _ALL)


@among(Effect.REPLACE)
def system(edit: Edit) -> Consequence:
    """Another content of the image."""
    return _anew(edit, _ALL)


@among(Effect.REPLACE)
def presented(edit: Edit) -> Consequence:
    """Another system that a rehearsal's machines say they are."""
    return _anew(edit, f"{_ALL} as the other system")


@among(Effect.REPLACE, Effect.REFUSED)
def slurm(edit: Edit) -> Consequence:
    """Another release of Slurm."""
    return _release(edit) or _anew(edit, f"Slurm comes with the machines' image: {_ALL}")


def _release(edit: Edit) -> Consequence | None:
    """The refusal of a release that can't take over from the one before: slurmdbd would not start on its database."""
    old, new = edit.before.slurm_version, edit.after.slurm_version
    if takes_over(new, old):
        return None
    back = f"put Slurm {old} back, or give up job records and the queue"
    steps = way(old, new)
    if not steps:
        return refused(f"Slurm can't go back: {new} does not read the database and the state of {old}: {back}")
    there = {
        release: image.name
        for image in IMAGES.values()
        if edit.after.platform in image.platforms
        for release in image.slurm_versions
    }
    between = steps[1:-1]
    known = f"Slurm {new} takes over from {listing(UPGRADES[new])} only: the way from {old} is {' -> '.join(steps)}"
    if missing := [one for one in between if one not in there]:
        return refused(f"{known}, and no image of platform {edit.after.platform} has {listing(missing)}: {back}")
    first = f'`image: {{base: {there[between[0]]}}}`, `slurm: {{version: "{between[0]}"}}`'
    return refused(f"{known}; begin with {first}", "./hpc up {stack}")


@among(Effect.NOTHING, Effect.REPLACE)
def recipe(edit: Edit) -> Consequence:
    """Another version of the recipes."""
    if edit.after.image.name:
        return nothing("it says which driver the image has that is named; no machine is made anew")
    return _anew(edit, _ALL)


@among(Effect.NOTHING, Effect.REPLACE)
def snapshot(edit: Edit) -> Consequence:
    """Another date of Ubuntu's archive."""
    if not bakes(edit.after):
        return nothing("machines that are made from then on install from it; those that run keep themselves up to date")
    return _anew(edit, f"the image gets the packages of another day: {_ALL}")


def or_image(verdict: Verdict) -> Verdict:
    """A verdict on something that may want other software in the image that the stack bakes."""

    @among(*POSSIBLE[verdict], *() if Effect.REPLACE in POSSIBLE[verdict] else (Effect.REPLACE,))
    def judged(edit: Edit) -> Consequence:
        if edit.after.platform == "local" or not bakes(edit.before) or not bakes(edit.after):
            return verdict(edit)
        was, now = (parts(config) for config in (edit.before, edit.after))
        key = "buckets" if edit.pattern.startswith("storage.buckets") else "nodes"
        found = sorted(
            {_TOLD[name] for name in was if was[name] != now[name] and (name == "gcsfuse") == (key == "buckets")}
        )
        if not found:
            return verdict(edit)
        return _anew(edit, f"the image gets other software ({', '.join(found)}), and {_ALL}")

    return judged


_TOLD = {"gpus": "GPU driver", "tcpxo": "TCPXO", "local_ssds": "local SSDs", "gcsfuse": "GCS FUSE"}
"""Parts of an image, in words."""


def _anew(edit: Edit, how: str) -> Consequence:
    if edit.after.platform == "local":
        ends = "what runs ends with its machine, and batch jobs begin again"
        return replace(f"{how}, all at once: {ends}; {STATE_STAYS}", "./hpc run {stack} -- squeue")
    return controller_anew(edit, f"{how}, nodes when their jobs have ended")
