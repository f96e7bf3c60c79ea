"""A project in a temporary folder, its living objects beside it, and the engine to run it."""

import copy
import json
import multiprocessing
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine import Workspace, events
from tests.waiting import wait_for

PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Bench:
    """One project, one stack, and what was seen of its runs."""

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
        """What the program shall be from now on."""
        (self.root / "__main__.py").write_text(text)

    def graph(self, *nodes):
        """Have the program build this graph: (name, {refs, props, options}) or just a name."""
        rows = [{"name": n} if isinstance(n, str) else {"name": n[0], **n[1]} for n in nodes]
        (self.root / "graph.json").write_text(json.dumps(rows))
        self.program((PROGRAMS / "graph.py").read_text())

    def run(self, kind, **options):
        self.events.clear()
        # Each test has a module of this name, and they differ.
        sys.modules.pop("living", None)
        return getattr(self.stack(), kind)(self.events.append, **options)

    def up(self, *nodes, **options):
        if nodes:
            self.graph(*nodes)
        return self.run("up", **options)

    def preview(self, *nodes):
        if nodes:
            self.graph(*nodes)
        return self.run("preview")

    def alive(self):
        """The living objects and their values."""
        return {file.name: file.read_text() for file in self.living.iterdir()}

    def did(self):
        """What the provider was told to do since this was last asked, in order."""
        log = self.root.parent / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def steps(self):
        """The same, without the ends of steps."""
        return [line for line in self.did() if line.split()[0] in ("create", "update", "delete")]

    def flag(self, name, *, on=True):
        """Set or clear fail-NAME or hold-NAME."""
        file = self.root.parent / name
        file.touch() if on else file.unlink(missing_ok=True)

    def resources(self):
        """The resources in the state file, by name, without providers and the stack."""
        rows = self.stack().export_state()["deployment"].get("resources", [])
        skip = ("pulumi:providers:", "pulumi:pulumi:Stack")
        return {r["urn"].split("::")[-1]: r for r in rows if not r["type"].startswith(skip)}

    def note(self, *notes):
        """Put notes into the state, as a run that was killed leaves them: (kind, name, what is done to its row)."""
        file = self.stack().file
        document = json.loads(file.read_text())
        latest = document["checkpoint"]["latest"]
        rows = {row["urn"].split("::")[-1]: row for row in latest["resources"]}
        latest["pending_operations"] = []
        for kind, name, *change in notes:
            row = copy.deepcopy(rows[name])
            for edit in change:
                edit(row)
            latest["pending_operations"].append({"type": kind, "resource": row})
        file.write_text(json.dumps(document))

    def of(self, kind):
        """The events of a kind in the last run."""
        return [event for event in self.events if isinstance(event, kind)]

    def ops(self):
        """What was planned in the last run: name -> op; resources that stay as they are are left out."""
        return {e.name: e.op for e in self.of(events.Planned) if e.op != "same" and not e.type.endswith(":Stack")}

    def spawn(self, kind):
        """The same run in a process of its own, to be killed or interrupted. Forked: the SDK is imported already."""

        def work():
            result = self.run(kind)
            (self.root.parent / "summary").write_text(result.summary)
            os._exit(0 if result.ok else 1)

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        return process

    def wait_until_held(self):
        """Wait until a run in another process holds an object half-made."""
        wait_for(lambda: "half" in self.alive().values())


@pytest.fixture
def bench(tmp_path, monkeypatch):
    made = Bench(tmp_path / "project")
    monkeypatch.setenv("LIVING", str(made.living))
    return made
