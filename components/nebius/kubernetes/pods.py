"""Programs in the pods of a cluster, in the root file system that users see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.platforms.nebius.names import JAIL_PATH, LOGIN_POD, ROOT_PATH
from components.nebius.kubernetes.kubectl import Kubectl


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod that programs run in."""

    name: str
    container: str
    jail: str = JAIL_PATH
    """Folder that is the root of what runs there; empty for the container's own."""

    def run(self, kubectl: Kubectl, *command: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Output of a command. Raises KubectlError with the end of what it printed."""
        return kubectl.execute(self.name, self.container, self.rooted(command), stdin=stdin, seconds=seconds)

    def rooted(self, command: Sequence[str]) -> list[str]:
        """The command, in the jail, with the environment that root has there and not the container's."""
        jail = ["chroot", self.jail] if self.jail else []
        return [*jail, "env", "-i", "HOME=/root", f"PATH={ROOT_PATH}", *command]

    def target(self, roles: Sequence[str], namespace: str) -> Mapping[str, object]:
        """Its row of the output `targets`."""
        return {
            "method": "kubectl",
            "roles": list(roles),
            "pod": self.name,
            "container": self.container,
            "namespace": namespace,
            "jail": self.jail,
        }


LOGIN = Pod(name=LOGIN_POD, container="sshd")
"""Where accounts are created and Slurm's commands run: it has them, and the jail."""


def pod_of(name: str, roles: Sequence[str]) -> Pod:
    """The pod of a machine of the roster."""
    if "controller" in roles:
        return Pod(name=name, container="slurmctld", jail="")
    return Pod(name=name, container="sshd" if "login" in roles else "slurmd")
