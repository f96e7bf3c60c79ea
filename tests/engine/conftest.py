"""A project in a temporary folder, with the objects of its resources beside it, and the engine to run it."""

import copy
import json
import multiprocessing
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from components.dynamic import pickler_restored
from engine import Workspace, events
from tests.waiting import wait_for

PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Bench:
    """One project with one stack, and the events of its last run."""

    root: Path
    passphrase: str = "correct horse"
    events: list = field(default_factory=list)

    def __post_init__(self):
        self.root.mkdir(parents=True, exist_ok=True)
        self.living.mkdir()
        (self.root / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
        (self.root / "living.py").write_text((PROGRAMS / "living.py").read_text())

    @property
    def living(self):
        return self.root.parent / f"{self.root.name}-living"

    def workspace(self):
        backend = f"file://{self.root.parent}/{self.root.name}-backend"
        return Workspace(self.root, backend=backend, passphrase=lambda: self.passphrase)

    def stack(self, name="dev"):
        return self.workspace().stack(name)

    def program(self, text):
        """Set the project's program."""
        (self.root / "__main__.py").write_text(text)

    def graph(self, *nodes):
        """Set a program that creates these resources, each given as (name, {refs, props, options}) or as a name."""
        rows = [{"name": n} if isinstance(n, str) else {"name": n[0], **n[1]} for n in nodes]
        (self.root / "graph.json").write_text(json.dumps(rows))
        self.program((PROGRAMS / "graph.py").read_text())

    def run(self, kind, **options):
        self.events.clear()
        # Each test has its own module of this name.
        sys.modules.pop("living", None)
        return getattr(self.stack(), kind)(self._take, **options)

    def _take(self, event):
        self.events.append(event)
        if isinstance(event, events.LogLine) and event.message.startswith("Stopping"):
            (self.root.parent / "stopping").touch()

    def up(self, *nodes, **options):
        if nodes:
            self.graph(*nodes)
        return self.run("up", **options)

    def preview(self, *nodes):
        if nodes:
            self.graph(*nodes)
        return self.run("preview")

    def objects(self):
        """Return the values of the existing objects by name."""
        return {file.name: file.read_text() for file in self.living.iterdir()}

    def take_log(self):
        """Return the lines that the provider logged since the last call, in order."""
        log = self.root.parent / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def take_steps(self):
        """Return the steps that the provider logged since the last call of `take_log` or of this."""
        return [line for line in self.take_log() if line.split()[0] in ("create", "update", "delete")]

    def flag(self, name, *, on=True):
        """Set or clear the flag fail-NAME or hold-NAME."""
        file = self.root.parent / name
        file.touch() if on else file.unlink(missing_ok=True)

    def resources(self):
        """Return the resources in the state file by name, without providers and the stack."""
        rows = self.stack().export_state()["deployment"].get("resources", [])
        skip = ("pulumi:providers:", "pulumi:pulumi:Stack")
        return {r["urn"].split("::")[-1]: r for r in rows if not r["type"].startswith(skip)}

    def add_pending(self, *operations):
        """Add pending operations to the state, as a killed run leaves them: (kind, name, changes of its row)."""
        file = self.stack().file
        document = json.loads(file.read_text())
        latest = document["checkpoint"]["latest"]
        rows = {row["urn"].split("::")[-1]: row for row in latest["resources"]}
        latest["pending_operations"] = []
        for kind, name, *changes in operations:
            row = copy.deepcopy(rows[name])
            for change in changes:
                change(row)
            latest["pending_operations"].append({"type": kind, "resource": row})
        file.write_text(json.dumps(document))

    def events_of(self, kind):
        """Return the events of a class in the last run."""
        return [event for event in self.events if isinstance(event, kind)]

    def planned(self):
        """Return the planned ops of the last run by name, without `same`."""
        return {
            e.name: e.op for e in self.events_of(events.Planned) if e.op != "same" and not e.type.endswith(":Stack")
        }

    def spawn(self, kind):
        """Start a run in a process of its own, to be killed or interrupted. It is forked, so the SDK is imported."""

        def work():
            result = self.run(kind)
            (self.root.parent / "summary").write_text(result.summary)
            os._exit(0 if result.ok else 1)

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        return process

    def wait_until_held(self):
        """Wait until a run in another process is in the middle of the creation that a flag holds; others go on."""
        wait_for(lambda: "held" in self.objects().values())

    def wait_until_stopping(self):
        """Wait until a run in another process has handled its first signal: a second one before would be the same."""
        wait_for((self.root.parent / "stopping").exists)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    bench = Bench(tmp_path / "project")
    monkeypatch.setenv("LIVING", str(bench.living))
    with pickler_restored():  # hundreds of runs of programs may share this process
        yield bench
