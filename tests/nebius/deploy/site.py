"""Everything that a stack on Nebius meets, on loopback: the API, Kubernetes, Helm, an operator, and Slurm's answers."""

import contextlib
import json
import os
import stat
import sys
import threading
from collections import deque
from pathlib import Path

import yaml

from components.nebius.api import client
from engine import Workspace, events
from engine.project import KubernetesTools
from engine.state import crypter
from lab.nebius_api.__main__ import KubernetesApi
from lab.nebius_api.server import NebiusServer
from lab.nebius_rehearsal import STAND_INS as CHARTS
from lab.soperator import Behaviour, Kube, Operator
from lab.soperator.nodes import Cloud
from tests.nebius.forks import FORKS
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
PROJECT, TENANT = "project-e00test", "tenant-e00test"
KUBECTL = "/usr/bin/kubectl"


class Site:
    """One cloud with one Kubernetes, and one stack on it."""

    def __init__(self, folder: Path, access, programs, *, seconds: float = 0.02) -> None:
        self.folder, self.access, self.programs = folder, access, programs
        self.seen: list[events.Event] = []
        self.said: deque[str] = deque(maxlen=2000)
        self.behaviour = Behaviour()
        authority = folder / "ca.crt"
        authority.write_text(access.certificate_authority)
        self.kube = Kube(access.server, authority, access.token)
        self.api = NebiusServer(seconds=seconds, observer=KubernetesApi(access.server, access.certificate_authority))
        self.slurm = folder / "slurm.json"
        self._program("token", ["#!/bin/sh", f"cat {self._credential()}"])
        stand_in = Path(__file__).with_name("exec_stand_in.py")
        # Python takes as long to start as the rest of a call.
        answers = f'case " $* " in *" exec "*) exec {sys.executable} -I {stand_in} "$@";; esac'
        self._program("kubectl", ["#!/bin/sh", answers, f'exec {KUBECTL} "$@"'])
        self.environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HPC_TEST_KUBECTL": KUBECTL,
            "HPC_TEST_SLURM": str(self.slurm),
            "PULUMI_CONFIG_PASSPHRASE": "correct horse",
        }
        self._ended = threading.Event()
        self._operator = threading.Thread(target=self._operate)
        self._workspace = folder / "project"
        self._workspace.mkdir()
        (self._workspace / "Pulumi.yaml").write_text("name: hpc\nruntime: python\n")
        (self._workspace / "scripts").symlink_to(ROOT / "scripts")  # Helm runs programs of the project's folder
        (self._workspace / "__main__.py").write_text(
            f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + (ROOT / "__main__.py").read_text()
        )
        self.given = {}

    def _credential(self) -> Path:
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
            "status": {"token": self.access.token},
        }  # fmt: skip
        path = self.folder / "credential.json"
        path.write_text(json.dumps(credential))
        return path

    def _program(self, name: str, lines: list[str]) -> None:
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def _operate(self) -> None:
        cloud = Cloud(self.api.endpoint, PROJECT)
        Operator(self.kube, cloud=cloud, behaviour=self.behaviour, report=self.said.append).run(self._ended.is_set)

    def __enter__(self):
        self.api.start()
        self._operator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._operator.join(PATIENCE)
        client.close()
        self.api.stop()

    def write(self, name="soperator", version="4.1.7", **changes) -> None:
        """The stack file from now on."""
        nebius = {
            "tenant": TENANT, "project": PROJECT, "region": "eu-north1", "subnet": "create",
            "endpoint": self.api.endpoint, "token_command": [str(self.folder / "token")],
            "soperator": {"version": version, "charts": str(CHARTS)},
            "timeouts": {"available": 300, "login": 300},
            **changes.pop("nebius", {}),
        }  # fmt: skip
        cluster = {
            "platform": "nebius", "name": name, "nebius": nebius, "deletion_protection": False,
            "nodesets": {"gpu": {"count": 2, "machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb"}},
            "partitions": {"main": {"nodesets": ["gpu"], "default": True}},
            **changes,
        }  # fmt: skip
        self.given = cluster
        (self._workspace / "Pulumi.test.yaml").write_text(yaml.safe_dump({"config": {"hpc:cluster": cluster}}))

    def stack(self):
        return stack_at(self._workspace, self.programs.helm)

    def run(self, kind: str, *, ok: bool = True) -> dict[str, str]:
        """Run; which operation each resource got, without those that stay as they are."""
        self.seen.clear()
        with environment(self.environment):
            result = getattr(self.stack(), kind)(self.seen.append)
        assert result.ok is ok, self.text()
        planned = [event for event in self.seen if isinstance(event, events.Planned)]
        return {e.name: e.op for e in planned if e.op != "same" and not e.type.endswith(":Stack")}

    def text(self) -> str:
        """All that the last run printed."""
        return "\n".join(str(event) for event in self.seen if not isinstance(event, (events.Planned, events.Finished)))

    def logs(self) -> str:
        """Return what the last run logged."""
        return "\n".join(event.message for event in self.seen if isinstance(event, events.Log))

    def failure(self) -> str:
        """Return what the steps that failed printed."""
        return "\n".join(e.message for e in self.seen if isinstance(e, events.StepFailed) and e.op != "skip")

    def outputs(self) -> dict:
        """The stack's outputs."""
        rows = self.stack().export_state()["deployment"].get("resources", [])
        return next((row["outputs"] for row in rows if row["type"] == "pulumi:pulumi:Stack"), {})

    def resources(self) -> list[str]:
        """Names of what the state has."""
        return [
            row["urn"].rpartition("::")[2] for row in self.stack().export_state()["deployment"].get("resources", [])
        ]

    def start(self, kind: str):
        """Run it in a process of its own, which may be killed."""
        child = FORKS.Process(target=_run, args=(str(self._workspace), str(self.programs.helm), kind, self.environment))
        child.start()
        return child

    def owned(self) -> list[str]:
        """Objects of the cloud that are the stack's, volumes' disks included."""
        return sorted(
            f"{row['kind']} {row['metadata'].get('name', '')}".strip()
            for row in self.api.store.objects.values()
            if row["state"] not in ("SCHEDULED_FOR_DELETION", "DELETING")
            and (row["metadata"].get("labels", {}).get("hpc-owner") or row["kind"] == "Disk")
        )

    def in_cluster(self) -> list[str]:
        """Objects of Kubernetes that a stack has made and that outlive nothing."""
        kinds = (
            ("apps/v1", "Deployment"), ("v1", "Pod"), ("v1", "Service"), ("batch/v1", "Job"),
            ("v1", "PersistentVolume"),
            ("slurm.nebius.ai/v1", "SlurmCluster"), ("slurm.nebius.ai/v1alpha1", "NodeSet"),
        )  # fmt: skip
        found = [(kind, item["metadata"]) for api, kind in kinds for item in listed(self.kube, api, kind)]
        return sorted(
            f"{kind} {row.get('namespace', '')}/{row['name']}" for kind, row in found if row["name"] != "kubernetes"
        )


def listed(kube: Kube, api: str, kind: str) -> list[dict]:
    with contextlib.suppress(Exception):
        return kube.list(api, kind)
    return []


def stack_at(folder: Path, helm: Path):
    crypter.ROUNDS = 10
    workspace = Workspace(
        folder, backend=f"file://{folder}/backend", passphrase=lambda: "correct horse",
        kubernetes=KubernetesTools(kubectl=Path(KUBECTL), helm=helm),
    )  # fmt: skip
    return workspace.stack("test")


@contextlib.contextmanager
def environment(values: dict[str, str]):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def _run(folder: str, helm: str, kind: str, values: dict[str, str]) -> None:
    os.environ.update(values)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        result = getattr(stack_at(Path(folder), Path(helm)), kind)(lambda _event: None)
    os._exit(0 if result.ok else 1)
