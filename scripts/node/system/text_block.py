"""The set-up's lines in a file that others write to as well: a block between two marker lines."""

MARK = "hpc"  # a file may have a second block, under another mark


def _markers(mark: str) -> tuple[str, str]:
    return f"# {mark}: begin", f"# {mark}: end"


BEGIN, END = _markers(MARK)


def with_block(text: str, lines: list[str], *, mark: str = MARK) -> str:
    """Return `text` with its block replaced by `lines`, and all other lines kept. Without lines there is no block.

    Applying it twice equals applying it once. A block without an end marker reaches to the end of the file.
    """
    begin, end = _markers(mark)
    kept: list[str] = []
    in_block, at = False, None
    for line in _lines(text):
        if line == begin:
            in_block, at = True, len(kept) if at is None else at
        elif line == end:
            in_block = False
        elif not in_block:
            kept.append(line)
    # The block stays where it was. If two blocks each moved to the end, every run would exchange them.
    at = len(kept) if at is None else at
    return "".join(line + "\n" for line in [*kept[:at], *([begin, *lines, end] if lines else []), *kept[at:]])


def _lines(text: str) -> list[str]:
    """Return the lines. str.splitlines would split at characters that no reader of such files takes for a line end."""
    return text.removesuffix("\n").split("\n") if text else []


def lines_in_block(text: str) -> list[str]:
    """Return the lines of the block under MARK."""
    in_block = False
    lines: list[str] = []
    for line in _lines(text):
        if line in (BEGIN, END):
            in_block = line == BEGIN
        elif in_block:
            lines.append(line)
    return lines
