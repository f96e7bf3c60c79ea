"""What scontrol prints, as rows."""

from __future__ import annotations


def rows(text: str) -> list[dict[str, str]]:
    """Lines of `scontrol --oneliner show node` or `partition`, NAME=VALUE words; a Reason is whole. A pure function.

    Not of `show job`: there a Reason stands in the middle, after the job's name.
    """
    found: list[dict[str, str]] = []
    for line in text.split("\n"):
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
