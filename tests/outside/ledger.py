"""The belief ledger: what this program believes of outside systems, one row for each belief (ledger/AREA.toml).

`python -m tests.outside.ledger` checks that the pages in docs/reference/beliefs are current; with --write it brings
them up to date.
"""

import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).parent / "ledger"
OUTSIDE = "outside:"
"""What a row's `held` begins with where it names an outside check."""

PAGES = {
    "google-cloud": ("Google Cloud", {"gcp": "Google Cloud", "image": "Image"}),
    "nebius": ("Nebius", {"nebius": "Nebius", "soperator": "Soperator", "kubernetes": "Kubernetes"}),
    "slurm": ("Slurm", {"slurm": "Slurm", "jobs": "Jobs, containers, NCCL and MLPerf", "health": "Health checks"}),
    "pulumi-and-rehearsals": ("Pulumi and rehearsals", {"pulumi": "Pulumi", "machines": "Machines of rehearsals"}),
}
"""The pages of docs/reference/beliefs by file name: a title, and the heading of each area."""
INTRODUCTION = """\
# Beliefs about {title}

One row for each belief on which `up`, a job or a check depends, made from the ledger in `tests/outside/ledger`.
*Held by* is what compares the belief with the code and fails if they differ: tests, which show what this program does
if the belief is true, or by its name an [outside check](../../development.md#outside-checks), which compares it with
the real system. {open} of {count} rows are held by neither yet and come first. The third column says what would settle
a row for good. Sources were looked at on {date} unless a row says otherwise.
"""

# pytest brings tomli where Python has no tomllib (3.10).
_toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


class Belief(BaseModel):
    """One row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    belief: str
    """One line."""
    code: tuple[str, ...]
    """Files of this repository, or file::name, that stand on it."""
    source: str
    """With its version or commit."""
    date: date
    """When the source was last looked at."""
    held: tuple[str, ...] = ()
    """Tests, and outside checks as `outside:NAME`."""
    settle: str = ""
    """What would settle it for good."""
    area: str
    """Its file's name."""


class LedgerError(Exception):
    """A file of the ledger has rows that can't be read."""


def load(folder: Path = LEDGER) -> list[Belief]:
    """All rows, in the order of the files."""
    return [belief for file in sorted(folder.glob("*.toml")) for belief in _rows(file)]


def _rows(file: Path) -> Iterator[Belief]:
    try:
        content = _toml.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LedgerError(f"{file.name}: no TOML: {error}") from None
    if extra := sorted(content.keys() - {"belief"}):
        raise LedgerError(f"{file.name}: given: {extra[0]}; allowed: [[belief]] alone")
    for row in content.get("belief", []):
        try:
            yield Belief(**row, area=file.stem)
        except (TypeError, ValidationError) as error:
            raise LedgerError(f"{file.name}: {row.get('id', row)}: {error}") from None


def problems(beliefs: Sequence[Belief], root: Path = ROOT) -> list[str]:
    """What is wrong with rows: empty fields, ids used twice, code, tests and checks that do not exist."""
    found = [f"{name}: this id is used {count} times" for name, count in _ids(beliefs).items() if count > 1]
    return found + [f"{belief.area}: {belief.id}: {text}" for belief in beliefs for text in _of(belief, root)]


def _ids(beliefs: Sequence[Belief]) -> Counter[str]:
    return Counter(belief.id for belief in beliefs)


def _of(belief: Belief, root: Path) -> Iterator[str]:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", belief.id):
        yield "an id is small letters, digits and `-`"
    if not belief.belief.strip() or "\n" in belief.belief:
        yield "a belief is one line"
    if not belief.source.strip():
        yield "it has no source"
    if not belief.code:
        yield "it names no code"
    if not belief.held and not belief.settle.strip():
        yield "nothing holds it, and `settle` does not say what would"
    for code in belief.code:
        file, _, name = code.partition("::")
        text = _text(root / file)
        if text is None or not all(re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) for part in name.split(".")):
            yield f"there is no {code}"
    for held in belief.held:
        if not _exists(held, root):
            yield f"there is no {held}"


def _exists(held: str, root: Path) -> bool:
    """Whether there is an outside check, or a test, of a name."""
    if held.startswith(OUTSIDE):
        return check_file(held.removeprefix(OUTSIDE), root).is_file()
    file, *names = held.split("::")
    text = _text(root / file)
    names = [name.partition("[")[0] for name in names]
    return text is not None and all(
        re.search(rf"^ *(async def|def|class) {name}\b", text, re.MULTILINE) for name in names
    )


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None


def check_file(name: str, root: Path = ROOT) -> Path:
    """The file of an outside check."""
    return root / "tests" / "outside" / f"check_{name.replace('-', '_')}.py"


def page(name: str, beliefs: Sequence[Belief]) -> str:
    """Return the text of a page of `PAGES`, whose tables have the beliefs of its areas."""
    title, areas = PAGES[name]
    shown = [belief for belief in beliefs if belief.area in areas]
    usual = Counter(belief.date for belief in shown).most_common(1)[0][0]
    unheld = sum(not belief.held for belief in shown)
    text = INTRODUCTION.format(title=title, count=len(shown), open=unheld, date=usual)
    for area, heading in areas.items():
        rows = sorted((belief for belief in shown if belief.area == area), key=lambda belief: bool(belief.held))
        text += "\n".join([f"\n## {heading}\n", *_table(rows, usual)]) + "\n"
    return text


def _table(beliefs: Sequence[Belief], usual: date) -> Iterator[str]:
    yield from ("| Belief | Held by | To settle it | Source |", "| --- | --- | --- | --- |")
    for belief in beliefs:
        checks = [f"`{held.removeprefix(OUTSIDE)}`" for held in belief.held if held.startswith(OUTSIDE)]
        tests = ["tests"] if len(checks) < len(belief.held) else []
        held = ", ".join([*checks, *tests]) or "nothing yet"
        source = belief.source if belief.date == usual else f"{belief.source} ({belief.date})"
        cells = (belief.belief, held, belief.settle, source)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page_file(name: str) -> Path:
    return ROOT / "docs" / "reference" / "beliefs" / f"{name}.md"


def main(arguments: Sequence[str]) -> str | None:
    """Write or check the pages. Return an error message if one is not current."""
    try:
        beliefs = load()
    except LedgerError as error:
        return str(error)
    texts = {page_file(name): page(name, beliefs) for name in PAGES}
    if "--write" in arguments:
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8")
        return None
    if any(file.read_text(encoding="utf-8") != text for file, text in texts.items()):
        return "docs/reference/beliefs differs from the ledger: run python -m tests.outside.ledger --write"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
