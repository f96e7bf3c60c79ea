"""The steps in which a cluster's machines get another image: what the next `up` does, and what is refused.

slurmdbd and slurmctld may not be older than a slurmd or a command that connects to them. So the controller is first,
then come the nodes, each when its jobs have ended, then the login machines. Each step is an `up` of its own, because
draining nodes needs a controller. An image with the same release of Slurm takes the same steps.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cluster import roster
from cluster.catalog.slurm_releases import UPGRADES, takes_over
from cluster.config import ClusterConfig
from cluster.findings import listing

ROLES = ("controller", "node", "login")
"""Roles of machines in the order of an upgrade. A machine with several roles has the turn of the first one, and the
machine of Prometheus that of login machines."""
TEMPLATE = "template"
"""Suffix of the resource that a nodeset's static machines are created from, where a platform has one."""
_MOVES = {
    "controller": "the controller is recreated, and jobs on other machines run on",
    "node": "nodes are recreated, a part of each partition at a time, each when its jobs have ended",
    "login": "login machines, and a machine of Prometheus with its metrics, are recreated",
}


@dataclass(frozen=True)
class Boot:
    """The image that a machine boots."""

    release: str
    """The release of Slurm in the image."""
    image: str
    """The platform's own name of the image. Another name is another image."""


@dataclass(frozen=True)
class UpgradeStep:
    """The step of an upgrade that the next `up` takes."""

    old: str
    new: str
    number: int
    """1 to 3; 0 without an upgrade."""
    nodes: str
    """The oldest release on nodes when the step begins. Slurm's files must suit it."""
    after: Mapping[str, Boot]
    """The image of each role after the step, for the stack's outputs `releases` and `images`."""

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
        """The stack's outputs that `current_boots` reads."""
        rows = {role: asdict(boot) for role, boot in self.after.items()}
        return {f"{key}s": {role: row[key] for role, row in rows.items()} for key in ("release", "image")}

    def held(self, config: ClusterConfig) -> frozenset[str]:
        """Return the machines that keep their image in this step, and the templates of their nodesets, by name."""
        if not self.number:
            return frozenset()
        machines = [
            machine
            for machine in roster.machines(config)
            if min(ROLES.index(role if role in ROLES else "login") for role in machine.roles) >= self.number
        ]
        templates = {f"{config.name}-{machine.nodeset}-{TEMPLATE}" for machine in machines if machine.nodeset}
        return frozenset({machine.name for machine in machines} | templates)


def current_boots(outputs: Mapping[str, Any], otherwise: Boot) -> dict[str, Boot]:
    """Return what each role boots, by the stack's outputs; `otherwise` for a new cluster and for one that an earlier
    version of this program created."""
    releases, images = (outputs.get(key) or {} for key in ("releases", "images"))
    return {role: Boot(releases.get(role, otherwise.release), images.get(role, otherwise.image)) for role in ROLES}


def next_step(boots: Mapping[str, Boot], new: Boot) -> UpgradeStep:
    """Return the step that the next `up` takes towards `new` on all machines; `boots` is empty on a platform without
    machines."""
    first = next((number for number, role in enumerate(ROLES, 1) if boots and boots[role] != new), 0)
    if not first:
        return UpgradeStep(old=new.release, new=new.release, number=0, nodes=new.release, after=boots)
    return UpgradeStep(
        old=min(boot.release for boot in boots.values()),
        new=new.release,
        number=first,
        nodes=min(boots["node"].release, new.release),
        # A role that boots `new` may have machines that do not, if an upgrade in the other direction was given up.
        after={role: boot if boot != new else Boot(new.release, "") for role, boot in boots.items()}
        | dict.fromkeys(ROLES[:first], new),
    )


def is_complete(boots: Mapping[str, Boot]) -> bool:
    """Return whether every machine boots the same."""
    return len(set(boots.values())) <= 1


def refusal(boots: Mapping[str, Boot], new: str) -> str:
    """Return why an upgrade to a release can't begin now, as an earlier one has not ended; empty if it can."""
    late = {role: boot.release for role, boot in boots.items() if not takes_over(new, boot.release)}
    if not late or len({boot.release for boot in boots.values()}) == 1:
        return ""
    who = listing(f"{role} machines run {release}" for role, release in late.items())
    return (
        f"slurm.version: an upgrade has not come to its end: {who}, and Slurm {new} works with "
        f"{listing(UPGRADES.get(new, ()))} beside itself only. Put the release before back and run `up` until it says "
        "nothing of an upgrade; then go on to this one"
    )
