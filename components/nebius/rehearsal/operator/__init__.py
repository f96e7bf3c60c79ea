"""The stand-in for Soperator, the scheduler, the kubelets and Nebius's Kubernetes in a rehearsal."""

from components.nebius.rehearsal.operator.behaviour import Behaviour
from components.nebius.rehearsal.operator.cloud import Cloud, NodeGroup
from components.nebius.rehearsal.operator.kube import Kube, KubeError
from components.nebius.rehearsal.operator.machines import Machines, NoMachines
from components.nebius.rehearsal.operator.operator import CONTROLLERS, Operator

__all__ = [
    "CONTROLLERS", "Behaviour", "Cloud", "Kube", "KubeError", "Machines", "NoMachines", "NodeGroup", "Operator",
]  # fmt: skip
