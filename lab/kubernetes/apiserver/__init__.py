"""A real Kubernetes API on this machine: etcd, kube-apiserver and kube-controller-manager as processes of this user."""

from lab.kubernetes.apiserver.server import Access, ApiServer

__all__ = ["Access", "ApiServer"]
