"""Questions to Prometheus' HTTP API, asked on the machine that runs it.

Each raises OSError if Prometheus does not answer within three seconds, and ValueError if the answer is none of its API.
"""

from __future__ import annotations

import json
from base64 import b64encode
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from monitoring import service, tls

PORT = 9090


def query(expression: str) -> list[dict[str, Any]]:
    """The series of an expression now: `metric` has the labels, `value` the time and the value as text."""
    return list(data(f"query?query={quote(expression)}")["result"])


def firing() -> list[dict[str, str]]:
    """Alerts that fire now, with what our rules say of each."""
    found = [alert for alert in data("alerts")["alerts"] if alert["state"] == "firing"]
    texts = [{**alert["labels"], **alert["annotations"], "name": alert["labels"]["alertname"]} for alert in found]
    keys = ("name", "severity", "actor", "summary", "todo")
    return [
        {"since": alert["activeAt"], **{key: text.get(key, "") for key in keys}}
        for alert, text in zip(found, texts, strict=True)
    ]


def certificate_end() -> float:
    """The time when the certificate ends that Prometheus has."""
    return tls.end((service.ETC / service.CERTIFICATE).read_text(), PORT)


def data(path: str) -> dict[str, Any]:
    """What Prometheus' API answers to a path."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # slow to import, and phases do without

    connection, headers = HTTPConnection("127.0.0.1", PORT, timeout=3), dict[str, str]()
    if service.has_web_listener():
        user = next(iter(json.loads((service.ETC / service.WEB).read_text())["basic_auth_users"]))
        login = f"{user}:{(service.ETC / service.PASSWORD).read_text().strip()}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        context = tls.pinned((service.ETC / service.CERTIFICATE).read_text())
        connection = HTTPSConnection("127.0.0.1", PORT, timeout=3, context=context)
    try:
        connection.request("GET", f"/api/v1/{path}", headers=headers)
        answer = connection.getresponse()
        text = answer.read()
    except HTTPException as error:
        raise OSError(f"no answer of HTTP: {error}") from None
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise OSError(f"HTTP {answer.status} {answer.reason}")
    found: dict[str, Any] = json.loads(text)["data"]
    return found
