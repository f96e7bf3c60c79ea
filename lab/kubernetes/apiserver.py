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
"""kube-apiserver waits for open watches when it is asked to end. All state is in etcd, which has it on disk."""

_GARBAGE = "400"
"""Percent of what is in use that Go lets become garbage: 80 MB more in all, and a tenth less of processor time."""


@dataclass(frozen=True)
class Daemon:
    """A process of a folder: its record is `NAME.json`, its output `NAME.log`."""

    folder: Path
    name: str
    mark: str
    """An argument of its command line that names the folder, so that no other process has it."""

    @property
    def log(self) -> Path:
        """Return what it wrote since its last start."""
        return self.folder / f"{self.name}.log"

    @property
    def record(self) -> Path:
        """Its pid, start time and boot."""
        return self.folder / f"{self.name}.json"

    def alive(self) -> bool:
        """Return whether it runs."""
        process = Process.load(self.record)
        return process is not None and process.alive()

    def start(self, command: Sequence[str], *, bound: bool) -> None:
        """Start it in a session of its own; `bound` ends it with the thread that started it, however that ends.

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
        # Only what it writes itself is readable by others, and it writes to this folder only.
        with self.log.open("wb") as log:
            child = subprocess.Popen(
                [*guard, *command, self.mark], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process = Process.of(child.pid)
        if process:
            write_atomically(self.record, json.dumps(asdict(process)), mode=0o600)

    def stop(self) -> None:
        """End it, also one whose starter was killed before it wrote the record. Raises HostError if it does not end."""
        recorded = Process.load(self.record)
        for process in (*([recorded] if recorded else []), *self._unrecorded()):
            if not process.end(signal.SIGTERM, wait=_GRACE_SECONDS) and not process.end(signal.SIGKILL, wait=60):
                raise HostError(f"{self.name} (process {process.pid}) does not end")
            with suppress(ChildProcessError):  # it may be another process's child
                os.waitpid(process.pid, os.WNOHANG)
        self.record.unlink(missing_ok=True)

    def last_lines(self, count: int = 5) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except FileNotFoundError:
            return "no log"

    def _unrecorded(self) -> list[Process]:
        found: list[Process] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = path.read_bytes().decode(errors="replace").split("\0")
                # In a container the same path is another folder.
                ours = self.mark in arguments and (path.parent / "root").samefile("/")
            except OSError:
                continue
            if ours and (process := Process.of(int(path.parent.name))):
                found.append(process)
        return found


_YEARS = dt.timedelta(days=3650)
_SKEW = dt.timedelta(hours=1)
"""Certificates begin before now, for machines whose clocks differ."""


def authority(folder: Path) -> Path:
    """The certificate `ca.crt` in the folder, created with its key if it is not there."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists():
        made = _key(key)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        builder = _builder(name, name, made).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        _write(certificate, builder.add_extension(usage, critical=True).sign(made, hashes.SHA256()))
    return certificate


def issue(folder: Path, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
    """A new certificate `NAME.crt` and its key, signed by the folder's authority, for host names and addresses; it
    serves for a server and for a client."""
    issuer = x509.load_pem_x509_certificate(authority(folder).read_bytes())
    issuer_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / 'ca.key'}: not the key that was written")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    made = _key(key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _builder(subject, issuer.subject, made).add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    names = x509.SubjectAlternativeName([_general(host) for host in hosts])
    _write(certificate, builder.add_extension(names, critical=False).sign(issuer_key, hashes.SHA256()))
    return certificate, key


def signing_key(file: Path) -> Path:
    """The private key that signs service account tokens, created if it is not there."""
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
"""What makes objects behave as on any cluster: owned objects are deleted with their owner, the content of a namespace
with it, and a namespace has its default service account. What creates pods is left to the caller."""

_READY_SECONDS = 300.0
_TRIES = 3
"""Starts of a new server: between the choice of a free port and its use another process may take it."""
_SERVICES = "10.96.0.0/24"
"""Service addresses, which nothing here routes; a real cluster's are not routed outside of it either."""
_ETCD = "unix://client:1"
"""A socket in the folder, whose mode keeps other users out: etcd has no password. etcd requires a port in its name."""
_PEER = "unix://peer:1"


@dataclass(frozen=True)
class Access:
    """The data that a client needs. The token is a cluster administrator's."""

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
            # Data survive the end of the process all the same, only not that of the machine.
            "--unsafe-no-fsync",
        ]  # fmt: skip
        server = [
            str(self._paths.kube_apiserver), f"--etcd-servers={_ETCD}", f"--bind-address={self._address}",
            f"--advertise-address={self._address}", f"--secure-port={port}", f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}", f"--client-ca-file={ca}", f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC", "--allow-privileged=true", f"--service-cluster-ip-range={_SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={signing}",
            f"--service-account-signing-key-file={signing}", "--endpoint-reconciler-type=none", "--profiling=false",
            # Its clients are few, and no one of them is to be served before another.
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
                ended = next((daemon for daemon in (self._etcd, self._server) if not daemon.alive()), None)
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
