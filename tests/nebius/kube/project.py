"""A project whose program makes objects and releases on the test's API server, run by the embedded engine."""

import json
import os
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import KubernetesTools, Workspace, events
from engine.state import crypter
from lab.kubernetes import binaries
from lab.kubernetes.apiserver import Access, ApiServer
from tests import programs
from tests.nebius.forks import FORKS
from tests.waiting import lives, wait_for


@dataclass(frozen=True)
class Kube:
    """The API server, and kubectl on it."""

    paths: binaries.Paths
    server: ApiServer
    access: Access

    def kubectl(self, *arguments, stdin=None, check=True):
        """Standard output of kubectl as the administrator."""
        command = [self.paths.kubectl, f"--kubeconfig={self.access.kubeconfig}", *arguments]
        done = programs.run(command, input=stdin)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *what) -> Any:
        """An object as it is, or None."""
        text = self.kubectl("get", *what, "--output=json", "--ignore-not-found", "--show-managed-fields")
        return json.loads(text) if text else None

    def names(self, kind, namespace):
        """Names of the objects of a kind, without what every namespace has."""
        found = self.kubectl("get", kind, f"--namespace={namespace}", "--output=name", check=False).split()
        return sorted({item.partition("/")[2] for item in found} - {"kube-root-ca.crt", "default"})


ROOT = Path(__file__).parents[3]
CHARTS = Path(__file__).with_name("charts")
_HEAD = """
import os
from pathlib import Path
import pulumi, pulumi_kubernetes as k
kubeconfig = pulumi.Output.secret(Path({kubeconfig!r}).read_text())
cluster = k.Provider("cluster", kubeconfig=kubeconfig, **{settings!r})
options = pulumi.ResourceOptions(provider=cluster)
"""


class Project:
    """One project with one stack."""

    def __init__(self, root, kube, **settings):
        self.root, self.kube, self.events = root, kube, []
        self._kubeconfig, self._settings = str(kube.access.kubeconfig), settings
        self.kubectl, self.helm = str(kube.paths.kubectl), str(kube.paths.helm)
        root.mkdir()
        (root / "Pulumi.yaml").write_text("name: kube\nruntime: python\n")
        shutil.copytree(CHARTS, root / "charts")

    @classmethod
    def at(cls, root, kubectl, helm):
        """The same project, in another process."""
        made = cls.__new__(cls)
        made.root, made.events, made.kubectl, made.helm = root, [], kubectl, helm
        return made

    def program(self, text):
        head = _HEAD.format(kubeconfig=self._kubeconfig, settings=self._settings)
        (self.root / "__main__.py").write_text(head + text)

    def stack(self):
        tools = KubernetesTools(Path(self.kubectl), Path(self.helm))
        return Workspace(
            self.root, backend=f"file://{self.root}/state", passphrase=lambda: "correct horse", kubernetes=tools
        ).stack("dev")

    def run(self, kind, text=None, **options):
        if text is not None:
            self.program(text)
        self.events.clear()
        return getattr(self.stack(), kind)(self.events.append, **options)

    def up(self, text=None, **options):
        return self.run("up", text, **options)

    def ops(self):
        """What the last run planned, of what it changed: name -> operation."""
        kept = [e for e in self.events if isinstance(e, events.Planned) and e.op != "same"]
        return {e.name: e.op for e in kept if not e.type.startswith("pulumi:")}

    def failures(self):
        return [e.message for e in self.events if isinstance(e, events.StepFailed)]

    def state(self):
        """Types and ids of what the state holds, and its pending operations; nothing before a run has written any."""
        if not self.stack().file.exists():
            return {}, []
        row = self.stack().export_state()["deployment"]
        held = {r["urn"].split("::")[-1]: r.get("id") for r in row.get("resources", []) if r["custom"]}
        pending = [(p["type"], p["resource"]["urn"].split("::")[-1]) for p in row.get("pending_operations", [])]
        return held, pending

    # -- killed runs -------------------------------------------------------------------------------------------

    def hold(self, tool, word, *, after):
        """Have a tool stop before or after its next call with this word among its arguments, until `released`."""
        real, flag, script = getattr(self, tool), self.root / "hold", self.root / f"held-{tool}"
        act = f'{real} "$@" > /dev/null; ' if after else ""
        programs.write(
            script,
            f'if [ -e {flag} ] && [[ " $* " == *" {word} "* ]]; then {act}echo $$ > {flag}.pid; '
            f'exec sleep 1200; fi\nexec {real} "$@"',
        )
        flag.touch()
        setattr(self, tool, str(script))
        return lambda: (flag.unlink(), setattr(self, tool, real))

    def spawn(self, kind):
        """A run in a process of its own, to be killed."""
        child = FORKS.Process(target=_run, args=(self.root, self.kubectl, self.helm, kind, dict(os.environ)))
        child.start()
        return child

    def killed(self, kind, tool, word, *, after):
        """Kill -9 a run while its tool is held."""
        released = self.hold(tool, word, after=after)
        pid = self.root / "hold.pid"
        pid.unlink(missing_ok=True)
        process = self.spawn(kind)
        wait_for(lambda: pid.exists() and pid.read_text().strip())
        process.kill()
        process.join()
        wait_for(lambda: not lives(int(pid.read_text())))
        released()


def _run(root, kubectl, helm, kind, environment):
    os.environ.update(environment)
    crypter.ROUNDS = 10  # as in the tests' own process
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
        result = Project.at(root, kubectl, helm).run(kind)
    sys.exit(not result.ok)
