"""The driver for targets that are containers of pods: `kubectl exec` as root, and in the jail where the pod has one.

Soperator's containers, by their pods (internal/consts/container.go, 4.1.7): `sshd` of login-N,
`slurmctld` of controller-0, `slurmd` of workers. Login and worker pods have the jail, the file system that users see as
`/`, at /mnt/jail (internal/consts/volume.go), with Slurm's commands, MUNGE's socket and /dev mounted inside by
images/common/scripts/complement_jail.sh. Jobs and SSH sessions run in it, so users' commands do too. In the controller
pod it holds none of these mounts: commands run in the container, which has Slurm's.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cli.access.ssh import READY, hold_open, shell_line
from cli.access.target import UNREACHED, Driver, Target
from cli.errors import CliError
from cli.interrupts import exit_on_termination
from cluster.platforms.nebius.kubectl import (
    HOST_KEY,
    INSTALL_KUBECTL,
    LOGIN_NODES,
    kubeconfig,
    login_address,
    reason,
    selector,
    why_no_login_address,
)
from cluster.platforms.nebius.names import MONITORING_NAMESPACE, ROOT_PATH, VMSINGLE, login_service
from cluster.platforms.observer import KubectlResult
from scripts.hostfiles import PrivateFolder, write_atomically

_FAILED = 1
"""Exit code of kubectl itself for every failure (DefaultErrorExitCode of k8s.io/kubectl). After a command's own exit
code 1 kubectl prints a line that names it."""
_START_SECONDS = 30
"""Longer than other drivers need: kubectl asks the API server for its kinds, and runs the credential command."""
_ENDED = re.compile(r"command terminated with exit code (?P<code>[0-9]+)\n?\Z")
_PROXY = (
    '"$@" >&2 </dev/null & until [ -S "$0" ]; do kill -0 $! || exit 1; sleep 0.05; done; '
    f"echo {READY}; cat >/dev/null; kill $!"
)
"""Runs kubectl until its input ends."""
_TERM = re.compile(r"[A-Za-z0-9._+-]+")


@dataclass(frozen=True, kw_only=True)
class KubernetesOutput:
    """The output `kubernetes` of a stack: the API server's address, and the command that prints a credential for it."""

    server: str
    certificate_authority: str
    """PEM text."""
    command: tuple[str, ...]
    """Prints an ExecCredential. If it is empty, this program does."""
    context: str
    namespace: str
    """The cluster's own."""

    @classmethod
    def of(cls, output: object) -> "KubernetesOutput":
        """Read the output. Raises CliError: it is not complete."""
        row = output if isinstance(output, Mapping) else {}
        texts = {key: row.get(key) for key in ("server", "certificate_authority", "context", "namespace")}
        command = row.get("command")
        missing = [key for key, value in texts.items() if not isinstance(value, str) or not value]
        if not isinstance(command, Sequence) or isinstance(command, str):
            missing.append("command")
        if missing:
            raise CliError(
                f"the stack's output `kubernetes` has no {', '.join(missing)}, so its pods can't be reached. If the "
                "last `up` did not end well, repeat it."
            )
        return cls(command=tuple(map(str, command or ())), **{key: str(value) for key, value in texts.items()})


