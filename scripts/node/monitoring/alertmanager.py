"""Queries of Alertmanager's HTTP API on the machine that runs it."""

from interface import ALERTMANAGER_PORT as PORT
from monitoring import prometheus


def silences() -> list[dict[str, str]]:
    """Return the active silences: `id`, `by`, `until`, `comment`, and its matchers as `alerts`.

    Raises OSError if Alertmanager does not answer within three seconds. Keys and states are those of
    api/v2/openapi.yaml of prometheus/alertmanager at v0.23.0 and v0.28.1.
    """
    from http.client import HTTPConnection  # slow to import, and other machines do not need it

    rows = prometheus.read(HTTPConnection("127.0.0.1", PORT, timeout=3), "/api/v2/silences", {})
    return [
        {
            "id": row["id"],
            "by": row["createdBy"],
            "until": row["endsAt"],
            "comment": row["comment"],
            "alerts": ", ".join(_matcher(matcher) for matcher in row["matchers"]),
        }
        for row in rows
        if row["status"]["state"] == "active"
    ]


_OPERATORS = {(True, False): "=", (False, False): "!=", (True, True): "=~", (False, True): "!~"}


def _matcher(matcher: dict[str, str | bool]) -> str:
    """Return a matcher as amtool writes it."""
    operator = _OPERATORS[bool(matcher["isEqual"]), bool(matcher["isRegex"])]
    return f'{matcher["name"]}{operator}"{matcher["value"]}"'
