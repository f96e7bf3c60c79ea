"""One API server, by its folder: everything it has is in there, and it listens on one address of this machine."""

import base64
import json
import secrets
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.local.host.locks import locked, write_atomically
from components.local.host.paths import HostError
from lab.kubernetes.apiserver import certificates
from lab.kubernetes.apiserver.daemon import Daemon
from lab.kubernetes.binaries import Paths

CONTROLLERS = (
    "garbage-collector-controller", "namespace-controller", "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)  # fmt: skip
"""What makes objects behave as on any cluster: owned objects are deleted with their owner, the content of a namespace
with it, and a namespace has its default service account. What creates pods is left to the caller."""

_READY_SECONDS = 60.0
_TRIES = 3
"""Starts of a new server: between the choice of a free port and its use another process may take it."""
_SERVICES = "10.96.0.0/24"
"""Service addresses, which nothing here routes; a real cluster's are not routed outside of it either."""
_ETCD = "unix://client:1"
"""A socket in the folder, whose mode keeps other users out: etcd has no password. etcd wants a port in its name."""
_PEER = "unix://peer:1"


@dataclass(frozen=True)
class Access:
    """What a client needs. The token is a cluster administrator's."""

    kubeconfig: Path
    server: str
    certificate_authority: str
    """PEM."""
    token: str


class ApiServer:
    """etcd, kube-apiserver and kube-controller-manager of one folder.

    They listen on `address` only. `flags` are further ones of kube-apiserver, `controllers` those that
    kube-controller-manager runs. Without `bound` they outlive the process that starts them, until `stop`; with it they
    end with the thread that starts them, also when that is killed.
    """

    def __init__(
        self,
        folder: Path,
        paths: Paths,
        *,
        address: str = "127.0.0.1",
        flags: Sequence[str] = (),
        controllers: Sequence[str] = CONTROLLERS,
        bound: bool = False,
    ) -> None:
        self.folder, self._paths, self._address = folder, paths, address
        self._flags, self._controllers, self._bound = flags, controllers, bound
        self._etcd = Daemon(folder, "etcd", f"--data-dir={folder / 'etcd'}")
        self._server = Daemon(folder, "kube-apiserver", f"--cert-dir={folder / 'pki'}")
        self._manager = Daemon(folder, "kube-controller-manager", f"--root-ca-file={folder / 'pki' / 'ca.crt'}")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, there once the server was started."""
        return self.folder / "kubeconfig"

    @property
    def pki(self) -> Path:
        """The folder of its certificate authority, for `certificates.issue`."""
        return self.folder / "pki"

    def start(self) -> Access:
        """Start what does not run, with the data, the port and the token of the last start, and wait until it is ready.

        Raises HostError with the end of the log of what did not start; nothing runs then.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        with locked(self.folder.with_name(f".{self.folder.name}.lock")):
            if self._etcd.alive() and self._server.alive() and self._manager.alive() and self.kubeconfig.exists():
                access = self._access(*self._settings())
                self._wait(access)
                return access
            try:
                return self._start()
            except BaseException:
                self._stop()
                raise

    def stop(self) -> None:
        """End the three processes. The data stay for the next start."""
        with locked(self.folder.with_name(f".{self.folder.name}.lock")):
            self._stop()

    def forget(self) -> None:
        """End the three processes and remove all objects: the next start has the same port, token and certificates."""
        with locked(self.folder.with_name(f".{self.folder.name}.lock")):
            self._stop()
            shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    def remove(self) -> None:
        """End the three processes and remove the folder."""
        lock = self.folder.with_name(f".{self.folder.name}.lock")
        with locked(lock):
            self._stop()
            if self.folder.exists():
                shutil.rmtree(self.folder)
            lock.unlink(missing_ok=True)

    @contextmanager
    def running(self) -> Iterator[Access]:
        """Start it, and remove it at the end."""
        try:
            yield self.start()
        finally:
            self.remove()

    def _stop(self) -> None:
        for daemon in (self._manager, self._server, self._etcd):
            daemon.stop()

    def _start(self) -> Access:
        new = not self._record.exists()
        for left in reversed(range(_TRIES)):
            self._stop()
            port, token = self._settings()
            self._start_server(port, token)
            access = self._access(port, token)
            try:
                self._wait(access)
            except HostError:
                if not (new and left and "address already in use" in self._server.last_lines(20)):
                    raise
                self._record.unlink()
            else:
                self._start_manager()
                return access
        raise AssertionError("the last try raises")

    @property
    def _record(self) -> Path:
        return self.folder / "server.json"

    def _settings(self) -> tuple[int, str]:
        """Port and token: chosen once, then as recorded."""
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            return int(record["port"]), str(record["token"])
        except (FileNotFoundError, ValueError, KeyError):
            port, token = _free_port(self._address), secrets.token_urlsafe(24)
            write_atomically(self._record, json.dumps({"port": port, "token": token}), mode=0o600)
            return port, token

    def _start_server(self, port: int, token: str) -> None:
        pki = self.pki
        pki.mkdir(exist_ok=True)
        authority = certificates.authority(pki)
        hosts = ["127.0.0.1", self._address, "localhost", "kubernetes.default.svc", "kubernetes"]
        certificate, key = certificates.issue(pki, "server", list(dict.fromkeys(hosts)))
        signing = certificates.signing_key(pki / "service-account.key")
        tokens = self.folder / "tokens.csv"
        write_atomically(tokens, f'{token},admin,admin,"system:masters"\n', mode=0o600)
        etcd = [
            str(self._paths.etcd), f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_PEER}", f"--initial-advertise-peer-urls={_PEER}",
            f"--initial-cluster=default={_PEER}", "--log-level=warn",
            # Data survive the end of the process all the same, only not that of the machine.
            "--unsafe-no-fsync",
        ]  # fmt: skip
        server = [
            str(self._paths.kube_apiserver), f"--etcd-servers={_ETCD}", f"--bind-address={self._address}",
            f"--advertise-address={self._address}", f"--secure-port={port}", f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}", f"--client-ca-file={authority}", f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC", "--allow-privileged=true", f"--service-cluster-ip-range={_SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={signing}",
            f"--service-account-signing-key-file={signing}", "--endpoint-reconciler-type=none", "--profiling=false",
            *self._flags,
        ]  # fmt: skip
        self._etcd.start(etcd, bound=self._bound)
        self._server.start(server, bound=self._bound)

    def _start_manager(self) -> None:
        command = [
            str(self._paths.kube_controller_manager), f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
            "--secure-port=0", f"--controllers={','.join(self._controllers)}",
            f"--service-account-private-key-file={self.pki / 'service-account.key'}",
        ]  # fmt: skip
        self._manager.start(command, bound=self._bound)

    def _access(self, port: int, token: str) -> Access:
        server = f"https://{self._address}:{port}"
        pem = (self.pki / "ca.crt").read_text(encoding="utf-8")
        cluster = {"server": server, "certificate-authority-data": base64.b64encode(pem.encode()).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rehearsal", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "rehearsal", "context": {"cluster": "rehearsal", "user": "admin"}}],
            "current-context": "rehearsal",
        }
        # JSON is YAML.
        write_atomically(self.kubeconfig, json.dumps(config, indent=1), mode=0o600)
        return Access(self.kubeconfig, server, pem, token)

    def _wait(self, access: Access) -> None:
        """Until the server says that it is ready. Raises HostError if a process ended or the time is up."""
        context = ssl.create_default_context(cadata=access.certificate_authority)
        # No proxy of the environment: the server is on this machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        asked = urllib.request.Request(f"{access.server}/readyz", headers={"Authorization": f"Bearer {access.token}"})  # noqa: S310 - https
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                with opener.open(asked, timeout=5):
                    return
            except (urllib.error.URLError, OSError) as error:
                ended = next((one for one in (self._etcd, self._server) if not one.alive()), None)
                if ended:
                    raise HostError(f"{ended.name} ended; its log:\n{ended.last_lines()}") from None
                if time.monotonic() > deadline:
                    raise HostError(
                        f"kube-apiserver at {access.server} is not ready after {_READY_SECONDS:.0f} s ({error}); its "
                        f"log:\n{self._server.last_lines()}"
                    ) from None
            time.sleep(0.05)


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise HostError(f"{address}: no address of this machine ({error.strerror})") from None
        return int(probe.getsockname()[1])
