"""The order in which another image moves a cluster's machines: which the next `up` takes, and what is refused.

slurmdbd and slurmctld are never older than a slurmd or a command that talks to them, so the controller goes first, by
itself; then the nodes, each when its jobs have ended; then the login machines. Each is an `up` of its own, because a
node is drained by a controller that is there. An image with the same release of Slurm goes the same way.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cluster import roster
from cluster.catalog.slurm_releases import UPGRADES, takes_over
from cluster.config import ClusterConfig
from cluster.findings import listing

ROLES = ("controller", "node", "login")
"""Roles of machines in the order of an upgrade; a machine with several moves with the first of them, and that of
Prometheus with the login machines."""
TEMPLATE = "template"
"""Ending of a nodeset's resource that its static machines are made from, where a platform has one."""
_MOVES = {
    "controller": "the controller is recreated, and jobs on other machines run on",
    "node": "nodes are recreated, a part of each partition at a time, each when its jobs have ended",
    "login": "login machines, and a machine of Prometheus with its metrics, are recreated",
}


@dataclass(frozen=True)
class Boot:
    """The image that a machine boots, and Slurm's release in it."""

    release: str
    """Slurm's release in it."""
    image: str
    """The platform's own name of the image; another text is another image."""


@dataclass(frozen=True)
class Step:
    """The part of an upgrade that the next `up` does; without one, every machine is dealt with as its resource says."""

    old: str
    new: str
    number: int
    """1 to 3; 0 where every machine has the stack's image."""
    nodes: str
    """The release that a node may run when it begins: Slurm's files must suit it."""
    after: Mapping[str, Boot]
    """The image of each role once the step is done: the stack's outputs `releases` and `images`."""

    @property
    def text(self) -> str:
        """The step in a sentence; empty without an upgrade."""
        if not self.number:
            return ""
        role = ROLES[self.number - 1]
        what = f"Slurm {self.old} -> {self.new}" if self.old != self.new else "another image"
        more = "" if is_complete(self.after) else "; the next `up` goes on"
        return f"{what}, step {self.number} of {len(ROLES)}: {_MOVES[role]}{more}"

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        """The stack's outputs that `boots` reads."""
        rows = {role: asdict(boot) for role, boot in self.after.items()}
        return {f"{key}s": {role: row[key] for role, row in rows.items()} for key in ("release", "image")}

    def held(self, config: ClusterConfig) -> frozenset[str]:
        """Names of the machines that it leaves with the image that they have, and of their nodesets' templates."""
        later = ROLES[self.number :] if self.number else ()
        machines = [
            machine
            for machine in roster.machines(config)
            if min(map(_turn, machine.roles)) in [ROLES.index(role) for role in later]
        ]
        templates = {f"{config.name}-{machine.nodeset}-{TEMPLATE}" for machine in machines if machine.nodeset}
        return frozenset({machine.name for machine in machines} | templates)


def _turn(role: str) -> int:
    return ROLES.index(role) if role in ROLES else ROLES.index("login")


def boots(outputs: Mapping[str, Any], otherwise: Boot) -> dict[str, Boot]:
    """Return what each role boots, by the stack's outputs; `otherwise` where these do not have it: of a new cluster, or
    one that an earlier version of this program made."""
    releases, images = (outputs.get(key) or {} for key in ("releases", "images"))
    return {role: Boot(releases.get(role, otherwise.release), images.get(role, otherwise.image)) for role in ROLES}


def step(found: Mapping[str, Boot], new: Boot) -> Step:
    """Return what the next `up` does to machines that boot what `found` says, until all of them boot `new`; nothing of
    a platform without machines."""
    behind = [role for role in ROLES if found and found[role] != new]
    if not behind:
        return Step(old=new.release, new=new.release, number=0, nodes=new.release, after=found)
    first = behind[0]
    return Step(
        old=min(boot.release for boot in found.values()),
        new=new.release,
        number=ROLES.index(first) + 1,
        nodes=min(found["node"].release, new.release),
        # A role that looks done may have some of its machines on the way back from an upgrade that was given up.
        after={role: boot if boot != new else Boot(new.release, "") for role, boot in found.items()}
        | dict.fromkeys(ROLES[: ROLES.index(first) + 1], new),
    )


def is_complete(found: Mapping[str, Boot]) -> bool:
    """Return whether every machine boots the same."""
    return len(set(found.values())) <= 1


def refusal(found: Mapping[str, Boot], new: str) -> str:
    """Return why a release can't be gone to now: an earlier upgrade has not come to its end. Empty if it can."""
    late = {role: boot.release for role, boot in found.items() if not takes_over(new, boot.release)}
    if not late or len({boot.release for boot in found.values()}) == 1:
        return ""
    who = listing(f"{role} machines run {release}" for role, release in late.items())
    return (
        f"slurm.version: an upgrade has not come to its end: {who}, and Slurm {new} works with "
        f"{listing(UPGRADES.get(new, ()))} beside itself only. Put the release before back and run `up` until it says "
        "nothing of an upgrade; then go on to this one"
    )
