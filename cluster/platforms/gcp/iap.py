"""Identity-Aware Proxy: the way to machines that have no public address, through Google's own servers.

Errors of `gcloud` are recognized by their text (Google Cloud SDK 528): it has no exit codes of its own for these cases.
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
"""Ports of one cluster. All lie below those that systems give to outgoing connections (32768 on Linux)."""
LAST = _BLOCK - 1
"""Index of the last of these."""

_BEING_MADE = re.compile(r"\[4003|\[4047|Unexpected error while connecting")
"""4003: nothing listens there yet. 4047: the machine is not known yet, as right after it was made."""
_NOT_ALLOWED = re.compile(r"\[4033|not authorized|PERMISSION_DENIED|Required '[\w.]+' permission|status 40[13]")
_NOT_LOGGED_IN = re.compile(r"gcloud auth login|Reauthentication|invalid_grant|refreshing your current auth tokens")
_NOT_FOUND = re.compile(r"was not found|notFound")


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine by its names in Google Cloud."""

    name: str
    project: str
    zone: str

    @property
    def _flags(self) -> list[str]:
        return ["--project", self.project, "--zone", self.zone]

    def listening(self, port: int) -> list[str]:
        """Arguments of gcloud for a tunnel from a port of this host to the machine's SSH server."""
        return ["compute", "start-iap-tunnel", self.name, "22", *self._flags, f"--local-host-port=127.0.0.1:{port}"]

    def piped(self) -> list[str]:
        """Arguments of gcloud for one connection to the machine's SSH server, on standard input and output."""
        return ["compute", "start-iap-tunnel", self.name, "22", *self._flags, "--listen-on-stdin", "--verbosity=error"]

    def starting(self) -> str:
        """The command that starts the machine."""
        return " ".join(["gcloud", "compute", "instances", "start", self.name, *self._flags])


def port(cluster: str, index: int) -> int:
    """Port of this host for a tunnel to a machine; the same in every run, so that connections never differ.

    `cluster` is PROJECT/ZONE/NAME.
    """
    block = int(hashlib.sha256(cluster.encode()).hexdigest()[:8], 16) % (_PORTS // _BLOCK)
    return _FIRST_PORT + (block * _BLOCK + index) % _PORTS


def being_made(said: str) -> bool:
    """Return whether what gcloud said may be otherwise in a minute: the machine boots."""
    return bool(_BEING_MADE.search(said)) and not (_NOT_ALLOWED.search(said) or _NOT_FOUND.search(said))


def missing() -> str:
    """Return the message for a machine without gcloud, and what to do."""
    return (
        "there is no gcloud here, which opens the way through Identity-Aware Proxy. Install the Google Cloud CLI "
        f"({INSTALL}), then: gcloud auth login. Or give the login machine a public address: login.public, "
        "network.admin_cidrs"
    )


def explain(said: str, instance: Instance) -> str:
    """Return what gcloud said when it opened no tunnel, and what to do, on one line."""
    words = last_error(said)
    if _NOT_LOGGED_IN.search(said):
        return "gcloud is not logged in, or no longer. Log in with: gcloud auth login"
    if _NOT_FOUND.search(said):
        return (
            f"project {instance.project} has no machine {instance.name} in {instance.zone}. If it is gone, "
            f"update the state with: pulumi refresh. gcloud said: {words}"
        )
    if _NOT_ALLOWED.search(said):
        return (
            f"you may not tunnel to it. Needed in project {instance.project}: {ROLE}, and compute.instances.get "
            f"(roles/compute.viewer has it). gcloud said: {words}"
        )
    if _BEING_MADE.search(said):
        return (
            "Identity-Aware Proxy does not reach its SSH server. Either it does not run (start it with: "
            f"{instance.starting()}), or a firewall does not let {SOURCES} in at tcp:22. gcloud said: {words}"
        )
    return f"gcloud opened no tunnel: {words or 'it said nothing'}"


def last_error(said: str) -> str:
    """gcloud's error, without its progress and its warnings, on one line."""
    text = said[said.rfind("ERROR:") :] if "ERROR:" in said else said
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^ERROR: (\(gcloud[\w.-]*\) )?", "", " ".join(lines[:4]))
