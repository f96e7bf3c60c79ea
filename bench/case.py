"""A case: a question about speed, and how it is answered."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.environment import Environment
from bench.result import Claim, Series

Answer = tuple[list[Series], list[Claim]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One question."""

    name: str
    title: str
    run: Callable[[Environment], Answer]
    """Measures; what it makes it removes, or leaves to the environment's end."""