class KubeApi:
    """Runs kubectl against one cluster. Its files are removed when the caller's ExitStack is closed."""

    def __init__(self, stack: ExitStack, kubernetes: KubernetesOutput, seconds: float = 60) -> None:
        """Write the kubeconfig. `seconds` is the time limit of each request. Raises CliError: there is no kubectl."""
        program = shutil.which("kubectl")
        if not program:
            raise CliError(
                f"there is no kubectl on PATH, which reaches the pods of a cluster. Install it ({INSTALL_KUBECTL})."
            )
        folder = PrivateFolder("hpc-kube")
        stack.callback(folder.remove)
        file = folder.path / "config"
        write_atomically(file, kubeconfig(**asdict(kubernetes)), mode=0o600)
        self.kubernetes, self._seconds = kubernetes, seconds
        # kubectl's usual cache may have entries of another cluster at this address, such as an earlier rehearsal's.
        self._start = [program, "--kubeconfig", str(file), "--cache-dir", f"{folder.path}/cache"]

    def argv(self, *words: str) -> list[str]:
        return [*self._start, *words]

    def ask(self, *words: str, stdin: str = "", seconds: float | None = None) -> KubectlResult:
        """Run kubectl with these arguments and return its result, after so many seconds at most."""
        seconds = seconds or self._seconds
        try:
            done = subprocess.run(
                self.argv(*words),
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            why = f"no answer within {seconds:.0f} s from {self.kubernetes.server}"
            return KubectlResult(code=_FAILED, out="", err=why, why=why)
        why = self.why(done.stderr) if done.returncode else ""
        return KubectlResult(code=done.returncode, out=done.stdout, err=done.stderr, why=why)

    def why(self, stderr: str) -> str:
        """Return why kubectl failed, on one line, from what it printed."""
        return reason(stderr, self.kubernetes.command)


class KubectlDriver(Driver):
    """Runs commands in containers, as root, over the kubectl on PATH."""

    own_line = re.compile(
        r"command terminated|[Ee]rror: |Error from server|Unable to connect|The connection to|[EWI][0-9]{4} "
    )
    last_line = _ENDED

    @contextmanager
    def connect(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> Generator["_Session"]:
        """Open a session, in which each command connects by itself: `seconds` is not used. Raises CliError: there is no
        kubectl here, or an output is not complete."""
        del admin_key, seconds
        with ExitStack() as stack:
            yield _Session(stack, targets)

    @contextmanager
    def prometheus(self, target: Target, admin_key: str, port: int) -> Generator[tuple[Path, str]]:
        """Reach VictoriaMetrics' Service through the API server and `kubectl proxy`, without a port on this machine."""
        del admin_key, port
        root = f"api/v1/namespaces/{MONITORING_NAMESPACE}/services/{VMSINGLE}/proxy"
        with ExitStack() as stack:
            api = KubeApi(stack, KubernetesOutput.of(target.row.get("kubernetes")))
            folder = PrivateFolder("hpc-proxy")
            stack.callback(folder.remove)
            path = f"{folder.path}/socket"
            options = (
                f"--unix-socket={path}",
                f"--accept-paths=^/{root}/",
                "--reject-methods=^(POST|PUT|PATCH|DELETE)$",
            )
            proxy = ["/bin/sh", "-c", _PROXY, path, *api.argv("proxy", *options)]
            error = stack.enter_context(hold_open(proxy, _START_SECONDS))
            if error is not None:
                raise CliError(f"{VMSINGLE} does not answer: {api.why(error) or 'kubectl proxy did not start'}")
            yield Path(path), f"{root}/"

    @staticmethod
    def extra_seconds(target: Target) -> float:
        del target
        return _START_SECONDS

    @staticmethod
    def explain(target: Target, stderr: str) -> str:
        return reason(stderr, KubernetesOutput.of(target.row.get("kubernetes")).command)

    @classmethod
    def outcome(cls, code: int, stderr: str) -> tuple[int, str]:
        ended = _ENDED.search(stderr)
        if ended and int(ended["code"]) == code:
            return code, stderr[: ended.start()]
        return (UNREACHED if code == _FAILED else code), stderr

    @staticmethod
    def ssh_target(target: Target, seconds: float) -> Target:
        """Return a login target for SSH, with the present address of its Service and the host key of its pod.

        Raises CliError: the cluster does not answer, or the Service has no address; the message has its last events.
        """
        kubernetes = KubernetesOutput.of(target.row.get("kubernetes"))
        namespace = str(target.row.get("namespace") or kubernetes.namespace)
        name, in_namespace = login_service(namespace), ("--namespace", namespace)
        with exit_on_termination(), ExitStack() as stack:
            api = KubeApi(stack, kubernetes)
            result = api.ask("get", "service", name, *in_namespace, "--output=json", seconds=seconds)
            if result.code:
                raise CliError(f"service {name}: {result.why}")
            service = json.loads(result.out)
            balanced = service["spec"].get("type") == "LoadBalancer"
            nodes = [] if balanced else api.ask("get", "nodes", *LOGIN_NODES, seconds=seconds).items
            address = login_address(service, nodes)
            if address is None:
                about = selector("Service", name)
                events = api.ask("get", "events", *in_namespace, about, "--output=json", seconds=seconds)
                why = why_no_login_address(service, events.items)
                raise CliError(f"{why} Without it: ./hpc ssh STACK {target.name} goes in by kubectl exec.")
            pod = [str(target.row["pod"]), *in_namespace, "--container", str(target.row["container"])]
            key = api.ask("exec", *pod, "--", "/bin/sh", "-c", HOST_KEY, seconds=seconds)
            if key.code or not key.out.strip():
                raise CliError(f"{target.name}: its host key can't be read: {key.why or 'there is none'}")
        host, port = address
        return replace(target, method="ssh", address=host, port=port, host_key=" ".join(key.out.split()[:2]), jump=None)


class _Session:
    """Returns the commands that run kubectl against the clusters of some targets."""

    def __init__(self, stack: ExitStack, targets: Sequence[Target]) -> None:
        self._apis: dict[KubernetesOutput, KubeApi] = {}
        for target in targets:
            kubernetes = KubernetesOutput.of(target.row.get("kubernetes"))
            if kubernetes not in self._apis:
                self._apis[kubernetes] = KubeApi(stack, kubernetes)

    def __call__(self, target: Target, user: str, command: Sequence[str], *, terminal: bool = False) -> list[str]:
        """Return the program and arguments that run a command as a user on a target."""
        row = target.row
        api = self._apis[KubernetesOutput.of(row.get("kubernetes"))]
        namespace = str(row.get("namespace") or api.kubernetes.namespace)
        pod = [str(row["pod"]), "--namespace", namespace, "--container", str(row["container"])]
        line = shell_line(user, command, terminal=terminal)
        in_container = jail_command(str(row.get("jail") or ""), line, terminal=terminal)
        return api.argv("exec", *pod, "--stdin", *(["--tty"] if terminal else []), "--", *in_container)


def jail_command(jail: str, line: str, *, terminal: bool) -> list[str]:
    """Return the command that runs root's line in a container as sshd would: in the jail, at home, with root's
    environment."""
    term = os.environ.get("TERM", "")
    variables = ["HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", f"PATH={ROOT_PATH}"]
    if terminal and _TERM.fullmatch(term):
        variables.append(f"TERM={term}")
    chroot = ["chroot", jail] if jail.strip("/") else []
    return [*chroot, "env", "-i", *variables, "/bin/bash", "-c", f"cd 2>/dev/null; {line or 'exec /bin/bash -l'}"]
