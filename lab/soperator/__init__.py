"""The stand-in for Soperator, the scheduler, the kubelets and Nebius's Kubernetes in a rehearsal."""

from lab.soperator.kube import Kube, KubeError
from lab.soperator.nodes import Cloud, NodeGroup
from lab.soperator.operator import CONTROLLERS, Operator
from lab.soperator.spec import Behaviour, Machines, NoMachines

__all__ = [
    "CONTROLLERS", "Behaviour", "Cloud", "Kube", "KubeError", "Machines", "NoMachines", "NodeGroup", "Operator",
]  # fmt: skip
