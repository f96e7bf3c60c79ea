"""Running kubectl and helm on the cluster of a provider resource."""

import hashlib
import itertools
import os
import shutil
import threading
from pathlib import Path

from engine.errors import EngineError
from engine.private import PrivateFolder
from engine.project import KubernetesTools
from engine.providers import process
from engine.providers.base import Context
from engine.values import Props, contains_unknown

_FOREIGN = ("KUBECONFIG", "HELM_KUBE", "HELM_NAMESPACE", "HELM_DRIVER")
"""Beginnings of variables that would choose another cluster or place than the provider resource does."""
_GRACE_SECONDS = 10.0
"""For kubectl and helm to end by themselves at the limit of a resource, with a message of their own."""
_SHOWN = 8
"""Lines of an error that are shown."""


class Cluster:
    """kubectl and helm, with a kubeconfig file for each provider resource in a private folder, which also has what they
    cache of the cluster's API."""

    def __init__(self, root: Path, tools: KubernetesTools) -> None:
        """Relative paths of charts are relative to `root`."""
        self._root, self._tools = root, tools
        self._folder: PrivateFolder | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Remove the private folder."""
        with self._lock:
            if self._folder:
                self._folder.remove()
                self._folder = None

    def kubectl(self, ctx: Context, *arguments: str, stdin: str = "", waits: bool = False) -> process.Outcome:
        """Run kubectl to its end; `waits` says that it may be stopped at Ctrl-C."""
        return self._run(
            ctx, [str(self._tools.kubectl), *self._flags(ctx, "--context"), *arguments], stdin, waits=waits
        )

    def helm(self, ctx: Context, *arguments: str, stdin: str = "") -> process.Outcome:
        """Run helm to its end. It is stopped at Ctrl-C, and then marks its release as failed."""
        return self._run(
            ctx, [str(self._tools.helm), *arguments, *self._flags(ctx, "--kube-context")], stdin, waits=True
        )

    def file(self, text: str) -> Path:
        """A private file with this text, for what no program reads from its standard input; until `close`."""
        with self._lock:
            path = self._private() / hashlib.sha256(text.encode()).hexdigest()[:16]
            if not path.exists():
                new = path.with_suffix(".new")
                new.touch(0o600)
                new.write_text(text, encoding="utf-8")
                new.rename(path)
            return path

    def _private(self) -> Path:
        self._folder = self._folder or PrivateFolder("hpc-kubernetes")
        return self._folder.path

    def _flags(self, ctx: Context, context_flag: str) -> list[str]:
        settings = ctx.settings()
        given = settings.get("kubeconfig")
        if not given or contains_unknown(given):
            raise EngineError(
                "its provider has no kubeconfig, and the embedded engine uses no cluster of the environment: give one "
                "to pulumi_kubernetes.Provider"
            )
        text = _text(given)
        context = settings.get("context")
        return [f"--kubeconfig={self.file(text)}", *([f"{context_flag}={context}"] if context else [])]

    def _run(self, ctx: Context, argv: list[str], stdin: str, *, waits: bool) -> process.Outcome:
        env = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        # Both keep the API's description, which changes with every CustomResourceDefinition.
        with self._lock:
            env["KUBECACHEDIR"] = str(self._private() / "cache")
        # Otherwise kubectl and helm go on after a kill of this process, and nobody has seen what they did.
        setpriv = shutil.which("setpriv")
        bound = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        return process.run(
            [*bound, *argv], stdin=stdin, env=env, cwd=self._root,
            timeout=ctx.timeout + _GRACE_SECONDS if ctx.timeout else None,
            stopped=ctx.stopped if waits else None,
        )  # fmt: skip


def failure(outcome: process.Outcome, ctx: Context) -> str:
    """Why kubectl or helm failed: the last lines of its own error, without its warnings and its general advice."""
    lines = [line.strip() for line in outcome.stderr.strip().splitlines() if line.strip()]
    shown = [
        line for line in lines if not line.startswith(("W0", "W1", "I0", "I1", "E0", "E1", "Warning:", "WARNING:"))
    ]
    shown = list(itertools.takewhile(lambda line: not line.startswith("Please review the fields above"), shown))
    text = "\n".join((shown or lines)[-_SHOWN:]) or f"exit status {outcome.status}, without a message"
    return f"stopped by Ctrl-C: {text}" if ctx.stopped() else text.removeprefix("error: ").removeprefix("Error: ")


def namespace(settings: Props) -> str:
    """The provider's namespace for what names none."""
    return str(settings.get("namespace") or "")


def _text(kubeconfig: str) -> str:
    """The kubeconfig's text; as pulumi-kubernetes, a provider may also be given the path of a file."""
    if "\n" in kubeconfig or kubeconfig.lstrip().startswith("{"):
        return kubeconfig
    try:
        return Path(kubeconfig).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise EngineError(f"kubeconfig {kubeconfig}: {error.strerror}") from None
