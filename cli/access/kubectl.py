"""The driver for targets that are containers of pods: `kubectl exec` as root, and in the jail where the pod has one.

Soperator's containers, by their pods (internal/consts/container.go, 4.1.7): `sshd` of login-N,
`slurmctld` of controller-0, `slurmd` of workers. Login and worker pods have the jail, the file system that users see as
`/`, at /mnt/jail (internal/consts/volume.go), with Slurm's commands, MUNGE's socket and /dev mounted inside by
images/common/scripts/complement_jail.sh. Jobs and SSH sessions run in it, so users' commands do too. In the controller
pod it holds none of these mounts: commands run in the container, which has Slurm's.
"""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager

from cli.access.kube_api import KubeApi, Kubernetes
from cli.access.login_service import over_ssh
from cli.access.shell_line import shell_line
from cli.access.ssh import UNREACHED
from cli.cluster.target import Target
from cluster.platforms.nebius.kubectl import reason
from cluster.platforms.nebius.names import ROOT_PATH

_START_SECONDS = 10
"""More than other drivers need: kubectl asks the API server for its kinds, and runs the credential command."""
_FAILED = 1
"""Exit code of kubectl itself; a command's own 1 is followed by a line that says so."""
_TERM = re.compile(r"[A-Za-z0-9._+-]+")


class Kubectl:
    """Runs commands in containers, as root, over the kubectl on PATH."""

    needs_admin_key = False
    own = re.compile(
        r"command terminated|[Ee]rror: |Error from server|Unable to connect|The connection to|[EWI][0-9]{4} "
    )
    last = re.compile(r"command terminated with exit code (?P<code>[0-9]+)\n?\Z")

    @contextmanager
    def connected(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> Generator["_Session"]:
        """What gives the argv for these targets, while the kubeconfig is there. Each command connects by itself, so
        `seconds` are its caller's to keep. Raises CliError: there is no kubectl here, or an output is not complete."""
        del admin_key, seconds
        with ExitStack() as stack:
            yield _Session(stack, targets)

    @staticmethod
    def extra_seconds(target: Target) -> float:
        """How much longer a target may take to reach than one that answers here."""
        del target
        return _START_SECONDS

    @staticmethod
    def explain(target: Target, stderr: str) -> str:
        """Why a target was not reached, from what kubectl printed."""
        return reason(stderr, Kubernetes.of(target.row.get("kubernetes")).command)

    @classmethod
    def outcome(cls, code: int, stderr: str) -> tuple[int, str]:
        """The command's own exit code and standard error; UNREACHED where kubectl failed itself."""
        ended = cls.last.search(stderr)
        if ended and int(ended["code"]) == code:
            return code, stderr[: ended.start()]
        return (UNREACHED if code == _FAILED else code), stderr

    @staticmethod
    def over_ssh(target: Target, seconds: float) -> Target:
        """A login target as SSH reaches it from here, asked of the cluster now. Raises CliError: it has no address."""
        return over_ssh(target, seconds)


class _Session:
    """kubectl, for the clusters of some targets."""

    def __init__(self, stack: ExitStack, targets: Sequence[Target]) -> None:
        self._apis: dict[Kubernetes, KubeApi] = {}
        for target in targets:
            kubernetes = Kubernetes.of(target.row.get("kubernetes"))
            if kubernetes not in self._apis:
                self._apis[kubernetes] = KubeApi(stack, kubernetes)

    def __call__(self, target: Target, user: str, command: Sequence[str], *, terminal: bool = False) -> list[str]:
        """The program and arguments that run a command as a user on a target."""
        row = target.row
        api = self._apis[Kubernetes.of(row.get("kubernetes"))]
        return api.argv(
            "exec", str(row["pod"]), "--namespace", str(row.get("namespace") or api.kubernetes.namespace),
            "--container", str(row["container"]), "--stdin", *(["--tty"] if terminal else []),
            "--", *entered(str(row.get("jail") or ""), shell_line(user, command, terminal=terminal), terminal=terminal),
        )  # fmt: skip


def entered(jail: str, line: str, *, terminal: bool) -> list[str]:
    """The words that run root's line in a container as sshd would: in the jail, at home, with root's environment."""
    term = os.environ.get("TERM", "")
    variables = ["HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", f"PATH={ROOT_PATH}"]
    if terminal and _TERM.fullmatch(term):
        variables.append(f"TERM={term}")
    chroot = ["chroot", jail] if jail.strip("/") else []
    return [*chroot, "env", "-i", *variables, "/bin/bash", "-c", f"cd 2>/dev/null; {line or 'exec /bin/bash -l'}"]
