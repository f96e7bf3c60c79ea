"""Queries of Prometheus' HTTP API on the machine that runs it.

Each raises OSError if Prometheus does not answer within three seconds, and ValueError if the response is not JSON.
"""

from __future__ import annotations

import json
from base64 import b64encode
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from interface import PROMETHEUS_PORT as PORT
from judge.kinds import WATCHDOG_ALERT
from monitoring import service, tls


def query(expression: str) -> list[dict[str, Any]]:
    """Return the current series of an expression: `metric` has the labels, `value` the time and the value as text."""
    return list(get(f"query?query={quote(expression)}")["result"])


PLACES = ("where", "node", "machine", "instance")
"""Labels that have the name of a machine. The instance of a metric of the whole cluster is the controller."""


def firing() -> list[dict[str, str]]:
    """Return the firing alerts but for the watchdog, with labels and annotations of their rules; `where` is a machine's
    name or empty."""
    alerts: list[dict[str, str]] = []
    for alert in get("alerts")["alerts"]:
        if alert["state"] == "firing" and alert["labels"]["alertname"] != WATCHDOG_ALERT:
            texts = {**alert["labels"], **alert["annotations"], "name": alert["labels"]["alertname"]}
            keys = ("name", "severity", "actor", "summary", "todo", "findings")
            where = next((texts[label] for label in PLACES if label in texts), "")
            alerts.append({"since": alert["activeAt"], "where": where, **{key: texts.get(key, "") for key in keys}})
    return alerts


def certificate_end() -> float:
    """Return the time when Prometheus' certificate expires."""
    return tls.end((service.ETC / service.CERTIFICATE).read_text(), PORT)


def get(path: str) -> dict[str, Any]:
    """Return the data of Prometheus' API for a path."""
    from http.client import HTTPConnection, HTTPSConnection  # slow to import; most phases need none

    connection, headers = HTTPConnection("127.0.0.1", PORT, timeout=3), dict[str, str]()
    if service.has_web_listener():
        user = next(iter(json.loads((service.ETC / service.WEB).read_text())["basic_auth_users"]))
        login = f"{user}:{(service.ETC / service.PASSWORD).read_text().strip()}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        context = tls.pinned((service.ETC / service.CERTIFICATE).read_text())
        connection = HTTPSConnection("127.0.0.1", PORT, timeout=3, context=context)
    return read(connection, f"/api/v1/{path}", headers)["data"]


def read(connection: Any, path: str, headers: dict[str, str]) -> Any:  # noqa: ANN401 - an HTTPConnection; any JSON
    """Return the JSON value at a path of an HTTP server, and close the connection."""
    from http.client import HTTPException  # slow to import, as above

    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        text = response.read()
    except HTTPException as error:
        raise OSError(f"no answer of HTTP: {error}") from None
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        raise OSError(f"HTTP {response.status} {response.reason}")
    return json.loads(text)
