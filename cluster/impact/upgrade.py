"""The order in which an upgrade of Slurm moves a cluster's machines: which the next `up` takes, and what is refused.

slurmdbd and slurmctld are never older than a slurmd or a command that talks to them, so the controller goes first, by
itself; then the nodes, each when its jobs have ended; then the login machines. Each is an `up` of its own, because a
node is drained by a controller that is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster import roster
from cluster.catalog.slurm_releases import UPGRADES, takes_over
from cluster.config import ClusterConfig
from cluster.findings import listing
from cluster.platforms import registry

ROLES = ("controller", "node", "login")
"""Roles of machines in the order of an upgrade; a machine with several moves with the first of them."""
_MOVES = {
    "controller": "the controller is recreated, and jobs on other machines run on",
    "node": "each node is recreated when its jobs have ended",
    "login": "login machines are recreated, and Slurm's files become those of the new release",
}


@dataclass(frozen=True)
class Step:
    """What the next `up` does of an upgrade; without one, every machine is dealt with as its resource says."""

    old: str
    new: str
    number: int
    """1 to 3; 0 where every machine runs the stack's release."""
    nodes: str
    """The release that a node may run when it begins: Slurm's files must suit it."""
    after: Mapping[str, str]
    """The release of each role once it is done: the stack's output `releases`."""

    @property
    def text(self) -> str:
        """The step in a sentence; empty without an upgrade."""
        if not self.number:
            return ""
        role = ROLES[self.number - 1]
        more = "; the next `up` goes on" if self.number < len(ROLES) else ""
        return f"Slurm {self.old} -> {self.new}, step {self.number} of {len(ROLES)}: {_MOVES[role]}{more}"

    def held(self, config: ClusterConfig) -> frozenset[str]:
        """Names of the machines that it leaves with the image that they have."""
        later = ROLES[self.number :] if self.number else ()
        return frozenset(
            machine.name
            for machine in roster.machines(config)
            if min(map(ROLES.index, machine.roles)) in [ROLES.index(role) for role in later]
        )


def step(found: Mapping[str, str] | None, before: ClusterConfig | None, after: ClusterConfig) -> Step:
    """Return what the next `up` does. `found` is the stack's output `releases`, None of a cluster that an earlier
    version of this program made; `before` is what the cluster runs with, None of a new one."""
    new = after.slurm_version
    if not registry.get(after.platform).machine_images:
        return Step(old=new, new=new, number=0, nodes=new, after={})
    was = before.slurm_version if before else new
    releases = {role: (found or {}).get(role, was) for role in ROLES}
    behind = [role for role in ROLES if releases[role] != new]
    if not behind:
        return Step(old=new, new=new, number=0, nodes=new, after=releases)
    first = behind[0]
    return Step(
        old=releases[first],
        new=new,
        number=ROLES.index(first) + 1,
        nodes=min(releases["node"], new),
        after={**releases, first: new},
    )


def is_complete(found: Mapping[str, str] | None) -> bool:
    """Return whether every machine runs one release, by the stack's output `releases`."""
    return len(set((found or {}).values())) <= 1


def refusal(found: Mapping[str, str] | None, after: ClusterConfig) -> str:
    """Return why a release can't be gone to now: an earlier upgrade has not come to its end. Empty if it can."""
    new = after.slurm_version
    runs = {role: (found or {}).get(role, new) for role in ROLES}
    late = {role: release for role, release in runs.items() if not takes_over(new, release)}
    if not late or is_complete(found):
        return ""
    who = listing(f"{role} machines run {release}" for role, release in late.items())
    return (
        f"slurm.version: an upgrade has not come to its end: {who}, and Slurm {new} works with "
        f"{listing(UPGRADES.get(new, ()))} beside itself only. Put the release before back and run `up` until it says "
        "nothing of an upgrade; then go on to this one"
    )
