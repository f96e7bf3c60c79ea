"""kubectl for one cluster, with a kubeconfig that no other process can read; and programs in pods."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.platforms.nebius.kubectl import INSTALL_KUBECTL, NO_KIND, describe_events, kubeconfig, selector
from cluster.platforms.nebius.names import JAIL_PATH, LOGIN_POD, ROOT_PATH

REQUEST_SECONDS = 30
"""Seconds for one request to the API server."""
_TAIL = 12
"""Lines of kubectl's output in an error."""
_EVENTS = 5
"""Number of an object's events that an error shows."""


class KubectlError(RuntimeError):
    """kubectl failed; the text is its own, with the command."""

    @property
    def not_found(self) -> bool:
        """True if there is no such object, or no such kind of object."""
        return any(text in str(self) for text in ("(NotFound)", NO_KIND, "not found"))


class Kubectl:
    """kubectl of one cluster, as the output `kubernetes` describes it. A context manager."""

    def __init__(self, access: Mapping[str, Any]) -> None:
        self.namespace = str(access["namespace"])
        text = kubeconfig(
            access["server"],
            access["certificate_authority"],
            list(access["command"]),
            access["context"],
            self.namespace,
        )
        # In memory if the system supports it, so that a killed process leaves no file.
        self._memory = os.memfd_create("kubeconfig") if hasattr(os, "memfd_create") else None
        self._file = None if self._memory is not None else tempfile.NamedTemporaryFile("w", prefix="kubeconfig-")  # noqa: SIM115
        if self._memory is not None:
            os.write(self._memory, text.encode())
        elif self._file is not None:
            self._file.write(text)
            self._file.flush()

    def __enter__(self) -> "Kubectl":  # noqa: PYI034 - typing has no Self before 3.11
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        elif self._memory is not None:
            os.close(self._memory)

    def run(
        self, *arguments: str, stdin: str | None = None, seconds: float = REQUEST_SECONDS, all_output: bool = False
    ) -> str:
        """Run kubectl and return its standard output. Raises KubectlError with the end of its output."""
        path = f"/dev/fd/{self._memory}" if self._file is None else self._file.name
        command = ["kubectl", f"--kubeconfig={path}", *arguments]
        shown = " ".join(["kubectl", *arguments[:6]])
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                pass_fds=() if self._memory is None else (self._memory,),
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

    def json(self, *arguments: str, seconds: float = REQUEST_SECONDS) -> Any:  # noqa: ANN401 - any JSON value
        """Return the output of `kubectl ... --output=json`."""
        return json.loads(
            self.run(*arguments, "--output=json", f"--request-timeout={seconds:.0f}s", seconds=seconds + 5)
        )

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of a kind; none if the API server has no such kind."""
        try:
            return self.json("get", kind, *arguments)["items"]
        except KubectlError as error:
            if error.not_found:
                return []
            raise

    def object(self, kind: str, name: str, *arguments: str) -> dict[str, Any] | None:
        """Return an object; None if there is none of that name."""
        output = ("--ignore-not-found", "--output=json", f"--request-timeout={REQUEST_SECONDS}s")
        text = self.run("get", kind, name, *arguments, *output, seconds=REQUEST_SECONDS + 5)
        return json.loads(text) if text.strip() else None

    def execute(
        self, pod: str, container: str, command: Sequence[str], *, stdin: str | None = None, seconds: float = 60
    ) -> str:
        """Run a command in a container of a pod in the cluster's namespace, and return its output."""
        interactive = ["--stdin"] if stdin is not None else []
        where = [f"--namespace={self.namespace}", pod, f"--container={container}", "--"]
        return self.run("exec", *interactive, *where, *command, stdin=stdin, seconds=seconds, all_output=True)

    def events(self, kind: str, name: str, *arguments: str) -> list[str]:
        """Return reason and message of the last events of an object, oldest first."""
        try:
            return describe_events(self.items("events", selector(kind, name), *arguments), _EVENTS)
        except KubectlError:
            return []


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod in which this program runs commands."""

    name: str
    container: str
    jail: str = JAIL_PATH
    """Folder that is the root of the commands; empty for the container's own."""

    def run(self, kubectl: Kubectl, *command: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Run a command and return its output. Raises KubectlError with the end of its output."""
        return kubectl.execute(self.name, self.container, self.rooted(command), stdin=stdin, seconds=seconds)

    def rooted(self, command: Sequence[str]) -> list[str]:
        """Return the words that run a command in the jail, with root's environment in place of the container's."""
        jail = ["chroot", self.jail] if self.jail else []
        return [*jail, "env", "-i", "HOME=/root", f"PATH={ROOT_PATH}", *command]

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


LOGIN = Pod(name=LOGIN_POD, container="sshd")
"""The container in which accounts are created and Slurm's commands run: it has the jail and Slurm's programs."""


def pod_of(name: str, roles: Sequence[str]) -> Pod:
    """Return the pod of a machine of the roster."""
    if "controller" in roles:
        return Pod(name=name, container="slurmctld", jail="")
    return Pod(name=name, container="sshd" if "login" in roles else "slurmd")
