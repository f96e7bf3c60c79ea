"""docs/limitations.md, made from limitations.md beside this file and the ledger.

`python -m tests.outside.limitations` checks that the page is current; with --write it is brought up to date.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tests.outside.ledger import OUTSIDE, ROOT, Belief, LedgerError, load

PAGE = ROOT / "docs" / "limitations.md"
_PROSE = Path(__file__).with_name("limitations.md")
_PLACE = re.compile(r"^\{(\w+)\}$", re.MULTILINE)
"""Where the table of an area goes."""


def page(beliefs: Sequence[Belief]) -> str:
    """The page's text."""
    text = _PROSE.read_text(encoding="utf-8")
    placed = set(_PLACE.findall(text))
    for area in sorted({belief.area for belief in beliefs} - placed):
        text += f"\n## {area.capitalize()}\n\n{{{area}}}\n"
    text = text.replace("{count}", str(len(beliefs)))
    text = text.replace("{open}", str(sum(not belief.held for belief in beliefs)))
    days = Counter(belief.date for belief in beliefs)
    usual = max(days, key=lambda day: days[day])
    text = text.replace("{date}", usual.isoformat())
    return _PLACE.sub(lambda found: _table([one for one in beliefs if one.area == found[1]], usual), text)


def _table(beliefs: Sequence[Belief], usual: date) -> str:
    """What nothing holds comes first."""
    rows = [
        [one.belief, _held(one), one.settle, one.source + ("" if one.date == usual else f" ({one.date})")]
        for one in sorted(beliefs, key=_order)
    ]
    lines = [["Belief", "Held by", "To settle it", "Source"], ["---"] * 4, *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _order(belief: Belief) -> bool:
    return bool(belief.held)


def _held(belief: Belief) -> str:
    checks = [f"`{one.removeprefix(OUTSIDE)}`" for one in belief.held if one.startswith(OUTSIDE)]
    tests = ["tests"] if len(checks) < len(belief.held) else []
    return ", ".join([*checks, *tests]) or "nothing yet"


def main(arguments: Sequence[str]) -> str | None:
    """Write or check the page; what is wrong, if anything."""
    try:
        text = page(load())
    except LedgerError as error:
        return str(error)
    if "--write" in arguments:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        return "docs/limitations.md is not what the ledger says: python -m tests.outside.limitations --write"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
