"""Which release of Slurm takes over the state, the jobs and the database of which others.

Source: the table "Compatibility Window" of SchedMD's upgrade guide (doc/html/upgrades.shtml at slurm-26-05-3-1) and the
release notes of each release (RELEASE_NOTES at slurm-23-02-8-1 to slurm-26-05-3-1): the two releases before, and from
24.11 on the three before. No release goes back to an earlier one.
"""

from collections.abc import Mapping

UPGRADES: Mapping[str, tuple[str, ...]] = {
    "22.05": (),
    "23.02": ("22.05",),
    "23.11": ("23.02", "22.05"),
    "24.05": ("23.11", "23.02"),
    "24.11": ("24.05", "23.11", "23.02"),
    "25.05": ("24.11", "24.05", "23.11"),
    "25.11": ("25.05", "24.11", "24.05"),
    "26.05": ("25.11", "25.05", "24.11"),
}
"""Each release with those that it can be put in the place of, the newest first; those before 22.05 are left out."""


def takes_over(new: str, old: str) -> bool:
    """Whether slurmctld and slurmdbd of release `new` start on what release `old` left."""
    return new == old or old in UPGRADES.get(new, ())


def way(old: str, new: str) -> tuple[str, ...]:
    """The fewest releases that lead from `old` to `new`, both included, by the newest ones; empty where none do."""
    ways = [(new,)]
    for found in ways:  # grows while it is read: all ways of one step more come after those of this one
        if found[0] == old:
            return found
        ways += [(before, *found) for before in UPGRADES.get(found[0], ())]
    return ()
