"""A cluster in memory in place of kubectl: what waits and the teardown read and do there."""

from collections.abc import Callable, Sequence
from typing import Any

from components.nebius.kubectl import KubectlError, Pod

Rows = list[dict[str, Any]]


class Cluster:
    """Objects by kind; what is missing there is not there."""

    namespace = "slurm"

    def __init__(self) -> None:
        self.objects: dict[str, Rows] = {}
        self.event_lines: list[str] = []
        """Events of all objects."""
        self.logs: dict[str, str] = {}
        self.answers: dict[str, Callable[[Sequence[str]], str]] = {}
        """What kubectl's own commands answer, by their first word."""
        self.programs: dict[str, Callable[[str, Sequence[str]], str]] = {}
        """What programs in pods answer, by their name: they get the pod and the words."""
        self.ran: list[tuple[str, ...]] = []

    def run(self, *arguments: str, **_options: Any) -> str:
        """A command of kubectl."""
        self.ran.append(arguments)
        if arguments[0] == "logs":
            if arguments[1] not in self.logs:
                raise KubectlError(f"`kubectl logs {arguments[1]}` failed: (NotFound)")
            return self.logs[arguments[1]]
        return self.answers[arguments[0]](arguments[1:]) if arguments[0] in self.answers else ""

    def items(self, kind: str, *_arguments: str) -> Rows:
        """All of a kind."""
        return self.objects.get(kind.partition(".")[0], [])

    def object(self, kind: str, name: str, *_arguments: str) -> dict[str, Any] | None:
        """One of a kind."""
        return next((row for row in self.items(kind) if row["metadata"]["name"] == name), None)

    def events(self, _kind: str, _name: str, *_arguments: str) -> list[str]:
        """The last events."""
        return self.event_lines

    def execute(self, pod: Pod, *command: str, **_options: Any) -> str:
        """A program in a pod."""
        self.ran.append((pod.name, *command))
        return self.programs[command[0]](pod.name, command)


def row(name: str, **fields: Any) -> dict[str, Any]:
    """An object."""
    return {"metadata": {"name": name, **fields.pop("metadata", {})}, "spec": {}, "status": {}, **fields}
