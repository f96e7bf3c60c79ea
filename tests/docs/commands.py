"""Commands in the pages, and what runs them.

A block of commands (```console) without a comment before it is typed word by word by tests/e2e/test_printed.py, on a
cluster `dev`. Others say what runs them, or what they need:

    <!-- run by: tests/e2e/test_health.py -->
    <!-- lab: alice -->                         tests/e2e/test_examples.py, on a login machine
    <!-- needs: Google Cloud -->
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<kind>run by|lab|needs): (?P<what>[^\n]+) -->\n)?^ *```console\n(?P<text>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^ *\$ (?P<line>.*)\n(?P<shown>(?:(?! *\$ ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    page: Path
    line: str
    """Without a comment behind it."""
    shown: str
    """What the page says that it prints; empty if it says nothing."""
    kind: str
    """`run by`, `lab`, `needs`, or "" for those that are typed on `dev`."""
    what: str


def commands() -> Iterator[Command]:
    """All commands of all pages, in their order."""
    for page in PAGES:
        for block in _BLOCK.finditer(page.read_text()):
            for found in _COMMAND.finditer(block["text"]):
                line = found["line"].partition("  #")[0].strip()
                yield Command(page, line, found["shown"], block["kind"] or "", block["what"] or "")
