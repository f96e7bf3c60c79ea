"""The text of Slurm's configuration files: groups of settings, each with a comment that has the reason."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.catalog.slurm_releases import ParameterTable
from cluster.config.cluster import ClusterConfig
from cluster.config.section import Value

FIELD: Value = None
"""Placeholder in a group for a parameter whose value comes from a field of the configuration."""
_WIDTH = 116
PLAIN = re.compile(r"[ !$-~]*")
"""A value: without any line end, tab, quote, or # that would begin a comment."""


def word(value: str | int | bool) -> str:  # noqa: FBT001 - a value of a file, not an option
    """Return a value as Slurm reads it. Raises ValueError for one that Slurm would read as more than a value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if not PLAIN.fullmatch(text):
        raise ValueError(f"a value of Slurm's files must be printable ASCII on one line, not {text!r}")
    return f'"{text}"' if " " in text else text


@dataclass(frozen=True, kw_only=True)
class SettingGroup:
    """Settings under one title and reason."""

    title: str
    why: str = ""
    settings: Mapping[str, Value]
    """Parameter and value, in order; None leaves the parameter out."""


def assignments(settings: Mapping[str, Value]) -> list[str]:
    """Return `Name=value` for each setting that has a value."""
    return [f"{name}={word(value)}" for name, value in settings.items() if value is not None and value != ""]


def overridden(settings: Mapping[str, Value], by: Mapping[str, Value], table: ParameterTable) -> dict[str, Value]:
    """Return settings with some replaced by others, which have the manual's spelling; new ones follow at the end."""
    return {**settings, **{table.canonical(name) or name: value for name, value in by.items()}}


def comment(text: str) -> list[str]:
    """Return a text as comment lines."""
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]


def section(title: str, why: str, lines: Iterable[str]) -> str:
    """Return a section of a file: title, reason and lines; empty without lines."""
    body = list(lines)
    return "\n".join([f"# --- {title}", *comment(why), *body]) + "\n" if body else ""


def groups(parts: Iterable[SettingGroup]) -> list[str]:
    return [section(part.title, part.why, assignments(part.settings)) for part in parts]


def header(config: ClusterConfig) -> str:
    """Return the comment at the beginning of every file."""
    return (
        f"Cluster {config.name}, for Slurm {config.slurm_version}. Written from the stack's configuration: change it "
        "there and run `up`; what is written here is lost then."
    )


def document(head: str, parts: Iterable[str]) -> str:
    """Return a whole file: its head and its sections, with empty lines between. Raises ValueError for lines with other
    characters than printable ASCII."""
    text = "\n".join(["\n".join(comment(head)) + "\n", *filter(None, parts)])
    # Checked again although values were validated: an additional line could name a program that root starts.
    for line in text.split("\n"):
        if not line.isascii() or not f"{line}x".isprintable():
            raise ValueError(f"a line of Slurm's files must be printable ASCII, not {line!r}")
    return text
