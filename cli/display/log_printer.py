"""Prints lines of several logs in the order of their times."""

from collections.abc import Callable, Mapping

from cli import console
from cluster.observe.logs import Clock


class Printer:
    """Prints lines behind their machine's name where there are several machines."""

    def __init__(self, names: list[str], *, shown: Callable[[str], str] = str) -> None:
        self._shown = shown
        self._clocks = {name: Clock(name) for name in names}
        width = max(map(len, names))
        self._prefix = {name: f"{name:<{width}} | " if len(names) > 1 else "" for name in names}

    def lines(self, came: Mapping[str, list[str]]) -> None:
        """Print these lines in the order of their times."""
        lines = sorted(self._clocks[name].line(text) for name, texts in came.items() for text in texts)
        console.lines(f"{self._prefix[line.machine]}{self._shown(line.text)}" for line in lines)

    def notes(self, came: Mapping[str, list[str]]) -> None:
        """Say these beside them."""
        for name, texts in came.items():
            for text in texts:
                console.note(f"{name}: {text}")
