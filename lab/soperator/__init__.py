"""The stand-in for Soperator, the scheduler, the kubelets and Nebius's Kubernetes in a rehearsal."""

from lab.soperator.behaviour import Behaviour
from lab.soperator.cloud import Cloud, NodeGroup
from lab.soperator.kube import Kube, KubeError
from lab.soperator.machines import Machines, NoMachines
from lab.soperator.operator import CONTROLLERS, Operator

__all__ = [
    "CONTROLLERS", "Behaviour", "Cloud", "Kube", "KubeError", "Machines", "NoMachines", "NodeGroup", "Operator",
]  # fmt: skip
