"""A real Kubernetes API on this machine: etcd and kube-apiserver, which end with the block that needs them.

It has no controllers: objects are stored, defaulted and refused as on any cluster, and nothing acts on them.
"""

import json
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.outside.kubernetes.binaries import Paths

_ADDRESS = "127.0.0.1"
_READY_SECONDS = 300.0
_SERVICES = "10.96.0.0/24"
"""Addresses of Services, which are not routed; those of a real cluster are not routed outside of it either."""
_ETCD = "unix://client:1"
"""A socket in the folder, whose mode keeps other users out: etcd has no password. etcd requires a port in its name."""
_PEER = "unix://peer:1"
_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


@contextmanager
def running(folder: Path, paths: Paths) -> Iterator[Path]:
    """Run the servers in a new folder, and yield an administrator's kubeconfig. Raises RuntimeError with the end of the
    log of the server that ended, or that is not ready after five minutes."""
    folder.mkdir(mode=0o700)
    port, token = _free_port(), secrets.token_urlsafe(24)
    signing, certificate = folder / "signing.key", folder / "pki" / "apiserver.crt"
    signing.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    etcd = [
        str(paths.etcd), f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}", f"--listen-peer-urls={_PEER}", f"--initial-advertise-peer-urls={_PEER}",
        f"--initial-cluster=default={_PEER}", "--log-level=warn", "--unsafe-no-fsync",
    ]  # fmt: skip
    server = [
        str(paths.kube_apiserver), f"--etcd-servers={_ETCD}", f"--bind-address={_ADDRESS}",
        # Without a certificate it makes one of its own there, with the authority behind it.
        f"--secure-port={port}", f"--cert-dir={certificate.parent}", f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC", "--allow-privileged=true", f"--service-cluster-ip-range={_SERVICES}",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={signing}",
        f"--service-account-signing-key-file={signing}", "--endpoint-reconciler-type=none", "--profiling=false",
        "--enable-priority-and-fairness=false",
    ]  # fmt: skip
    with ExitStack() as stack:
        processes = {name: _start(stack, folder, name, command) for name, command in (("etcd", etcd), ("api", server))}
        _wait(f"https://{_ADDRESS}:{port}/readyz", certificate, token, processes, folder)
        cluster = {"server": f"https://{_ADDRESS}:{port}", "certificate-authority": str(certificate)}
        kubeconfig = folder / "kubeconfig"
        # JSON is YAML.
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "outside", "cluster": cluster}],
                    "users": [{"name": "admin", "user": {"token": token}}],
                    "contexts": [{"name": "outside", "context": {"cluster": "outside", "user": "admin"}}],
                    "current-context": "outside",
                }
            )
        )
        yield kubeconfig


def _start(stack: ExitStack, folder: Path, name: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = stack.enter_context(
        subprocess.Popen([*_WITH_PARENT, *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    )
    stack.callback(process.kill)
    return process


def _wait(
    url: str, certificate: Path, token: str, processes: "dict[str, subprocess.Popen[bytes]]", folder: Path
) -> None:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - https
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            context = ssl.create_default_context(cafile=certificate)
            # Without the environment's proxy, because the server is on this machine.
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            with opener.open(request, timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            ended = [name for name, process in processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                log = (folder / f"{(ended or ['api'])[0]}.log").read_text(errors="replace")
                raise RuntimeError(f"{ended or url}: {error}; its log:\n{log[-2000:]}") from None
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        return int(probe.getsockname()[1])
