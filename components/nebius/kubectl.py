"""kubectl for one cluster, with a kubeconfig that no other user can read; and programs in pods."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.platforms.nebius.kubectl import INSTALL_KUBECTL, NO_KIND, describe_events, kubeconfig, selector
from cluster.platforms.nebius.names import JAIL_PATH, LOGIN_POD, ROOT_PATH
from scripts.hostfiles import PrivateFolder, write_atomically

REQUEST_SECONDS = 30
"""Seconds for one request to the API server."""
_TAIL = 12
"""Lines of kubectl's output in an error."""
_EVENTS = 5
"""Number of an object's events that an error shows."""


class KubectlError(RuntimeError):
    """kubectl failed; the text is its own, with the command."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod in which this program runs commands."""

    name: str
    container: str
    jail: str = JAIL_PATH
    """Folder that is the root of the commands; empty for the container's own."""

    def target(self, roles: Sequence[str], namespace: str) -> Mapping[str, object]:
        """Return the row of the output `targets`."""
        return {
            "method": "kubectl",
            "roles": list(roles),
            "pod": self.name,
            "container": self.container,
            "namespace": namespace,
            "jail": self.jail,
        }


class Kubectl:
    """kubectl of one cluster, as the output `kubernetes` describes it. A context manager."""

    def __init__(self, access: Mapping[str, Any]) -> None:
        self.namespace, text = str(access["namespace"]), kubeconfig(**access)
        self._folder = PrivateFolder("hpc-kube")
        self._kubeconfig = self._folder.path / "config"
        try:
            write_atomically(self._kubeconfig, text, mode=0o600)
        except OSError:
            self._folder.remove()
            raise

    def __enter__(self) -> "Kubectl":  # noqa: PYI034 - typing has no Self before 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.remove()

    def run(
        self, *arguments: str, stdin: str | None = None, seconds: float = REQUEST_SECONDS, all_output: bool = False
    ) -> str:
        """Run kubectl and return its standard output. Raises KubectlError with the end of its output."""
        shown = " ".join(["kubectl", *arguments[:6]])
        try:
            done = subprocess.run(
                ["kubectl", f"--kubeconfig={self._kubeconfig}", *arguments],
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise KubectlError(
                f"kubectl is not installed: install it ({INSTALL_KUBECTL}), then run `up` again"
            ) from None
        except subprocess.TimeoutExpired:
            raise KubectlError(f"`{shown}` did not end within {seconds:.0f} s") from None
        if done.returncode:
            lines = (done.stdout + done.stderr if all_output else done.stderr or done.stdout).strip().splitlines()
            raise KubectlError(f"`{shown}` failed: " + "\n".join(lines[-_TAIL:]))
        return done.stdout

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of a kind; none if the API server has no such kind."""
        options = ("--output=json", f"--request-timeout={REQUEST_SECONDS}s")
        try:
            return json.loads(self.run("get", kind, *arguments, *options, seconds=REQUEST_SECONDS + 5))["items"]
        except KubectlError as error:
            if "(NotFound)" not in str(error) and NO_KIND not in str(error):
                raise
            return []

    def object(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object; None if there is none of that name, or no such kind."""
        return next(iter(self.items(kind, f"--field-selector=metadata.name={name}")), None)

    def execute(self, pod: Pod, *command: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Run a command in a container, in its jail if it has one, and return its output. The command has root's
        environment in place of the container's."""
        interactive = ["--stdin"] if stdin is not None else []
        where = [f"--namespace={self.namespace}", pod.name, f"--container={pod.container}", "--"]
        jail = ["chroot", pod.jail] if pod.jail else []
        words = [*jail, "env", "-i", "HOME=/root", f"PATH={ROOT_PATH}", *command]
        return self.run("exec", *interactive, *where, *words, stdin=stdin, seconds=seconds, all_output=True)

    def events(self, kind: str, name: str) -> list[str]:
        """Return reason and message of the last events of an object, oldest first."""
        try:
            return describe_events(self.items("events", selector(kind, name)), _EVENTS)
        except KubectlError:
            return []


LOGIN = Pod(name=LOGIN_POD, container="sshd")
"""The container in which accounts are created and Slurm's commands run: it has the jail and Slurm's programs."""


def pod_of(name: str, roles: Sequence[str]) -> Pod:
    """Return the pod of a machine of the roster."""
    if "controller" in roles:
        return Pod(name=name, container="slurmctld", jail="")
    return Pod(name=name, container="sshd" if "login" in roles else "slurmd")
