"""Environment variables that programs need to work with a stack's cloud: what a platform's `environment` module gives.

Such a module has `VARIABLES`, the names of all that it may set, `environment(config) -> Environment`, and
`project(config) -> str`, the id of the cloud's project that the stack is in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Variables, by name."""

    variables: Mapping[str, str] = field(default_factory=dict)
    secret: frozenset[str] = frozenset()
    """Names of those whose value is a secret."""
    notes: Sequence[str] = ()
    """Lines for the person who runs the command: where a value comes from, what is missing."""
