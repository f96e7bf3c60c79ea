"""What the rehearsal's dynamic resources have in common.

Their providers are pickled into the state by reference, so they are classes of importable modules without state of
their own, and everything they need is in their plain inputs, down to the folder that the stack lives in.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi

PROVIDER_KEY = "__provider"  # the property that pulumi.dynamic adds


def say(message: str) -> None:
    """Progress, for whoever watches the run."""
    pulumi.log.info(message)


def given(props: Mapping[str, Any]) -> dict[str, Any]:
    """Properties without the pickled provider."""
    return {name: value for name, value in props.items() if name != PROVIDER_KEY}


def changed(olds: Mapping[str, Any], news: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Which of the inputs called `names` differ."""
    return [name for name in names if olds.get(name) != news.get(name)]
