"""What a stack says, from what its last `up` was made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.errors import CliError
from cluster.config import ClusterConfig
from cluster.load.parse import parse_output
from cluster.observe.drift import Wanted, key_id
from cluster.observe.observation import ClusterObservation
from cluster.roster import machines
from cluster.slurm.accounting import desired
from cluster.slurm.script_tree import expected
from components.slurm import payload, setup


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a stack's last `up` configured its machines with."""

    name: str
    config: ClusterConfig
    addresses: Mapping[str, str]
    """Of its machines, where the platform knows them beforehand."""
    mounts: Mapping[str, Sequence[Mapping[str, str]]]
    """Shared file systems of each machine that is set up over SSH."""
    state: Mapping[str, Any] | None
    exports: Mapping[str, Any] | None
    """What the controller keeps on a disk of its own, and shares."""
    admin_key: str = ""
    """Private half of the operator's key."""


def stack(name: str, outputs: Mapping[str, Any]) -> Stack:
    """The configuration in a stack's outputs. Raises CliError: its last `up` was one of an earlier version of
    this program."""
    if not {"config", "place"} <= set(outputs):
        raise CliError(
            f"stack {name} has no output of its configuration: its last `up` was one of an earlier version, or did "
            f"not end well. Repeat it: ./hpc up {name}"
        )
    config = parse_output(outputs["config"])
    place = outputs["place"]
    return Stack(
        name=name,
        config=config,
        addresses=place.get("addresses") or {},
        mounts=place["mounts"],
        state=place.get("state"),
        exports=place.get("exports"),
        admin_key=str(outputs.get("admin_key") or ""),
    )


def wanted(of: Stack, seen: ClusterObservation) -> Wanted:
    """What the stack says, to compare with what was seen."""
    return Wanted(
        files=payload.slurm_files(of.config, of.addresses),
        users=payload.users(of.config),
        groups=payload.groups(of.config),
        accounting=desired(of.config),
        scripts=expected(of.config),
        root_keys=[key] if (key := key_id(of.admin_key)) else [],
        nodes=[one.name for one in machines(of.config) if "node" in one.roles],
        setup=setup.version(),
        setup_of_stack=_version(seen),
    )


def _version(seen: ClusterObservation) -> str | None:
    """The set-up that the last `up` brought, from any machine that can read the cluster state."""
    read = ((one.part("board", "newest") or {}).get("setup") for one in seen.machines)
    return next(filter(None, read), None)
