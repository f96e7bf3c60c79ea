"""A cluster that is up, as its stack's outputs describe it: targets, keys, users."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.access.remote import driver_of
from cli.access.ssh import Ssh
from cli.access.target import Target, read_targets
from cli.errors import CliError
from cluster.platforms.capability import Capability


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The outputs of a stack that commands need."""

    name: str
    targets: Mapping[str, Target]
    login: str
    users: tuple[str, ...]
    admin_key: str = ""
    """Private key for root on every machine, in OpenSSH's format; empty where no driver needs it."""
    prometheus: Mapping[str, str] = field(default_factory=dict)
    """User, password and certificate of Prometheus, where it asks for them; else empty."""
    elastic: Callable[[], Mapping[str, Target]] = dict
    """Returns the elastic nodes, by name: whether one has a machine now, Slurm alone can say."""

    def target(self, given: str | None) -> Target:
        """The target of a name, with or without the cluster's in front; the login machine if none is given. Raises
        CliError: there is none of that name."""
        wanted = given or self.login
        names = (wanted, f"{self.name}-{wanted}", f"{self.name}-{wanted}-0", f"{wanted}-0")
        for there in (lambda: self.targets, self.elastic):
            known = there()
            if found := next((known[name] for name in names if name in known), None):
                return found
        near = difflib.get_close_matches(wanted, self.targets, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise CliError(f"cluster {self.name} has no machine {wanted!r}.{hint} There are: {', '.join(self.targets)}.")

    @property
    def controller(self) -> Target:
        """The target that runs slurmctld, slurmdbd and the database."""
        return self.with_role("controller")[0]

    @property
    def monitoring(self) -> Target:
        """The target that runs Prometheus, where the stack has it."""
        return next(iter(self.with_role("monitoring")), self.controller)

    def with_role(self, role: str) -> tuple[Target, ...]:
        return tuple(target for target in self.targets.values() if role in target.roles)

    def user(self, given: str | None) -> str:
        """The user to be: the one given, else the first one configured. Raises CliError: there is none of that name, or
        none at all."""
        if given == "root" or given in self.users:
            return str(given)
        if given is None and self.users:
            return self.users[0]
        there = f"There are: {', '.join(self.users)}, root." if self.users else "It has none but root: use --as root."
        what = f"no user {given!r}" if given else "no users"
        raise CliError(f"cluster {self.name} has {what}. {there}")


def require_capabilities(stack: str, outputs: Mapping[str, Any], *needed: Capability) -> None:
    """Return if the stack's platform has these capabilities; one that does not say which it has, has all of them.
    Raises CliError: one is missing; the message says which there are."""
    platform = outputs.get("platform") or {}
    there = platform.get("capabilities", [capability.value for capability in Capability])
    missing = [capability.value for capability in needed if capability.value not in there]
    if missing:
        raise CliError(
            f"stack {stack} is on {platform['title']}, a platform without the capability {', '.join(missing)}. "
            f"It has: {', '.join(there) or 'none'}."
        )


def from_outputs(stack: str, outputs: Mapping[str, Any], *needed: Capability) -> Cluster:
    """Read a stack's outputs (with secrets), for a command that needs these capabilities. Raises CliError: the stack is
    not up, its platform lacks a capability, or the outputs are not complete."""
    if not outputs:
        raise CliError(f"stack {stack} is not up. Bring it up with: ./hpc up {stack}")
    require_capabilities(stack, outputs, *needed)
    targets = read_targets(outputs)
    keyed = not targets or any(driver_of(target).needs_admin_key for target in targets.values())
    given = {"targets": targets, "admin_key": outputs.get("admin_key") or not keyed, "login": outputs.get("login")}
    missing = [key for key, value in given.items() if not value]
    if missing:
        raise CliError(
            f"stack {stack} has no output {', '.join(missing)}, so you can't log in to its machines from here. "
            f"If its last `up` did not end well, repeat it: ./hpc up {stack}"
        )
    return Cluster(
        name=str(outputs.get("cluster") or stack),
        targets=targets,
        login=str(outputs["login"]),
        users=tuple(outputs.get("users") or ()),
        admin_key=str(outputs.get("admin_key") or ""),
        prometheus=outputs.get("prometheus") or {},
        elastic=lambda: _elastic(outputs, targets),
    )


def _elastic(outputs: Mapping[str, Any], targets: Mapping[str, Target]) -> dict[str, Target]:
    """The elastic nodes of a stack: as its outputs have them, else behind the jump host of its other nodes, else behind
    the controller."""
    if rows := outputs.get("elastic"):
        return read_targets({**outputs, "targets": rows})
    if "config" not in outputs:
        return {}
    from cluster.load import parse_output
    from cluster.roster import elastic_names

    config = parse_output(outputs["config"])
    jumps = [target.jump for target in targets.values() if target.roles == ("node",) and target.jump]
    jump = next(iter([*jumps, *(target for target in targets.values() if "controller" in target.roles)]), None)
    if jump is None or not isinstance(driver_of(jump), Ssh):
        return {}
    addresses = (outputs.get("place") or {}).get("addresses") or {}
    return {
        name: Target(name=name, method="ssh", roles=("node",), address=addresses.get(name) or name, jump=jump)
        for nodeset in config.nodesets
        for name in elastic_names(config, nodeset)
    }
