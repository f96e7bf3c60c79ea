"""A real Kubernetes API on this machine: etcd, kube-apiserver and kube-controller-manager as processes of this user."""

import base64
import datetime as dt
import ipaddress
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from components.local.host.paths import HostError
from components.local.host.process import Process
from hostfiles import locked, write_atomically
from lab.kubernetes.binaries import Paths

_GRACE_SECONDS = 3.0
"""Time to end: kube-apiserver waits for open watches. All state is in etcd, which has it on disk."""

_GARBAGE = "400"
"""Go's garbage in percent of the used memory: 80 MB more in all, and a tenth less of processor time."""


@dataclass(frozen=True)
class Daemon:
    """A process of a folder: its record is `NAME.json`, its output `NAME.log`."""

    folder: Path
    name: str
    mark: str
    """An argument of its command line that names the folder, so that it is unique."""

    @property
    def log(self) -> Path:
        """The file with its output since the last start."""
        return self.folder / f"{self.name}.log"

    @property
    def record(self) -> Path:
        """The file with its pid, start time and boot."""
        return self.folder / f"{self.name}.json"

    def alive(self) -> bool:
        """Return whether it runs."""
        process = Process.load(self.record)
        return process is not None and process.alive()

    def start(self, command: Sequence[str], *, bound: bool) -> None:
        """Start the process in a session of its own. If `bound`, the kernel ends it with the thread that started it.

        Raises HostError.
        """
        self.stop()
        setpriv = shutil.which("setpriv") if bound else None
        if bound and not setpriv:
            raise HostError("setpriv is not on this machine (package util-linux): processes can't be bound to this one")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        env = {"GOGC": _GARBAGE} | {
            key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")
        }
        with self.log.open("wb") as log:
            child = subprocess.Popen(
                [*guard, *command, self.mark], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process = Process.of(child.pid)
        if process:
            write_atomically(self.record, json.dumps(asdict(process)), mode=0o600)

    def stop(self) -> None:
        """End the process, also one without a record, whose starter was killed. Raises HostError if it does not end."""
        recorded = Process.load(self.record)
        for process in (*([recorded] if recorded else []), *self._unrecorded()):
            if not process.end(signal.SIGTERM, wait=_GRACE_SECONDS) and not process.end(signal.SIGKILL, wait=60):
                raise HostError(f"{self.name} (process {process.pid}) does not end")
            with suppress(ChildProcessError):  # it may be the child of another process
                os.waitpid(process.pid, os.WNOHANG)
        self.record.unlink(missing_ok=True)

    def last_lines(self, count: int = 5) -> str:
        """Return the end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except FileNotFoundError:
            return "no log"

    def _unrecorded(self) -> list[Process]:
        processes: list[Process] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = path.read_bytes().decode(errors="replace").split("\0")
                # In a container the same path is another folder.
                is_own = self.mark in arguments and (path.parent / "root").samefile("/")
            except OSError:
                continue
            if is_own and (process := Process.of(int(path.parent.name))):
                processes.append(process)
        return processes


_YEARS = dt.timedelta(days=3650)
_SKEW = dt.timedelta(hours=1)
"""Certificates begin before now, for machines whose clocks differ."""


def authority(folder: Path) -> Path:
    """Return the certificate `ca.crt` of the folder; create it with its key if it is missing."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists():
        private_key = _key(key)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        builder = _builder(name, name, private_key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        _write(certificate, builder.add_extension(usage, critical=True).sign(private_key, hashes.SHA256()))
    return certificate


def issue(folder: Path, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
    """Create a certificate `NAME.crt` and its key for host names and addresses, signed by the folder's authority, for a
    server and for a client; return both files."""
    issuer = x509.load_pem_x509_certificate(authority(folder).read_bytes())
    issuer_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / 'ca.key'}: not the key that was written")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    private_key = _key(key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _builder(subject, issuer.subject, private_key).add_extension(
        x509.ExtendedKeyUsage(purposes), critical=False
    )
    names = x509.SubjectAlternativeName([_general(host) for host in hosts])
    _write(certificate, builder.add_extension(names, critical=False).sign(issuer_key, hashes.SHA256()))
    return certificate, key


def signing_key(file: Path) -> Path:
    """Return the private key that signs service account tokens; create it if it is missing."""
    if not file.exists():
        _key(file)
    return file


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - _SKEW, now + _YEARS
    )


