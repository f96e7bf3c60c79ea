"""What Kubernetes and the system keep of a node of Nebius, and what is left for a Slurm node's pod.

Source: nebius-solutions-library, soperator/modules/available_resources/reserve.tf (node) and
soperator/modules/slurm/locals.tf (slurmd, munge). Amounts are in milli-CPUs and MiB, so that they stay whole numbers.
"""

from dataclasses import dataclass

GIB = 1024
"""MiB."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of a container, as Kubernetes has them."""

    cpu: int
    """Milli-CPUs."""
    memory: int
    """MiB."""
    disk: int = 0
    """MiB of ephemeral storage."""

    @property
    def quantities(self) -> dict[str, str]:
        """As the charts' values write them: cpu in m, whole GiB in Gi."""
        sizes = {"memory": self.memory, "ephemeralStorage": self.disk}
        return {
            "cpu": f"{self.cpu}m",
            **{key: f"{size // GIB}Gi" if size % GIB == 0 else f"{size}Mi" for key, size in sizes.items() if size},
        }


MUNGE = Resources(cpu=100, memory=512, disk=5 * GIB)
"""The munge container beside slurmd and slurmctld."""
DAEMON_SETS_CPU = 1000
"""Milli-CPUs of a worker node for pods that every node has: Soperator's rebooter asks for 500, the DCGM exporter for
50, Cilium, the CSI driver and others of Kubernetes for what is left. Without them one of these stays Pending. Jobs have
all CPUs: Slurm's number of them is the machine's."""
DAEMON_CPU = 50
"""Milli-CPUs of OpenKruise's daemon on each node."""
DAEMON_MEMORY = 131
"""MiB of it: 128 MB rounded up."""


def allocatable(vcpus: int, memory_gib: int, disk_gib: int = 0) -> Resources:
    """What pods of a node can have: all but 1 vCPU, 95 % of the memory less 2 GiB, 85 % of the boot disk less 48 GiB;
    memory and disk in whole GiB."""
    return Resources(
        cpu=max(0, vcpus - 1) * 1000,
        memory=max(0, (memory_gib * 95 - 200) // 100) * GIB,
        disk=max(0, (disk_gib * 85 - 4800) // 100) * GIB,
    )


def slurmd(node: Resources) -> Resources:
    """What slurmd's container has of a node, in whole GiB: the node's jobs run in it, so its memory is RealMemory."""
    cpu = (node.cpu - DAEMON_SETS_CPU - MUNGE.cpu) // 1000 * 1000 - DAEMON_CPU
    memory = (node.memory - MUNGE.memory) // GIB * GIB - DAEMON_MEMORY
    return Resources(
        cpu=max(0, cpu), memory=max(0, memory) // GIB * GIB, disk=max(0, node.disk - (MUNGE.disk if node.disk else 0))
    )
