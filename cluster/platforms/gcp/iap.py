"""Identity-Aware Proxy: connections to machines without a public address, through Google's servers.

Errors of `gcloud` are identified by their text (Google Cloud SDK 528), since it has no exit codes for these cases.
"""

import hashlib
import re
from dataclasses import dataclass

SOURCES = "35.235.240.0/20"
"""Source addresses of its connections (cloud.google.com/iap/docs/using-tcp-forwarding)."""
ROLE = "roles/iap.tunnelResourceAccessor"
INSTALL = "https://cloud.google.com/sdk/docs/install"

_FIRST_PORT = 20000
_PORTS = 10000
_BLOCK = 20
"""Ports of one cluster. All are below those that systems use for outgoing connections (32768 on Linux)."""
LAST = _BLOCK - 1
"""Index of a cluster's last port."""

_BOOTING = re.compile(r"\[4003|\[4047|Unexpected error while connecting")
"""4003: nothing listens yet. 4047: the instance is not known yet, as right after its creation."""
_NOT_ALLOWED = re.compile(r"\[4033|not authorized|PERMISSION_DENIED|Required '[\w.]+' permission|status 40[13]")
_NOT_LOGGED_IN = re.compile(r"gcloud auth login|Reauthentication|invalid_grant|refreshing your current auth tokens")
_NOT_FOUND = re.compile(r"was not found|notFound")


@dataclass(frozen=True, kw_only=True)
class InstanceName:
    """An instance of Compute Engine, by its names."""

    name: str
    project: str
    zone: str

    @property
    def _flags(self) -> list[str]:
        return ["--project", self.project, "--zone", self.zone]

    def listen_arguments(self, port: int) -> list[str]:
        """Return gcloud's arguments for a tunnel from a port of this host to the machine's SSH server."""
        return ["compute", "start-iap-tunnel", self.name, "22", *self._flags, f"--local-host-port=127.0.0.1:{port}"]

    def pipe_arguments(self) -> list[str]:
        """Return gcloud's arguments for a connection to the SSH server on standard input and output."""
        return ["compute", "start-iap-tunnel", self.name, "22", *self._flags, "--listen-on-stdin", "--verbosity=error"]

    def start_command(self) -> str:
        """Return the command that starts the machine."""
        return " ".join(["gcloud", "compute", "instances", "start", self.name, *self._flags])


def port(cluster: str, index: int) -> int:
    """Return the port of this host for a tunnel to a machine. It is the same in every run, so that connections never
    differ.

    `cluster` is PROJECT/ZONE/NAME.
    """
    block = int(hashlib.sha256(cluster.encode()).hexdigest()[:8], 16) % (_PORTS // _BLOCK)
    return _FIRST_PORT + (block * _BLOCK + index) % _PORTS


def is_booting(output: str) -> bool:
    """Return whether gcloud's output means that the machine is still booting, so that a retry may help."""
    return bool(_BOOTING.search(output)) and not (_NOT_ALLOWED.search(output) or _NOT_FOUND.search(output))


def missing() -> str:
    """Return the message for a host without gcloud, with what to do."""
    return (
        "there is no gcloud here, which opens the way through Identity-Aware Proxy. Install the Google Cloud CLI "
        f"({INSTALL}), then: gcloud auth login. Or give the login machine a public address: login.public, "
        "network.admin_cidrs"
    )


def explain(output: str, instance: InstanceName) -> str:
    """Return the reason why gcloud opened no tunnel, and what to do, on one line."""
    reason = last_error(output)
    if _NOT_LOGGED_IN.search(output):
        return "gcloud is not logged in, or no longer. Log in with: gcloud auth login"
    if _NOT_FOUND.search(output):
        return (
            f"project {instance.project} has no machine {instance.name} in {instance.zone}. If it is gone, "
            f"update the state with: pulumi refresh. gcloud said: {reason}"
        )
    if _NOT_ALLOWED.search(output):
        return (
            f"you may not tunnel to it. Needed in project {instance.project}: {ROLE}, and compute.instances.get "
            f"(roles/compute.viewer has it). gcloud said: {reason}"
        )
    if _BOOTING.search(output):
        return (
            "Identity-Aware Proxy does not reach its SSH server. Either it does not run (start it with: "
            f"{instance.start_command()}), or a firewall does not let {SOURCES} in at tcp:22. gcloud said: {reason}"
        )
    return f"gcloud opened no tunnel: {reason or 'it said nothing'}"


def last_error(output: str) -> str:
    """Return gcloud's last error on one line, without progress and warnings."""
    text = output[output.rfind("ERROR:") :] if "ERROR:" in output else output
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^ERROR: (\(gcloud[\w.-]*\) )?", "", " ".join(lines[:4]))
