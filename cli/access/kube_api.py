"""The program kubectl, for one cluster: its kubeconfig is in a private folder while it is used."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import CliError
from cluster.platforms.nebius.kubectl import INSTALL_KUBECTL, kubeconfig, reason
from engine.private import PrivateFolder

_FAILED = 1
"""Exit code of kubectl itself, whatever failed (DefaultErrorExitCode of k8s.io/kubectl)."""


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """The output `kubernetes` of a stack: where the API server is, and what gives a credential for it."""

    server: str
    certificate_authority: str
    """PEM text."""
    command: tuple[str, ...]
    """Prints an ExecCredential; empty where this program does."""
    context: str
    namespace: str
    """The cluster's own."""

    @classmethod
    def of(cls, given: object) -> "Kubernetes":
        """Read the output. Raises CliError: it is not complete."""
        row = given if isinstance(given, Mapping) else {}
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

    @property
    def file(self) -> str:
        """The text of its kubeconfig."""
        return kubeconfig(self.server, self.certificate_authority, self.command, self.context, self.namespace)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What kubectl printed."""

    code: int
    out: str
    err: str
    why: str = ""
    """Why it failed, on one line; empty if it did not."""

    @property
    def items(self) -> list[dict[str, Any]]:
        """The objects in JSON; none if it failed. Of one that was asked for by its name kubectl prints no list, of none
        nothing."""
        if self.code or not self.out.strip():
            return []
        found = json.loads(self.out)
        return list(found.get("items") or ()) if found.get("kind", "List").endswith("List") else [found]


class KubeApi:
    """Runs kubectl against one cluster, until the stack of its caller is closed."""

    def __init__(self, stack: ExitStack, kubernetes: Kubernetes, seconds: float = 20) -> None:
        """Write the kubeconfig; each question is given `seconds`. Raises CliError: there is no kubectl here."""
        program = shutil.which("kubectl")
        if not program:
            raise CliError(
                f"there is no kubectl on PATH, which reaches the pods of a cluster. Install it ({INSTALL_KUBECTL})."
            )
        folder = PrivateFolder("hpc-kube")
        stack.callback(folder.remove)
        file = Path(folder.path) / "config"
        file.touch(mode=0o600)
        file.write_text(kubernetes.file, encoding="utf-8")
        self.kubernetes, self._seconds = kubernetes, seconds
        # What kubectl knows of other clusters at this address, such as an earlier rehearsal's, is left out.
        self._start = [program, "--kubeconfig", str(file), "--cache-dir", f"{folder.path}/cache"]

    def argv(self, *words: str) -> list[str]:
        """The program and its arguments."""
        return [*self._start, *words]

    def ask(self, *words: str, stdin: str = "", seconds: float | None = None) -> Answer:
        """Run it, for so long at most."""
        seconds = seconds or self._seconds
        try:
            done = subprocess.run(
                self.argv(*words), input=stdin, capture_output=True, text=True, errors="replace", timeout=seconds,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            why = f"no answer within {seconds:.0f} s from {self.kubernetes.server}"
            return Answer(code=_FAILED, out="", err=why, why=why)
        why = self.why(done.stderr) if done.returncode else ""
        return Answer(code=done.returncode, out=done.stdout, err=done.stderr, why=why)

    def why(self, stderr: str) -> str:
        """Why kubectl failed, on one line, from what it printed."""
        return reason(stderr, self.kubernetes.command)
