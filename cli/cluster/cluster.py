"""A cluster that is up, as its stack's outputs describe it: targets, keys, users."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.access.remote import driver_of
from cli.access.ssh import Ssh
from cli.access.target import Target, read_targets
from cli.errors import CliError, hint
from cli.stack import outputs as stack_outputs
from cluster.capability import Capability


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The outputs of a stack that commands need."""

    stack: str
    """The stack's name in commands."""
    name: str
    targets: Mapping[str, Target]
    login: str
    users: tuple[str, ...]
    admin_key: str
    """Private key for root on every machine, in OpenSSH's format; empty where no driver needs it."""
    prometheus: Mapping[str, str]
    """User, password and certificate of Prometheus if it requires them, else empty."""
    outputs: Mapping[str, Any]
    """All of the stack's outputs."""

    def target(self, name: str | None) -> Target:
        """Return the target with this name, which may lack the cluster's name in front; without a name the login
        machine. Raises CliError: there is no such target."""
        name = name or self.login
        candidates = (name, f"{self.name}-{name}", f"{self.name}-{name}-0", f"{name}-0")
        for read in (lambda: self.targets, self._elastic):
            targets = read()
            if match := next((targets[candidate] for candidate in candidates if candidate in targets), None):
                return match
        names = ", ".join(self.targets)
        raise CliError(f"cluster {self.name} has no machine {name!r}.{hint(name, self.targets)} There are: {names}.")

    @property
    def controller(self) -> Target:
        """The target that runs slurmctld, slurmdbd and the database."""
        return self.with_role("controller")[0]

    @property
    def monitoring(self) -> Target:
        """The target that runs Prometheus, if the stack has it."""
        return next(iter(self.with_role("monitoring")), self.controller)

    def with_role(self, role: str) -> tuple[Target, ...]:
        return tuple(target for target in self.targets.values() if role in target.roles)

    def user(self, name: str | None) -> str:
        """Return the user with this name, without a name the first one of the stack. Raises CliError: there is no such
        user, or no user at all."""
        if name == "root" or name in self.users:
            return str(name)
        if name is None and self.users:
            return self.users[0]
        known = f"There are: {', '.join(self.users)}, root." if self.users else "It has none but root: use --as root."
        what = f"no user {name!r}" if name else "no users"
        raise CliError(f"cluster {self.name} has {what}. {known}")

    def _elastic(self) -> dict[str, Target]:
        """Return the elastic nodes by name. Only Slurm has the information whether one has a machine now. If outputs do
        not list them, they are behind the jump host of other nodes, else behind the controller."""
        if rows := self.outputs.get("elastic"):
            return read_targets({**self.outputs, "targets": rows})
        # Commands that need no configuration do not import the models.
        from cli.stack import stack_config
        from cluster.roster import elastic_names

        if (config := stack_config.applied(self.outputs)) is None:
            return {}
        jumps = [target.jump for target in self.targets.values() if target.roles == ("node",) and target.jump]
        jump = next(iter([*jumps, *(target for target in self.targets.values() if "controller" in target.roles)]), None)
        if jump is None or not isinstance(driver_of(jump), Ssh):
            return {}
        addresses = (self.outputs.get("place") or {}).get("addresses") or {}
        return {
            name: Target(name=name, method="ssh", roles=("node",), address=addresses.get(name) or name, jump=jump)
            for nodeset in config.nodesets
            for name in elastic_names(config, nodeset)
        }


def from_outputs(stack: str, outputs: Mapping[str, Any], *needed: Capability) -> Cluster:
    """Read a stack's outputs (with secrets), for a command that needs these capabilities. Raises CliError: the stack is
    not up, its platform lacks a capability, or the outputs are not complete."""
    if not outputs:
        raise CliError(f"stack {stack} is not up. Bring it up with: ./hpc up {stack}")
    platform = outputs.get("platform") or {}
    # Outputs that list no capabilities mean that the platform has all of them.
    available = platform.get("capabilities", [capability.value for capability in Capability])
    if lacking := [capability.value for capability in needed if capability.value not in available]:
        raise CliError(
            f"stack {stack} is on {platform['title']}, a platform without the capability {', '.join(lacking)}. "
            f"It has: {', '.join(available) or 'none'}."
        )
    targets = read_targets(outputs)
    needs_key = not targets or any(driver_of(target).needs_admin_key for target in targets.values())
    key = outputs.get("admin_key") or not needs_key
    required = {"targets": targets, "admin_key": key, "login": outputs.get("login")}
    missing = [name for name, value in required.items() if not value]
    if missing:
        raise CliError(
            f"stack {stack} has no output {', '.join(missing)}, so you can't log in to its machines from here. "
            f"If its last `up` did not end well, repeat it: ./hpc up {stack}"
        )
    return Cluster(
        stack=stack,
        name=str(outputs.get("cluster") or stack),
        targets=targets,
        login=str(outputs["login"]),
        users=tuple(outputs.get("users") or ()),
        admin_key=str(outputs.get("admin_key") or ""),
        prometheus=outputs.get("prometheus") or {},
        outputs=outputs,
    )


def connect(stack: str, *needed: Capability) -> Cluster:
    """Return the cluster of a stack, for a command that needs these capabilities. Raises CliError as `from_outputs`."""
    return from_outputs(stack, stack_outputs.read(stack, show_secrets=True), *needed)