def _key(file: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    write_atomically(file, text.decode(), mode=0o600)
    return key


def _write(file: Path, certificate: x509.Certificate) -> None:
    write_atomically(file, certificate.public_bytes(serialization.Encoding.PEM).decode())


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


CONTROLLERS = (
    "garbage-collector-controller", "namespace-controller", "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)  # fmt: skip
"""Controllers with which objects behave as on any cluster: owned objects are deleted with their owner, objects of a
namespace with it, and a namespace has its default service account. Controllers that create pods are the caller's."""

_READY_SECONDS = 300.0
_TRIES = 3
"""Starts of a new server, because another process may take the free port before it is used."""
_SERVICES = "10.96.0.0/24"
"""Addresses of Services, which are not routed; those of a real cluster are not routed outside of it either."""
_ETCD = "unix://client:1"
"""A socket in the folder, whose mode keeps other users out: etcd has no password. etcd requires a port in its name."""
_PEER = "unix://peer:1"


@dataclass(frozen=True)
class Access:
    """The access of a client. The token is a cluster administrator's."""

    kubeconfig: Path
    server: str
    certificate_authority: str
    """PEM."""
    token: str


class ApiServer:
    """etcd, kube-apiserver and kube-controller-manager of one folder.

    They listen on `address` alone. `flags` are further flags of kube-apiserver, `controllers` those of
    kube-controller-manager. If `bound`, the kernel ends them with the thread that starts them, else `stop` ends them.
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
        """The administrator's kubeconfig, which `start` writes."""
        return self.folder / "kubeconfig"

    @property
    def pki(self) -> Path:
        """The folder of its certificate authority, for `certificates.issue`."""
        return self.folder / "pki"

    def start(self) -> Access:
        """Start the processes with the data, the port and the token of the last start, and wait until they are ready.

        Raises HostError with the end of the log of the process that did not start; then none runs.
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
        """End the three processes, and keep the data for the next start."""
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
        """Return port and token, which are chosen once and recorded."""
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
        ca = authority(pki)
        hosts = ["127.0.0.1", self._address, "localhost", "kubernetes.default.svc", "kubernetes"]
        certificate, key = issue(pki, "server", list(dict.fromkeys(hosts)))
        signing = signing_key(pki / "service-account.key")
        tokens = self.folder / "tokens.csv"
        write_atomically(tokens, f'{token},admin,admin,"system:masters"\n', mode=0o600)
        etcd = [
            str(self._paths.etcd), f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_PEER}", f"--initial-advertise-peer-urls={_PEER}",
            f"--initial-cluster=default={_PEER}", "--log-level=warn",
            # Data survive the end of the process, but not that of the machine.
            "--unsafe-no-fsync",
        ]  # fmt: skip
        server = [
            str(self._paths.kube_apiserver), f"--etcd-servers={_ETCD}", f"--bind-address={self._address}",
            f"--advertise-address={self._address}", f"--secure-port={port}", f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}", f"--client-ca-file={ca}", f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC", "--allow-privileged=true", f"--service-cluster-ip-range={_SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={signing}",
            f"--service-account-signing-key-file={signing}", "--endpoint-reconciler-type=none", "--profiling=false",
            # It has few clients, none of which needs priority.
            "--enable-priority-and-fairness=false", *self._flags,
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
        """Wait until the server is ready. Raises HostError if a process ended, or at the deadline."""
        context = ssl.create_default_context(cadata=access.certificate_authority)
        # Without the environment's proxy, because the server is on this machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(f"{access.server}/readyz", headers={"Authorization": f"Bearer {access.token}"})  # noqa: S310 - https
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                with opener.open(request, timeout=5):
                    return
            except (urllib.error.URLError, OSError) as error:
                stopped = next((daemon for daemon in (self._etcd, self._server) if not daemon.alive()), None)
                if stopped:
                    raise HostError(f"{stopped.name} ended; its log:\n{stopped.last_lines()}") from None
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
