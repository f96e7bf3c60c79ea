"""Requests to the rehearsal's API server, over HTTPS with a token."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lab.soperator.names import GROUP

Object = dict[str, Any]

_SECONDS = 60
_GONE = 404
_FAILED = 400
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
MANAGER = "rehearsal"
"""The field manager of what the stand-ins write."""

_PLURALS = {
    "v1": {
        "Node": "nodes", "Pod": "pods", "Service": "services", "PersistentVolume": "persistentvolumes",
        "PersistentVolumeClaim": "persistentvolumeclaims", "Secret": "secrets",
    },
    "apps/v1": {"Deployment": "deployments"},
    "batch/v1": {"Job": "jobs", "CronJob": "cronjobs"},
    f"{GROUP}/v1": {"SlurmCluster": "slurmclusters"},
    f"{GROUP}/v1alpha1": {
        "NodeSet": "nodesets",
        "NodeSetPowerState": "nodesetpowerstates",
        "ActiveCheck": "activechecks",
    },
}  # fmt: skip
"""Names of the used kinds in URLs."""


class KubeError(Exception):
    """A request that failed; its text is the API server's message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        """HTTP status; 0 where there was no answer."""


class Kube:
    """The API server at one address."""

    def __init__(self, server: str, authority: Path, token: str) -> None:
        """`authority` is the file of the certificate authority that the server's certificate is from."""
        self._server, self._token = server.rstrip("/"), token
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._connections = threading.local()
        """A kept connection of each thread, because a handshake costs more than a request."""

    def revision(self) -> str:
        """Return etcd's revision, which differs after each write to any object."""
        return self._request("GET", _path("v1", "Node"), query={"limit": "1"})["metadata"]["resourceVersion"]

    def list(self, api: str, kind: str, namespace: str | None = None, *, labels: str = "") -> list[Object]:
        """Return all objects of a kind; none if the cluster has no such kind (yet)."""
        query = {"labelSelector": labels} if labels else {}
        try:
            answer = self._request("GET", _path(api, kind, namespace), query=query)
        except KubeError as error:
            if error.status == _GONE:
                return []
            raise
        return [{"apiVersion": api, "kind": kind, **item} for item in answer["items"]]

    def get(self, api: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Read an object; None if there is none of that name."""
        try:
            return self._request("GET", _path(api, kind, namespace, name))
        except KubeError as error:
            if error.status == _GONE:
                return None
            raise

    def apply(self, desired: Object) -> Object:
        """Create an object, or change the fields that MANAGER owns (server-side apply)."""
        return self._request("PATCH", _of(desired), query=_OWNED, body=desired, kind=_APPLY)

    def set_status(self, owner: Object, status: Mapping[str, Any]) -> None:
        """Write an object's status, if it differs."""
        if _contains(owner.get("status") or {}, status):
            return
        try:
            self._request("PATCH", f"{_of(owner)}/status", body={"status": status}, kind=_MERGE)
        except KubeError as error:
            if error.status != _GONE:
                raise

    def bind(self, pod: Object, node: str) -> None:
        """Assign a pod to a node, as the scheduler does."""
        body = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}}
        self._request("POST", f"{_of(pod)}/binding", body=body)

    def create(self, desired: Object) -> None:
        """Create an object."""
        self._request(
            "POST", _path(desired["apiVersion"], desired["kind"], desired["metadata"].get("namespace")), body=desired
        )

    def delete(self, owner: Object) -> None:
        """Delete an object without a grace period; a missing object is no error."""
        body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        try:
            self._request("DELETE", _of(owner), body=body)
        except KubeError as error:
            if error.status != _GONE:
                raise

    def _request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:  # fmt: skip
        target = f"{path}{'?' + urlencode(query) if query else ''}"
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"}
        try:
            status, text = self._answer(method, target, content, headers)
        except (OSError, HTTPException) as error:
            raise KubeError(0, f"{self._server}: {error}") from None
        if status >= _FAILED:
            raise KubeError(status, _message(text))
        return json.loads(text)

    def _answer(self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a request; return status and text of the answer. Raises OSError and HTTPException."""
        kept: HTTPSConnection | None = getattr(self._connections, "kept", None)
        connection = kept or HTTPSConnection(self._server.removeprefix("https://"), timeout=_SECONDS, context=self._tls)
        self._connections.kept = None
        try:
            connection.request(method, target, content, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException) as error:
            connection.close()
            # The server may have been restarted since the last request.
            if kept and isinstance(error, ConnectionError):
                return self._answer(method, target, content, headers)
            raise
        self._connections.kept = connection
        return answer.status, text


_OWNED = {"fieldManager": MANAGER, "force": "true"}


def _message(answer: bytes) -> str:
    text = answer.decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or "an answer without a text"


def _of(desired: Mapping[str, Any]) -> str:
    meta = desired["metadata"]
    return _path(desired["apiVersion"], desired["kind"], meta.get("namespace"), meta["name"])


def _path(api: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """Return the path of a URL; that of the core group differs from the others."""
    return "/".join(_steps(api, kind, namespace, name))


def _steps(api: str, kind: str, namespace: str | None, name: str | None) -> Iterator[str]:
    yield f"/{'apis' if '/' in api else 'api'}/{api}"
    if namespace:
        yield f"namespaces/{namespace}"
    yield _PLURALS[api][kind]
    if name:
        yield name


def _contains(found: Any, desired: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether merging `desired` into `found` would change nothing."""
    if isinstance(desired, Mapping):
        return isinstance(found, Mapping) and all(
            key not in found if value is None else key in found and _contains(found[key], value)
            for key, value in desired.items()
        )
    if isinstance(desired, list) and isinstance(found, list):
        return len(found) == len(desired) and all(map(_contains, found, desired))
    return bool(found == desired)
