"""What scontrol prints, as rows."""

from __future__ import annotations


def rows(text: str) -> list[dict[str, str]]:
    """Lines of `scontrol --oneliner`, NAME=VALUE words; values that hold blanks (Reason) are whole. A pure function."""
    found: list[dict[str, str]] = []
    for line in text.splitlines():
        row: dict[str, str] = {}
        name = ""
        for word in line.split(" "):
            key, equals, value = word.partition("=")
            # After Reason, which comes last but for a comment, nothing of what a person typed is a name.
            if equals and key.isidentifier() and name != "Reason":
                name, row[key] = key, value
            elif name:
                row[name] = f"{row[name]} {word}"
        if row:
            found.append({key: value.strip() for key, value in row.items()})
    return found
