"""Names of a cluster's objects at Nebius, of Soperator's in Kubernetes (kinds, labels, pods, services, paths), and
environment variables.

Source, where no other is given: internal/consts and internal/naming of nebius/soperator, 4.1.7.
"""

# What the SDK reads (nebius 0.6: nebius.sdk.SDK, nebius.aio.token.static.EnvBearer).
TOKEN_VARIABLE = "NEBIUS_IAM_TOKEN"  # noqa: S105 - the name of the variable
"""Holds an IAM token, which expires after hours."""
CREDENTIALS_VARIABLE = "NEBIUS_CREDENTIALS_FILE"
"""Holds the path of a service account's credentials file, which does not expire; this program passes it to the SDK."""

MORE_QUOTA = "ask for more at https://console.nebius.com (Administration, Limits)"
"""The advice where a quota is full."""
OTHER_NAME = (
    "write nebius.prefix, which all names of this stack then begin with (another one if it has one), or delete the one "
    "that exists"
)
"""The advice where an object of another stack has the name."""
OWNER_LABEL = "hpc-owner"
"""Label of an object at Nebius: the id of the state that created it."""
NAME_LIMIT = 63
"""Characters of an object's name at Nebius (nebius/api 5101002, mk8s/v1/cluster_service.proto; other kinds have the
same or more)."""


def shortened(name: str, suffix: str = "") -> str:
    """Return a name of at most 63 characters that ends in `suffix`."""
    end = f"-{suffix}" if suffix else ""
    text = name + end
    return text if len(text) <= NAME_LIMIT else name[: NAME_LIMIT - len(end)].rstrip("-") + end


CIDR = "10.80.0.0/20"
"""The value of `network.cidr`, which has no effect on Nebius: nodes have addresses of their subnet."""

GROUP = "slurm.nebius.ai"
"""API group of Soperator's kinds, and prefix of its labels."""
SLURM_CLUSTERS, NODE_SETS, ACTIVE_CHECKS = f"slurmclusters.{GROUP}", f"nodesets.{GROUP}", f"activechecks.{GROUP}"
"""Kinds as kubectl takes them."""
POWER_STATES = f"nodesetpowerstates.{GROUP}"
"""Kind that has the nodes of an elastic NodeSet that are powered up, by their numbers (`spec.activeNodes`)."""
AVAILABLE = "Available"
"""Phase of a SlurmCluster that works."""
OPERATOR_NAMESPACE = "soperator-system"
"""Namespace of Soperator itself (releases of helm-soperator and helm-soperatorchecks)."""
MONITORING_NAMESPACE = "monitoring-system"
"""Namespace of metrics, logs and dashboards (helm-soperator-fluxcd, observability)."""
VMSINGLE = "vmsingle-victoria-metrics-k8s-stack:8428"
"""Service, with its port, that answers queries as Prometheus does."""
ALERTMANAGER = "vmalertmanager-victoria-metrics-k8s-stack"
"""StatefulSet and Service of Alertmanager."""

NODESET_LABEL = f"{GROUP}/nodeset"
"""Label and taint of a node group's nodes: system, controller, login, accounting or worker."""
NODESET_NAME_LABEL = f"{GROUP}/nodeset-name"
"""Label of a nodeset's Kubernetes nodes: its name."""
JAIL_LABEL = f"{GROUP}/jail"
"""Label of Kubernetes nodes that have the jail."""
CLUSTER_ANNOTATION = f"{GROUP}/parental-cluster-ref"
"""Annotation of a NodeSet: its SlurmCluster."""
NO_BALANCER_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Label of nodes that no load balancer sends connections to (Kubernetes' well-known labels)."""
NODE_GROUP_LABEL = "nebius.com/node-group-id"
"""Label that managed Kubernetes gives to every node: the id of its node group."""
GPU = "nvidia.com/gpu"
"""Resource of Kubernetes nodes with GPUs, and their taint (NVIDIA's device plugin)."""

CONTROLLER_POD, LOGIN_POD = "controller-0", "login-0"
JAIL_PATH = "/mnt/jail"
"""Mount point of the jail in login and worker pods."""
ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of root there, as sshd gives it; the container's environment is not that of a log-in."""
LOGIN_NODE_PORT = 30022
"""Port of the login Service where it is of type NodePort (sshdServiceNodePort of helm-slurm-cluster)."""


def login_service(cluster: str) -> str:
    """Return the name of the Service of the login pods."""
    return f"{cluster}-login-svc"


def populate_job(cluster: str) -> str:
    """Return the name of the Job that populates the jail."""
    return f"{cluster}-populate-jail"
