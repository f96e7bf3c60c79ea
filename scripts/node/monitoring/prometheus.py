"""Questions to Prometheus' HTTP API, asked on the machine that runs it.

Each raises OSError if Prometheus does not answer within three seconds, and ValueError if the answer is none of its API.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote


def query(expression: str) -> list[dict[str, Any]]:
    """The series of an expression now: `metric` has the labels, `value` the time and the value as text."""
    return list(_data(f"query?query={quote(expression)}")["result"])


def firing() -> list[dict[str, str]]:
    """Alerts that fire now, with what our rules say of each."""
    found = [alert for alert in _data("alerts")["alerts"] if alert["state"] == "firing"]
    texts = [{**alert["labels"], **alert["annotations"], "name": alert["labels"]["alertname"]} for alert in found]
    keys = ("name", "severity", "actor", "summary", "todo")
    return [
        {"since": alert["activeAt"], **{key: text.get(key, "") for key in keys}}
        for alert, text in zip(found, texts, strict=True)
    ]


def _data(path: str) -> dict[str, Any]:
    from urllib.request import urlopen  # slow to import, and phases do without

    with urlopen(f"http://127.0.0.1:9090/api/v1/{path}", timeout=3) as answer:
        found: dict[str, Any] = json.load(answer)["data"]
    return found
