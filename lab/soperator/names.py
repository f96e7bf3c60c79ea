"""Names that Soperator, its recipe and Kubernetes give, as their own sources have them: not this program's names.py.

Source, where no other is given: nebius/soperator at 4.1.7.
"""

GROUP = "slurm.nebius.ai"
"""internal/consts/group.go (K8sGroupNameSoperator)."""
AVAILABLE = "Available"
"""api/v1/slurmcluster_types.go (PhaseClusterAvailable)."""
OPERATOR_NAMESPACE = "soperator-system"
"""helm/soperator-fluxcd/values.yaml (soperator.soperatorChecks and nodeConfigurator)."""
NODESET_LABEL, NODESET_NAME_LABEL = "slurm.nebius.ai/nodeset", "slurm.nebius.ai/nodeset-name"
"""soperator/modules/labels/main.tf of nebius-solutions-library."""
CLUSTER_ANNOTATION = "slurm.nebius.ai/parental-cluster-ref"
"""internal/consts/annotation.go (AnnotationParentalClusterRefName)."""
CONTROLLER_POD, LOGIN_POD = "controller-0", "login-0"
"""Pods of StatefulSets that internal/naming/naming.go (BuildStatefulSetName) names by their component alone."""
JAIL_PATH = "/mnt/jail"
"""internal/consts/volume.go (VolumeMountPathJail)."""
LOGIN_NODE_PORT = 30022
"""helm/slurm-cluster/values.yaml (slurmNodes.login.sshdServiceNodePort)."""
GPU = "nvidia.com/gpu"
"""helm/nodesets/values.yaml; the resource is that of NVIDIA's device plugin."""
NODE_GROUP_LABEL = "nebius.com/node-group-id"
"""A label that mk8s gives to nodes. No definition of Nebius that is public has it."""
KUBELET = "v1.35.0"
"""Version of the nodes' kubelet, in the form of v1.NodeSystemInfo."""


def login_service(cluster: str) -> str:
    """Return the Service of the login pods (BuildServiceName: cluster, component, `svc`)."""
    return f"{cluster}-login-svc"


def populate_job(cluster: str) -> str:
    """Return the Job that populates the jail (BuildPopulateJailJobName)."""
    return f"{cluster}-populate-jail"
