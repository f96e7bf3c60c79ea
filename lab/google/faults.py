"""Faults of a rehearsal's cloud, set while it runs."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from components.local.host.cloud import CloudPaths
from components.local.host.paths import StackPaths


class FaultClient:
    """Sets faults of the cloud of a stack on this host: see `Faults` in host_compute.py."""

    def __init__(self, root: Path, stack: str) -> None:
        """Raises FileNotFoundError if the stack has no elastic nodes."""
        design = json.loads(CloudPaths(StackPaths(root, stack).cloud).design.read_text())
        self._url = f"http://{design['gateway']}:{int(design['port'])}"
        self._token, self._place = design["token"], design["place"]

    def set(self, **faults: Any) -> None:
        """Have these faults and no others."""
        self._ask("/lab/faults", faults)

    def preempt(self, name: str, seconds: float = 0) -> None:
        """Have an instance stopped after so many seconds, as a spot instance is."""
        self._ask(f"/lab/preempt/{name}?seconds={seconds}", {})

    def maintain(self, name: str, seconds: float) -> None:
        """Have maintenance of an instance's host announced."""
        self._ask(f"/lab/maintenance/{name}?seconds={seconds}", {})

    def instances(self) -> list[dict[str, Any]]:
        """Return the instances, those of static nodes included."""
        return self._ask(f"/compute/v1/{self._place}/instances")["items"]

    def groups(self) -> list[dict[str, Any]]:
        """Return the managed instance groups."""
        return self._ask(f"/compute/v1/{self._place}/instanceGroupManagers")["items"]

    def requests(self) -> list[dict[str, Any]]:
        """Return the last requests: time, method, path, status."""
        return self._ask("/lab/requests")["requests"]

    def refused(self) -> int:
        """Return the number of operations that ended with an error."""
        rows = self._ask(f"/compute/v1/{self._place}/operations")["items"]
        return sum("error" in row for row in rows)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - this host
            self._url + path, data, {"Authorization": f"Bearer {self._token}"}
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
                    return json.loads(reply.read())
            except urllib.error.HTTPError as error:
                if error.code != 503:  # a fault that was asked for
                    raise
