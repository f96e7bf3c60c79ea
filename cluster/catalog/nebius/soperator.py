"""Versions of Soperator: the Slurm that each has, and the faults that are known of it.

Source: tags of github.com/nebius/soperator. SLURM_VERSION and IMAGE_VERSION of the Makefile give Slurm's release and
the images' suffix; `git tag --contains` of the merge commit gives the first version without a fault.
"""

from dataclasses import dataclass

Number = tuple[int, int, int]

DEFAULT = "4.1.7"
"""The newest release, and the first without any fault below."""
FIRST = (4, 1, 4)
"""The oldest version that is offered: the first of its series whose workers do not spoil GPU libraries in the jail when
they start together (nebius/soperator, pull request 2703). This program follows the newest series and the next."""

NAMESPACE = "soperator"
"""The namespace, which is the cluster's name, that a template of helm-soperator-activechecks has in place of the
cluster's own: run-extensive-check-on-reservations.yaml. Without this namespace the chart can't be installed."""
FREE_NAME = (5, 0, 0)
"""The first version without that template (commit 3f384ffd, in no release branch of 4.1)."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Versions of Soperator from one on, up to the next series."""

    first: Number
    slurm: str
    """Version of Slurm in its images."""

    @property
    def release(self) -> str:
        """Slurm's release, such as 25.11."""
        return ".".join(self.slurm.split("-")[0].split(".")[:2])


SERIES = (
    Series(first=FIRST, slurm="25.11.3"),
    Series(first=(5, 0, 0), slurm="26.05.3-nebius-2"),
)
"""Oldest first."""

KNOWN = ((4, 1),)
"""Major and minor numbers of the releases whose charts were read at their tags. Later patches have the same keys;
4.1.11 is what Nebius's recipe has had since August of 2026."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is known to go wrong with some versions."""

    name: str
    """Short name, by which findings refer to it."""
    what: str
    """What happens, as a sentence without its full stop."""
    fixed: Number
    """The first version without it; all before it that are offered have it."""
    source: str


FAULTS = (
    Fault(
        name="node-undrained",
        fixed=(4, 1, 7),
        what="a node may be undrained before its machine was recreated: jobs start on a dead node",
        source="pull request 2807",
    ),
)


def parse(version: str) -> Number:
    """The three numbers of a version."""
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def series(version: str) -> Series:
    """What a version's images have in them; the first series for versions before all."""
    number = parse(version)
    return next((one for one in reversed(SERIES) if one.first <= number), SERIES[0])


def image_tag(version: str) -> str:
    """Tag of a version's images."""
    return f"{version}-slurm{series(version).slurm}"


def cluster_name(version: str) -> str:
    """The only name that a cluster of this version can have; nothing if it can have any."""
    return NAMESPACE if parse(version) < FREE_NAME else ""


def is_known(version: str) -> bool:
    """Whether it is a release of those that are known, or a later patch of one."""
    return parse(version)[:2] in KNOWN


def faults(version: str) -> list[Fault]:
    """What is known to go wrong with a version."""
    number = parse(version)
    return [one for one in FAULTS if number < one.fixed]
