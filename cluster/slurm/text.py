"""Text of Slurm's configuration files: groups of settings, each under the reason for it."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.catalog.slurm_releases import Table
from cluster.config.cluster import ClusterConfig
from cluster.config.section import Value

FIELD: Value = None
"""Placeholder in a group for a parameter whose value comes from a field of the configuration."""
_WIDTH = 116
PLAIN = re.compile(r"[ !$-~]*")
"""A value: no line end of whatever kind, no tab, no quote, and no # that would begin a comment."""


def word(value: str | int | bool) -> str:  # noqa: FBT001 - a value of a file, not a switch of ours
    """Write one value as Slurm reads it. Raises ValueError for one that would be more than a value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if not PLAIN.fullmatch(text):
        raise ValueError(f"a value of Slurm's files must be printable ASCII on one line, not {text!r}")
    return f'"{text}"' if " " in text else text


@dataclass(frozen=True, kw_only=True)
class Group:
    """Settings that belong together."""

    title: str
    why: str = ""
    settings: Mapping[str, Value]
    """Parameter and value, in order; None leaves the parameter out."""


def assignments(settings: Mapping[str, Value]) -> list[str]:
    """`Name=value` for each setting that has a value."""
    return [f"{name}={word(value)}" for name, value in settings.items() if value is not None and value != ""]


def overridden(settings: Mapping[str, Value], by: Mapping[str, Value], table: Table) -> dict[str, Value]:
    """Settings with others laid over them, in the manual's spelling; new ones follow at the end."""
    return {**settings, **{table.canonical(name) or name: value for name, value in by.items()}}


def comment(text: str) -> list[str]:
    """Wrap a reason into comment lines."""
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]


def section(title: str, why: str, lines: Iterable[str]) -> str:
    """Return a section of a file: title, reason, lines. Without lines there is no section."""
    body = list(lines)
    return "\n".join([f"# --- {title}", *comment(why), *body]) + "\n" if body else ""


def groups(parts: Iterable[Group]) -> list[str]:
    return [section(part.title, part.why, assignments(part.settings)) for part in parts]


def header(config: ClusterConfig) -> str:
    """The comment at the beginning of every file."""
    return (
        f"Cluster {config.name}, for Slurm {config.slurm_version}. Written from the stack's configuration: change it "
        "there and run `up`; what is written here is lost then."
    )


def document(head: str, parts: Iterable[str]) -> str:
    """A whole file: its head, then its sections, an empty line between. Raises ValueError for lines that are none."""
    text = "\n".join(["\n".join(comment(head)) + "\n", *filter(None, parts)])
    # Checked again, whatever was accepted before: one more line could name a program that root starts.
    strange = next((line for line in text.split("\n") if not line.isascii() or not f"{line}x".isprintable()), None)
    if strange is not None:
        raise ValueError(f"a line of Slurm's files must be printable ASCII, not {strange!r}")
    return text
