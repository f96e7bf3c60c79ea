"""Requests to the rehearsal's API server, over HTTPS with a token."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cluster.platforms.nebius.names import GROUP

Object = dict[str, Any]

_SECONDS = 20
_GONE = 404
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
    f"{GROUP}/v1alpha1": {"NodeSet": "nodesets", "ActiveCheck": "activechecks"},
}  # fmt: skip
"""What the stand-ins deal with: the name of each kind in URLs."""


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
        tls = ssl.create_default_context(cafile=str(authority))
        # No proxy of the environment: the server is on this machine.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    def list(self, api: str, kind: str, namespace: str | None = None, *, labels: str = "") -> list[Object]:
        """All objects of a kind; none if the cluster does not know the kind (yet)."""
        query = {"labelSelector": labels} if labels else {}
        try:
            found = self._request("GET", _path(api, kind, namespace), query=query)
        except KubeError as error:
            if error.status == _GONE:
                return []
            raise
        return [{"apiVersion": api, "kind": kind, **item} for item in found["items"]]

    def get(self, api: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object; None if there is none of that name."""
        try:
            return self._request("GET", _path(api, kind, namespace, name))
        except KubeError as error:
            if error.status == _GONE:
                return None
            raise

    def apply(self, wanted: Object) -> Object:
        """Create an object, or change what of it is ours (server-side apply)."""
        return self._request("PATCH", _of(wanted), query=_OWNED, body=wanted, kind=_APPLY)

    def set_status(self, owner: Object, status: Mapping[str, Any]) -> None:
        """Write an object's status, unless it is so already."""
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

    def create(self, wanted: Object) -> None:
        """Create an object."""
        self._request(
            "POST", _path(wanted["apiVersion"], wanted["kind"], wanted["metadata"].get("namespace")), body=wanted
        )

    def delete(self, owner: Object) -> None:
        """Delete an object at once; one that is gone is no error."""
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
        request = urllib.request.Request(  # noqa: S310 - https, as the supervisor gives it
            f"{self._server}{path}{'?' + urlencode(query) if query else ''}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise KubeError(error.code, _message(error)) from None
        except OSError as error:
            raise KubeError(0, f"{self._server}: {error}") from None


_OWNED = {"fieldManager": MANAGER, "force": "true"}


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or str(error)


def _of(wanted: Mapping[str, Any]) -> str:
    meta = wanted["metadata"]
    return _path(wanted["apiVersion"], wanted["kind"], meta.get("namespace"), meta["name"])


def _path(api: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """The URL's path: the core group has one of its own."""
    return "/".join(_steps(api, kind, namespace, name))


def _steps(api: str, kind: str, namespace: str | None, name: str | None) -> Iterator[str]:
    yield f"/{'apis' if '/' in api else 'api'}/{api}"
    if namespace:
        yield f"namespaces/{namespace}"
    yield _PLURALS[api][kind]
    if name:
        yield name


def _contains(found: Any, wanted: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether merging `wanted` into `found` would change nothing."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key not in found if value is None else key in found and _contains(found[key], value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_contains, found, wanted))
    return bool(found == wanted)
