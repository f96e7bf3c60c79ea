"""What changes while jobs of MLPerf are waited for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cli import console
from cli.cluster.jobs import JobState


@dataclass
class News:
    """Prints the state of jobs, and lines on what they do, each once."""

    names: Mapping[str, str]
    """Of the jobs, by their ids."""
    _shown: dict[str, str] = field(default_factory=dict)

    def states(self, states: Mapping[str, JobState]) -> None:
        """Print states that changed."""
        for number, one in states.items():
            why = f" ({one.reason})" if one.state == "PENDING" and one.reason not in ("", "None") else ""
            where = f" on {one.nodes}" if one.state == "RUNNING" and one.nodes else ""
            self._print(f"{number} state", number, f"{one.state.lower()}{why}{where}")

    def line(self, number: str, text: str) -> None:
        """Print a line on a job, unless it is the same as the one before."""
        if text:
            self._print(f"{number} line", number, text)

    def _print(self, key: str, number: str, text: str) -> None:
        if self._shown.get(key) != text:
            self._shown[key] = text
            console.note(f"{self.names[number]}: {text}")
