"""Numbers and names as people read them."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def ago(seconds: float) -> str:
    """A span of time, with one or two units: `40 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    whole = max(int(seconds), 0)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def size(count: float) -> str:
    """Bytes in the unit that fits: `612 MiB`, `7.5 GiB`, `1.2 TiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def cut(text: str, longest: int = 48) -> str:
    """The text, or its beginning where it is longer than a table's last column should be."""
    return text if len(text) <= longest else text[: longest - 3].rstrip() + "..."


def counted(number: int, thing: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
