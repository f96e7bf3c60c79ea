"""Lines of ours inside a file that others write to as well, between two marks."""

MARK = "hpc"  # a file may have a second block of ours, under another mark


def _ends(mark: str) -> tuple[str, str]:
    return f"# {mark}: begin", f"# {mark}: end"


BEGIN, END = _ends(MARK)


def with_block(text: str, lines: list[str], *, mark: str = MARK) -> str:
    """`text` with our marked block replaced by `lines`, everything else kept; no lines, no block.

    Applying it twice is applying it once. A block whose end mark was lost reaches to the end of the file.
    """
    begin, end = _ends(mark)
    kept: list[str] = []
    ours, at = False, None
    for line in _lines(text):
        if line == begin:
            ours, at = True, len(kept) if at is None else at
        elif line == end:
            ours = False
        elif not ours:
            kept.append(line)
    # Where it stood: two blocks that each went to the end would take turns for ever.
    at = len(kept) if at is None else at
    return "".join(line + "\n" for line in [*kept[:at], *([begin, *lines, end] if lines else []), *kept[at:]])


def _lines(text: str) -> list[str]:
    """The lines; str.splitlines takes characters for line ends that no reader of such files does."""
    return text.removesuffix("\n").split("\n") if text else []


def block(text: str) -> list[str]:
    """The lines of our block in `text`."""
    ours = False
    found: list[str] = []
    for line in _lines(text):
        if line in (BEGIN, END):
            ours = line == BEGIN
        elif ours:
            found.append(line)
    return found
