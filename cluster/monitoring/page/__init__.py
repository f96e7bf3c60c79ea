"""The page of `./hpc dashboard`: one document without references to others, whose script asks Prometheus' API beside it
for what the table of dashboards has. Pure functions.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from cluster.monitoring.dashboards import DASHBOARDS, Dashboard
from cluster.report import palette


@dataclass(frozen=True)
class Page:
    """A document, and what a browser must be given with it."""

    text: str
    headers: Mapping[str, str]


def page(cluster: str, stack: str, interval_seconds: int, dashboards: Iterable[Dashboard] = DASHBOARDS) -> Page:
    """The page of a cluster; its path ends with a slash, and the API is below it."""
    given = {
        "cluster": cluster,
        "stack": stack,
        "interval": interval_seconds,
        "dashboards": [asdict(dashboard) for dashboard in dashboards],
        "colours": len(palette.SERIES),
        "dashes": palette.DASHES,
    }
    style, script = palette.stylesheet() + _read("dashboard.css"), _read("dashboard.js")
    # What ends the element, or begins a comment in it, is not to be found in a name.
    table = json.dumps(given).replace("<", "\\u003c")
    text = _read("dashboard.html")
    for mark, content in (("@STYLE@", style), ("@TABLE@", table), ("@SCRIPT@", script)):
        text = text.replace(mark, content)
    # The script sets widths of bars, which counts as no inline style.
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(text, {"Content-Security-Policy": policy})


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
