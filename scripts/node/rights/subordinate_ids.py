"""Ranges of subordinate uids and gids (subuid(5)), without which nobody runs a container that has users of its own."""

from __future__ import annotations

from pathlib import Path

from interface import User
from system.host import log, run

FILES = {"u": Path("/etc/subuid"), "g": Path("/etc/subgid")}  # by the letter in usermod's options
FIRST, COUNT = 100_000, 65_536  # as in Debian's login.defs (SUB_UID_MIN, SUB_UID_COUNT)


def converge(users: list[User]) -> bool:
    """Have a range for users with `containers: true`, and none for those with false; True when anything changed.

    Others keep what useradd gave them. Users must exist.
    """
    changed = False
    for user in users:
        wanted = user.get("containers")
        if wanted is None:
            continue
        name = user["name"]
        for letter, file in FILES.items():
            ranges = _ranges(file)
            mine = [(first, count) for owner, first, count in ranges if owner in (name, str(user["uid"]))]
            if wanted and not mine:
                first = max([FIRST, *(first + count for _, first, count in ranges)])
                run("usermod", f"--add-sub{letter}ids", f"{first}-{first + COUNT - 1}", name)
                log(f"{name}: sub{letter}ids {first} to {first + COUNT - 1}")
                changed = True
            for first, count in [] if wanted else mine:
                run("usermod", f"--del-sub{letter}ids", f"{first}-{first + count - 1}", name)
                log(f"{name}: no sub{letter}ids any more")
                changed = True
    return changed


def names() -> set[str]:
    """Names, or uids as text, of those who have a range of uids."""
    return {owner for owner, _, _ in _ranges(FILES["u"])}


def _ranges(file: Path) -> list[tuple[str, int, int]]:
    """(owner, first, count) of each line."""
    try:
        rows = [line.split(":") for line in file.read_text().splitlines()]
    except FileNotFoundError:
        return []
    return [
        (row[0], int(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[1].isdigit() and row[2].isdigit()
    ]
