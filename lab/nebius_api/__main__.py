"""`python -m lab.nebius_api --port PORT --state FILE`: runs the stand-in until a signal ends it."""

import argparse
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.nebius_api.faults import parse
from lab.nebius_api.server import NebiusServer, Place
from lab.nebius_supervisor import Supervisor


class KubernetesApi:
    """An observer that gives all mk8s clusters the endpoint and the certificate authority of one Kubernetes API."""

    def __init__(self, endpoint: str, certificate_authority: str, supervisor: Supervisor | None = None) -> None:
        self._endpoint, self._ca, self._supervisor = endpoint, certificate_authority, supervisor

    def on_change(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Start a rehearsal's Kubernetes API with the cluster, and delete its objects with the cluster."""
        if kind == "Cluster" and self._supervisor is not None:
            self._supervisor.follow(cluster=not obj["deleted"])

    def status_of(self, kind: str, obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the control plane of a running cluster."""
        if kind != "Cluster" or obj["status"].get("state") != "RUNNING":
            return None
        endpoints = {"public_endpoint": self._endpoint}
        auth = {"cluster_ca_certificate": self._ca}
        return {"control_plane": {**obj["status"]["control_plane"], "endpoints": endpoints, "auth": auth}}


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m lab.nebius_api")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1; 0: any that is free")
    parser.add_argument("--state", type=Path, help="the file that keeps objects over restarts")
    parser.add_argument("--port-file", type=Path, help="is written when the server takes calls")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long an operation takes")
    parser.add_argument("--tenant", default=Place.tenant)
    parser.add_argument("--region", default=Place.region)
    parser.add_argument("--token-file", type=Path, required=True, help="holds the token that calls must have")
    parser.add_argument("--cluster-endpoint", default="", help="URL of the Kubernetes API of every mk8s cluster")
    parser.add_argument("--cluster-ca", type=Path, help="its certificate authority, a PEM file")
    parser.add_argument("--rehearsal", type=Path, help="the rehearsal's folder, whose Kubernetes API it is")
    parser.add_argument("--fault", action="append", default=[], type=parse, metavar="KIND:VERB:MODE:ERROR[:NAME]")
    given = parser.parse_args()
    observer = None
    if given.cluster_endpoint:
        supervisor = Supervisor(given.rehearsal) if given.rehearsal else None
        authority = given.cluster_ca.read_text() if given.cluster_ca else ""
        observer = KubernetesApi(given.cluster_endpoint, authority, supervisor)
    place = Place(tenant=given.tenant, region=given.region)
    server = NebiusServer(
        port=given.port, state=given.state, seconds=given.seconds, place=place, observer=observer,
        token=given.token_file.read_text().strip(),
    )  # fmt: skip
    server.faults.extend(given.fault)
    # Neither an Event nor a queue: a signal just before the wait for their lock begins would not end the wait.
    signals, wake_up = os.pipe()
    os.set_blocking(wake_up, False)
    signal.set_wakeup_fd(wake_up)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    with server:
        if given.port_file:
            new = given.port_file.with_name(f"{given.port_file.name}.new")
            new.write_text(f"{server.port}\n")
            new.replace(given.port_file)
        os.read(signals, 1)


if __name__ == "__main__":
    main()
