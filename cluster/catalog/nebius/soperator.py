"""Versions of Soperator: the Slurm that each has, and the faults that are known of it.

Source: tags of github.com/nebius/soperator. SLURM_VERSION and IMAGE_VERSION of the Makefile give Slurm's release and
the images' suffix; `git tag --contains` of the merge commit gives the first version without a fault.
"""

from dataclasses import dataclass

Number = tuple[int, int, int]

DEFAULT = "4.1.7"
"""The newest release, and the first without any fault below."""
FIRST = (4, 1, 0)
"""The oldest version that is offered: this program follows the newest series and the next. A jail of versions before
3.0.3 has no sentinel, so that their `up` would never end (nebius/soperator, images/populate_jail at the tags)."""


NAMESPACE = "soperator"
"""The namespace, which is the cluster's name, that a template of helm-soperator-activechecks has in place of the
cluster's own: run-extensive-check-on-reservations.yaml. Without this namespace the chart can't be installed."""
FIXED_NAME, FREE_NAME = (1, 23, 0), (5, 0, 0)
"""The first version with that template, and the first without (commit 3f384ffd, in no release branch of 4.1)."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Versions of Soperator from one on, up to the next series."""

    first: Number
    slurm: str
    """Version of Slurm in its images."""
    ubuntu: str = ""
    """Release of Ubuntu in the name of its images; none from 3.0 on."""

    @property
    def release(self) -> str:
        """Slurm's release, such as 25.11."""
        return ".".join(self.slurm.split("-")[0].split(".")[:2])


SERIES = (
    Series(first=(1, 14, 0), slurm="24.05.2", ubuntu="jammy"),
    Series(first=(1, 18, 0), slurm="24.05.5", ubuntu="jammy"),
    Series(first=(1, 20, 0), slurm="24.05.7", ubuntu="jammy"),
    Series(first=(1, 21, 0), slurm="24.11.5", ubuntu="jammy"),
    Series(first=(1, 22, 0), slurm="24.11.6", ubuntu="noble"),
    Series(first=(1, 23, 0), slurm="25.05.4", ubuntu="noble"),
    Series(first=(2, 0, 0), slurm="25.05.5", ubuntu="noble"),
    Series(first=(3, 0, 0), slurm="25.11.2"),
    Series(first=(3, 0, 2), slurm="25.11.3"),
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
    since: Number
    fixed: tuple[Number, ...]
    """First versions without it: of each line of releases that has the correction, lowest first."""
    fatal: bool = False
    """Whether a cluster can't be used with it."""
    needs_gpus: bool = False
    """Whether only nodes with GPUs have it."""
    source: str

    def hits(self, version: Number) -> bool:
        """Whether a version has the fault: it ends with the correction in the version's own line, else in the last."""
        own = [one for one in self.fixed if one[:2] == version[:2]]
        return self.since <= version < (own or self.fixed)[-1]


# fmt: off
FAULTS = (
    Fault(
        name="topology-crash", fatal=True, since=(3, 0, 0), fixed=((3, 0, 2),),
        what="slurmctld ends with `No switches configured` at the first start and never comes up",
        source="pull request 2298"),
    Fault(
        name="jail-incomplete", since=(1, 20, 0), fixed=((3, 0, 3),),
        what="sconfigcontroller may write into the jail before it is populated, which then stays empty",
        source="pull request 2336"),
    Fault(
        name="gpu-libraries", fatal=True, needs_gpus=True, since=(3, 0, 0), fixed=((4, 0, 5), (4, 1, 4)),
        what="workers that start together spoil GPU libraries in the jail: jobs fail with `file too short`",
        source="pull request 2703"),
    Fault(
        name="node-replaced", since=(1, 20, 0), fixed=((3, 0, 8), (4, 0, 3), (4, 1, 1)),
        what="a node may be recreated while a job still runs on it",
        source="pull request 2635"),
    Fault(
        name="node-undrained", since=(1, 20, 0), fixed=((4, 1, 7),),
        what="a node may be undrained before its machine was recreated: jobs start on a dead node",
        source="pull request 2807"),
    Fault(
        name="checks-gate", since=(1, 22, 0), fixed=((2, 0, 0),),
        what="one failed check that only comments keeps the cluster from coming up",
        source="pull request 2132"),
)
# fmt: on


def parse(version: str) -> Number:
    """The three numbers of a version."""
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def generation(version: str) -> int:
    """1 before 1.22, which has the NCCL CronJob; 2 up to 2.x, whose workers are in the SlurmCluster; 3 from 3.0 on,
    whose workers are NodeSets."""
    number = parse(version)
    return 3 if number >= (3, 0, 0) else 2 if number >= (1, 22, 0) else 1


def series(version: str) -> Series:
    """What a version's images have in them; the first series for versions before all."""
    number = parse(version)
    return next((one for one in reversed(SERIES) if one.first <= number), SERIES[0])


def image_tag(version: str) -> str:
    """Tag of a version's images."""
    found = series(version)
    return "-".join(part for part in (version, found.ubuntu, f"slurm{found.slurm}") if part)


def cluster_name(version: str) -> str:
    """The only name that a cluster of this version can have; nothing if it can have any."""
    return NAMESPACE if FIXED_NAME <= parse(version) < FREE_NAME else ""


def is_known(version: str) -> bool:
    """Whether it is a release of those that are known, or a later patch of one."""
    return parse(version)[:2] in KNOWN


def faults(version: str) -> list[Fault]:
    """What is known to go wrong with a version."""
    number = parse(version)
    return [one for one in FAULTS if one.hits(number)]
