"""What becomes of the machines when their operating system is another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.config.consequence import Consequence, Effect
from cluster.config.verdicts.verdict import among, controller_anew

if TYPE_CHECKING:
    from cluster.config.edits import Edit


@among(Effect.REPLACE)
def system(edit: Edit) -> Consequence:
    """Another image, or another content of it."""
    return controller_anew(edit, "every machine is made anew, nodes when their jobs have ended; ")


@among(Effect.REPLACE)
def presented(edit: Edit) -> Consequence:
    """Another system that a rehearsal's machines say they are."""
    return controller_anew(edit, "every machine is made anew as the other system; ")


@among(Effect.REPLACE)
def slurm(edit: Edit) -> Consequence:
    """Another release of Slurm."""
    return controller_anew(edit, "Slurm comes with the machines' image: every machine is made anew; ")
