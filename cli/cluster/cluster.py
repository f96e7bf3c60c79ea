"""A cluster that is up, as its stack's outputs describe it: machines, their keys, the users."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.errors import CliError
from cluster.platforms.gcp.iap import Instance


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine, how to reach it, and how to know that it is the one."""

    name: str
    address: str
    host_key: str
    """Its public SSH host key, as a line of known_hosts has it after the name. Empty where the machine has told it to
    `jump` alone."""
    roles: tuple[str, ...] = ()
    """What it does: controller, login, node."""
    jump: "Machine | None" = None
    """The machine that leads to it, if it does not answer here."""
    iap: Instance | None = None
    """What Google's proxy knows it by, if that leads to it."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What `run` and `ssh` need of a stack's outputs."""

    name: str
    machines: Mapping[str, Machine]
    login: str
    users: tuple[str, ...]
    admin_key: str
    """Private key for root on every machine, in OpenSSH's format."""

    def machine(self, given: str | None) -> Machine:
        """The machine of a name, with or without the cluster's in front; the login machine if none is given.

        Raises:
            CliError: there is none of that name.
        """
        wanted = given or self.login
        for name in (wanted, f"{self.name}-{wanted}", f"{self.name}-{wanted}-0"):
            if name in self.machines:
                return self.machines[name]
        near = difflib.get_close_matches(wanted, self.machines, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise CliError(f"cluster {self.name} has no machine {wanted!r}.{hint} There are: {', '.join(self.machines)}.")

    @property
    def controller(self) -> Machine:
        """The machine that runs slurmctld, slurmdbd and the database."""
        return self.having("controller")[0]

    def having(self, role: str) -> tuple[Machine, ...]:
        """The machines of a role."""
        return tuple(machine for machine in self.machines.values() if role in machine.roles)

    def user(self, given: str | None) -> str:
        """The user to be: the one given, else the first one configured.

        Raises:
            CliError: there is none of that name, or none at all.
        """
        if given == "root" or given in self.users:
            return str(given)
        if given is None and self.users:
            return self.users[0]
        there = f"There are: {', '.join(self.users)}, root." if self.users else "It has none but root: use --as root."
        what = f"no user {given!r}" if given else "no users"
        raise CliError(f"cluster {self.name} has {what}. {there}")


def from_outputs(stack: str, outputs: Mapping[str, Any]) -> Cluster:
    """Read a stack's outputs (with secrets).

    Raises:
        CliError: the stack is not up, or holds no cluster that can be entered.
    """
    if not outputs:
        raise CliError(f"stack {stack} is not up. Bring it up with: ./hpc up {stack}")
    missing = [key for key in ("machines", "admin_key", "login") if not outputs.get(key)]
    if missing:
        raise CliError(
            f"stack {stack} has no output {', '.join(missing)}, so its machines can't be entered from here. "
            f"If its last `up` did not end well, repeat it: ./hpc up {stack}"
        )
    rows = outputs["machines"]
    machines = {name: _machine(name, rows) for name in rows}
    return Cluster(
        name=str(outputs.get("cluster") or stack),
        machines=machines,
        login=str(outputs["login"]),
        users=tuple(outputs.get("users") or ()),
        admin_key=str(outputs["admin_key"]),
    )


def _machine(name: str, rows: Mapping[str, Any]) -> Machine:
    """A machine as its row of the outputs describes it, with those that lead to it."""
    row = rows[name]
    via = row.get("via") or {}
    return Machine(
        name=name,
        address=str(row["address"]),
        host_key=str(row["host_key"] or "").strip(),
        roles=tuple(row.get("roles") or ()),
        jump=_machine(via["jump"]["name"], rows) if "jump" in via else None,
        iap=_instance(via["iap"]) if "iap" in via else None,
    )


def _instance(row: Mapping[str, Any]) -> Instance:
    return Instance(name=str(row["instance"]), project=str(row["project"]), zone=str(row["zone"]))
