"""The processes of a rehearsal: Kubernetes' API, the stand-in of Nebius's API, the kubelet and the operator.

They outlive the command that starts them. All their files are in one folder, so a process that ended is started again
with the same data, port and token.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from components.local.host.paths import HostError
from hostfiles import locked, write_atomically
from lab.kubernetes import apiserver, binaries
from lab.kubernetes.apiserver import Access, ApiServer, Daemon
from lab.soperator import CONTROLLERS

ROOT = Path(__file__).parents[1]
KUBELET = ROOT / "lab" / "kubelet"
_ADDRESS = "127.0.0.1"
_SECONDS = 1.0
"""Duration of an operation of the Nebius API's stand-in."""
_RUN_ENDS_SECONDS = 180.0
"""Timeout for the end of the operator's run on the machines, which completes the steps that have begun."""
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of the stack on Nebius."""

    tenant: str
    project: str
    region: str


class Supervisor:
    """The processes of one rehearsal, by its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kubelet = Daemon(folder, "kubelet", f"-pods={self.machines / 'pods.json'}")
        self._nebius = Daemon(folder, "nebius-api", f"--state={folder / 'nebius-state.json'}")
        self._operator = Daemon(folder, "operator", f"--folder={self.machines}")

    @property
    def machines(self) -> Path:
        """The folder of the operator's machines."""
        return self.folder / "machines"

    @property
    def credential(self) -> Path:
        """The file with the ExecCredential of a cluster administrator."""
        return self.folder / "credential.json"

    def endpoint(self) -> str:
        """Return TOKEN@HOST:PORT of the stand-in of Nebius's API; it accepts no other token, as it acts as root."""
        return f"{self._token.read_text()}@{_ADDRESS}:{self._ports()['nebius']}"

    @property
    def _token(self) -> Path:
        """The file with the token of Kubernetes' API and of the Nebius API's stand-in."""
        return self.folder / "token"

    def start(self, place: Place, module: str, report: Report = lambda _text: None, *, machines: bool = True) -> Access:
        """Start the processes that do not run, and return the access to the Kubernetes API. Raises HostError.

        `module` is the module that removes it (see components.rehearsal.Rehearsal).
        """
        paths = binaries.ensure(report)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self.folder / "module", module)
        write_atomically(self.folder / "place.json", json.dumps(asdict(place)))
        tools = {"kubectl": str(paths.kubectl), "helm": str(paths.helm)}
        write_atomically(self.folder / "tools.json", json.dumps(tools))
        kubelet = binaries.build("kubelet", KUBELET, report)
        with locked(self._lock):
            ports, pki = self._ports(), self._pki()
            access = self._server(paths).start()
            write_atomically(self.credential, _exec_credential(access.token), mode=0o600)
            write_atomically(self._token, access.token, mode=0o600)
            self.machines.mkdir(mode=0o700, exist_ok=True)
            # fmt: off
            self._run(self._kubelet, [
                str(kubelet), f"-listen={_ADDRESS}:{ports['kubelet']}", f"-cert={pki / 'kubelet.crt'}",
                f"-key={pki / 'kubelet.key'}", f"-client-ca={pki / 'ca.crt'}",
            ])
            self._run(self._nebius, [
                *_program("nebius_api"), f"--port={ports['nebius']}", f"--seconds={_SECONDS}",
                f"--tenant={place.tenant}", f"--region={place.region}", f"--token-file={self._token}",
                f"--rehearsal={self.folder}", f"--cluster-endpoint={access.server}", f"--cluster-ca={pki / 'ca.crt'}",
            ])
            self._run(self._operator, [
                *_program("soperator"), f"--server={access.server}", f"--authority={pki / 'ca.crt'}",
                f"--token-file={self._token}", f"--nebius={_ADDRESS}:{ports['nebius']}", f"--project={place.project}",
                f"--nebius-state={self.folder / 'nebius-state.json'}",
                f"--kubelet={ports['kubelet']}", *([] if machines else ["--no-machines"]),
            ])
            # fmt: on
        return access

    def resume(self, report: Report = lambda _text: None) -> None:
        """Start the processes that do not run, as at the last start; do nothing if there was none."""
        try:
            place = Place(**json.loads((self.folder / "place.json").read_text()))
            module = (self.folder / "module").read_text()
        except FileNotFoundError:
            return
        self.start(place, module, report)

    def follow(self, *, cluster: bool) -> None:
        """Start the Kubernetes API if there is a cluster, else stop it and delete its objects. Raises HostError."""
        server = self._server(binaries.ensure())
        if cluster:
            server.start()
        else:
            server.forget()

    def remove(self, report: Report = lambda _text: None) -> None:
        """End all processes, destroy the machines, and remove the folder. Raises HostError."""
        if not self.folder.exists():
            return
        with locked(self._lock):
            self._operator.stop()
            self._destroy_machines(report)
            self._kubelet.stop()
            self._nebius.stop()
            self._server(binaries.Paths(*[Path()] * len(binaries.Paths.__dataclass_fields__))).remove()
            shutil.rmtree(self.folder)
            self._lock.unlink(missing_ok=True)

    @property
    def _lock(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.supervisor.lock")

    def _server(self, paths: binaries.Paths) -> ApiServer:
        pki = self.folder / "kubernetes" / "pki"
        flags = [
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'to-kubelet.crt'}",
            f"--kubelet-client-key={pki / 'to-kubelet.key'}",
            "--kubelet-preferred-address-types=InternalIP",
        ]
        return ApiServer(self.folder / "kubernetes", paths, address=_ADDRESS, flags=flags, controllers=CONTROLLERS)

    def _pki(self) -> Path:
        """Create the certificates of the kubelet, and of the API server as its client; return their folder."""
        pki = self.folder / "kubernetes" / "pki"
        pki.parent.mkdir(mode=0o700, exist_ok=True)
        pki.mkdir(exist_ok=True)
        apiserver.authority(pki)
        for name in ("kubelet", "to-kubelet"):
            if not (pki / f"{name}.crt").exists():
                apiserver.issue(pki, name, [_ADDRESS])
        return pki

    def _ports(self) -> dict[str, int]:
        """Return the ports, which are chosen once."""
        file = self.folder / "ports.json"
        if file.exists():
            return json.loads(file.read_text())
        ports: dict[str, int] = {}
        with socket.socket() as first, socket.socket() as second:
            for name, probe in (("kubelet", first), ("nebius", second)):
                probe.bind((_ADDRESS, 0))
                ports[name] = probe.getsockname()[1]
        write_atomically(file, json.dumps(ports))
        return ports

    def _run(self, daemon: Daemon, command: Sequence[str]) -> None:
        if not daemon.alive():
            daemon.start(command, bound=False)

    def _destroy_machines(self, report: Report) -> None:
        file = self.machines / "Pulumi.machines.yaml"
        if not file.exists():
            return
        report("removing the machines")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")}
        end = time.monotonic() + _RUN_ENDS_SECONDS
        while True:
            done = subprocess.run(
                [
                    sys.executable, str(ROOT / "cli"), "destroy", "machines", f"--config-file={file}", "--yes",
                    "--engine=embedded",
                ],
                env={**kept, "HPC_HOME": str(self.machines / "home")}, stdin=subprocess.DEVNULL, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            # The operator's own run was interrupted with it, and has the lock of the stack until it ends.
            if not done.returncode or "stack machines is in use" not in done.stderr or time.monotonic() > end:
                break
            time.sleep(1)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise HostError("the machines can't be removed: " + "\n".join(lines[-5:]))


def _program(name: str) -> list[str]:
    """Return the words that run a stand-in from any folder."""
    return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", f"lab.{name}"]


def _exec_credential(token: str) -> str:
    """Return the output of a credential command for kubectl (client.authentication.k8s.io/v1beta1)."""
    return json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": token}}
    )
