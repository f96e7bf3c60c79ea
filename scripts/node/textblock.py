"""Lines of ours inside a file that others write to as well, between two marks."""

from __future__ import annotations

BEGIN, END = "# hpc: begin", "# hpc: end"


def with_block(text: str, lines: list[str]) -> str:
    """`text` with our marked block replaced by `lines`, everything else kept; no lines, no block.

    Applying it twice is applying it once. A block whose end mark was lost reaches to the end of the file.
    """
    kept: list[str] = []
    ours = False
    for line in text.splitlines():
        if line == BEGIN:
            ours = True
        elif line == END:
            ours = False
        elif not ours:
            kept.append(line)
    return "".join(line + "\n" for line in [*kept, *([BEGIN, *lines, END] if lines else [])])


def block(text: str) -> list[str]:
    """The lines of our block in `text`."""
    ours = False
    found: list[str] = []
    for line in text.splitlines():
        if line in (BEGIN, END):
            ours = line == BEGIN
        elif ours:
            found.append(line)
    return found
