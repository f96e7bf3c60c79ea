"""Where job scripts and what they need are on a cluster: on the shared file system of every platform."""

FOLDER = "/opt/apps/hpc"
"""Root's own, mode 0755; on Kubernetes in the jail."""
ENV = f"{FOLDER}/env.sh"
"""What jobs source; see cluster/jobs/environment.py."""
