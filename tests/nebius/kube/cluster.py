"""A real Kubernetes API for tests, and kubectl on it: one for each pytest process, started in about two seconds."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from lab.kubernetes import binaries
from lab.kubernetes.apiserver import Access, ApiServer


@dataclass(frozen=True)
class Kube:
    """The API server, and kubectl on it."""

    paths: binaries.Paths
    server: ApiServer
    access: Access

    def kubectl(self, *arguments, stdin=None, check=True):
        """Standard output of kubectl as the administrator."""
        command = [self.paths.kubectl, f"--kubeconfig={self.access.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *what) -> Any:
        """An object as it is, or None."""
        text = self.kubectl("get", *what, "--output=json", "--ignore-not-found", "--show-managed-fields")
        return json.loads(text) if text else None

    def names(self, kind, namespace):
        """Names of the objects of a kind, without what every namespace has."""
        found = self.kubectl("get", kind, f"--namespace={namespace}", "--output=name", check=False).split()
        return sorted({one.partition("/")[2] for one in found} - {"kube-root-ca.crt", "default"})
