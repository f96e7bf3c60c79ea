"""One JSON document for programs, the same whichever engine runs. Keys:

stack, kind, ok, seconds, counts {op: number}, steps [{urn, type, name, op, reason, changes [{path, kind, old, new,
replaces}], inputs (in a preview, of what is to be created)}], failures [{urn, op, message}], messages [{severity,
message, urn}], outputs (of `up`), effects (of `preview` and `up`, where it is known what the cluster runs with: {worst,
sentence, fields [{path, old, new, effect, reason, command}]}; effects in order of harm are nothing, reconfigure,
restart, drain, replace, refused), rehearsal (of `rehearse`: {of, file, differences [{file, line, name, production,
here, why, text}], stood_in [text]}), error (a text, where there is no result), errors [{id, where, given, allowed,
todo}] and unchecked [place] (of a stack file with errors, beside stack, kind, ok and error). Secrets are "[secret]",
what is not yet known is "[unknown]".
"""

from dataclasses import asdict
from typing import Any

from cli import console
from cli.display.view import View
from engine.events import Event, Log, Planned, Result, Started


class DocumentView(View):
    """Collects, and prints once."""

    def __init__(self) -> None:
        super().__init__()
        self._document: dict[str, Any] = {}
        self._messages: list[dict[str, Any]] = []

    def on_event(self, event: Event) -> None:
        """Keep what the document will hold."""
        with self.lock:
            if isinstance(event, Started):
                self._document |= {"stack": event.stack, "kind": event.kind}
            elif isinstance(event, Log) and not event.ephemeral and event.severity != "debug":
                self._messages.append({"severity": event.severity, "message": event.message, "urn": event.urn})

    def close(self, result: Result) -> None:
        """Print the document."""
        self._document |= {
            "kind": result.kind,
            "ok": result.ok,
            "seconds": round(result.seconds, 3),
            "counts": result.counts,
            "steps": [_step(plan) for plan in result.changes if plan.op != "same"],
            "failures": [asdict(failure) for failure in result.failures],
        }
        if result.kind == "up":
            self._document["outputs"] = result.outputs
        self._print()

    def failed(self, message: str) -> None:
        """Print the document with the error, which also goes to standard error."""
        self._document |= {"ok": False, "error": message}
        self._print()
        super().failed(message)

    def _print(self) -> None:
        document = self._document | {"messages": self._messages}
        if self.effects:
            document["effects"] = self.effects.document()
        document |= self.more
        console.json(document)


def _step(plan: Planned) -> dict[str, Any]:
    row = asdict(plan)
    inputs = {"inputs": row["inputs"]} if plan.inputs else {}
    return {key: row[key] for key in ("urn", "type", "name", "op", "reason", "changes")} | inputs
