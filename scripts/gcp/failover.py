#!/usr/bin/env python3
"""Brings the controller's machine back in the other zone, on its own disks, when it does not come back by itself.

Runs as root on the machine `CLUSTER-watch` (hpc-failover.service), of which it is the startup-script. In each pass it
asks two ports of the controller and Compute Engine in both zones, decides by RULES, and acts: the old instance is
deleted, and one of the same name, address and disks is created. The regional disks are attached by force, which takes
them from an instance that could not be deleted. What it has begun is in a file before it acts, and is continued after a
kill.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from google_apis import FLAVOR, METADATA, TOKEN, BootError, answer, metadata

PORTS = (6817, 2049)
"""slurmctld and NFS. Not SSH: sshd refuses a source whose connections end without a login (PerSourcePenalties of
sshd_config(5)), and a rehearsal's `up` comes from the same address."""
PROBE_SECONDS = 2.0
PROGRAM, STATE = Path("/usr/local/lib/hpc/failover"), Path("/var/lib/hpc/failover.json")
UNIT = Path("/etc/systemd/system/hpc-failover.service")
UNIT_TEXT = """\
[Unit]
Description=Bring the controller back in the other zone
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/bin/python3 /usr/local/lib/hpc/failover
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""
GOOGLE = "https://compute.googleapis.com"
ENDED = ("TERMINATED", "STOPPED", "SUSPENDED")
STOPS = ("stop", "suspend", "compute.instances.guestTerminate")
"""Types of operations by which somebody stops an instance."""
KEPT = 20
"""Lines of the journal."""


@dataclass(frozen=True)
class Pace:
    """Seconds, and passes."""

    poll: float = 5
    misses: int = 6
    """Passes in a row without an answer of the controller, at least."""
    silence: float = 60
    hang: float = 600
    """Silence of an instance that Google has as running, starting or stopping, or of whose zone there is no answer.
    Longer than a reboot takes."""
    boot: float = 300
    """After a start of the instance, by whomever."""
    rest: float = 3600
    """Between two moves."""
    wait: float = 180
    """For the old instance's deletion. Then the disks are taken from it."""
    retry: float = 30


@dataclass(frozen=True)
class Seen:
    """The observation of a pass."""

    answered: bool
    """True if one of the ports did, if only by refusing a connection."""
    where: tuple[str, ...] = ()
    """Zones with an instance of the controller's name."""
    unknown: tuple[str, ...] = ()
    """Zones in which Compute Engine did not answer."""
    reached: bool = True
    """True if it answered in any zone."""
    id: str = ""
    status: str = ""
    ours: bool = True
    """True if the instance has the cluster's label."""
    started: float = 0.0
    stopped_by: str = ""
    """The account that had it stopped, if its last stop was a request."""


@dataclass
class Memory:
    """The state that lasts from one pass to the next, in STATE."""

    known: str = ""
    """The instance that answered last: one that never did is just being made, or does not boot anywhere."""
    zone: str = ""
    """Its zone."""
    looked: float = 0.0
    misses: int = 0
    silent_since: float = 0.0
    moved: float = 0.0
    move: dict[str, Any] | None = None
    """A move that has begun: id and zone of the old instance, zone of the new one, and the requests' ids."""
    said: str = ""
    journal: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """The facts that a decision depends on."""

    seen: Seen
    memory: Memory
    pace: Pace
    mode: str
    now: float

    @property
    def silent(self) -> float:
        return self.now - self.memory.silent_since if self.memory.silent_since else 0.0


Rule = tuple[Callable[[Case], bool], str, str]
NOTHING, WAIT, REPORT, FINISH, MOVE = "nothing", "wait", "report", "finish", "move"
RULES: tuple[Rule, ...] = (
    (lambda c: c.memory.move is not None, FINISH, "a move has begun"),
    (lambda c: c.seen.answered, NOTHING, "the controller answers"),
    (lambda c: not c.seen.reached, WAIT, "Compute Engine does not answer here either"),
    (lambda c: len(c.seen.where) > 1, REPORT, "there are controllers in both zones: delete the one that has no disks"),
    (lambda c: not c.seen.ours, REPORT, "the instance lacks the cluster's label: it is another's"),
    (lambda c: not c.seen.where and not c.seen.unknown, NOTHING, "the controller was deleted: `up` creates it"),
    (
        lambda c: c.seen.id != c.memory.known if c.seen.where else c.memory.zone not in c.seen.unknown,
        WAIT,
        "this instance has not answered yet: it is being set up, or does not boot",
    ),
    (
        lambda c: c.memory.misses < c.pace.misses or c.silent < c.pace.silence,
        WAIT,
        "the controller does not answer, not for long yet",
    ),
    (lambda c: c.now - c.seen.started < c.pace.boot, WAIT, "it was started just now"),
    (
        lambda c: c.seen.status not in ENDED and c.silent < c.pace.hang,
        WAIT,
        "the controller does not answer, but is not stopped",
    ),
    (lambda c: bool(c.seen.stopped_by), NOTHING, "somebody had it stopped: start it, or delete it and run `up`"),
    (lambda c: c.now - c.memory.moved < c.pace.rest, REPORT, "the controller is gone again so soon after a move"),
    (lambda c: c.mode != "act", REPORT, "the controller is gone, and failover_mode is advise: it is not moved"),
    (lambda _: True, MOVE, "the controller is gone"),
)
"""Condition, action and its reason: the first that holds decides."""


def decide(case: Case) -> tuple[str, str]:
    """Return the action and its reason. A pure function."""
    return next((action, why) for holds, action, why in RULES if holds(case))


def remember(memory: Memory, seen: Seen, now: float) -> None:
    """Bring the memory up to date with what a pass saw."""
    if not seen.answered:
        memory.misses += 1
        memory.silent_since = memory.silent_since or now
        return
    memory.misses, memory.silent_since = 0, 0.0
    if len(seen.where) == 1 and seen.status == "RUNNING":
        memory.known, memory.zone = seen.id, seen.where[0]


class Watch:
    """The controller of one cluster, as this machine sees it."""

    def __init__(self, settings: Callable[[], dict[str, Any]], state: Path = STATE) -> None:
        self._read, self._state = settings, state
        self.settings = settings()
        known = {one.name for one in fields(Memory)}
        with suppress(FileNotFoundError):
            kept = json.loads(state.read_text())
            self.memory = Memory(**{name: value for name, value in kept.items() if name in known})
            return
        self.memory = Memory()

    @property
    def pace(self) -> Pace:
        return Pace(**self.settings.get("pace", {}))

    def run(self) -> None:
        """Make passes for ever; none while the stack has no controller to watch."""
        while True:
            try:
                if found := self._read():
                    self.settings = found
                    self.once(time.time())
            except (OSError, ValueError, LookupError, BootError) as error:
                self.say(f"{error}; it is tried again")
            time.sleep(self.pace.poll)

    def once(self, now: float) -> str:
        """Make a pass; returns its action."""
        before = asdict(self.memory)
        seen = self.look(answered=self.answers())
        remember(self.memory, seen, now)
        passing = {"misses": 0, "looked": now}
        self.memory.looked = now
        if asdict(self.memory) | passing != before | passing:
            self.save()
        action, why = decide(Case(seen, self.memory, self.pace, self.settings["mode"], now))
        self.say(f"{action}: {why}")
        if action == MOVE:
            self.begin(seen)
        if action in (MOVE, FINISH):
            self.finish(now)
        return action

    # -- looking -----------------------------------------------------------------------------------------------------

    def answers(self) -> bool:
        """Return whether any port of the controller answers: a refused connection is an answer too."""

        def answers(port: int) -> bool:
            try:
                socket.create_connection((self.settings["address"], port), timeout=PROBE_SECONDS).close()
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            return True

        with ThreadPoolExecutor(len(PORTS)) as pool:
            return any(list(pool.map(answers, PORTS)))

    def look(self, *, answered: bool) -> Seen:
        """Return what Compute Engine has of the controller, in both zones."""
        found: dict[str, dict[str, Any]] = {}
        unknown = []
        for zone in self.settings["zones"]:
            try:
                status, row = self.ask("GET", f"{zone}/instances/{self.settings['name']}")
            except OSError:
                status, row = 0, {}
            if status == 200:
                found[zone] = row
            elif status != 404:
                unknown.append(zone)
        reached = len(unknown) < len(self.settings["zones"])
        if len(found) != 1:
            return Seen(answered, tuple(found), tuple(unknown), reached)
        ((zone, row),) = found.items()
        return Seen(
            answered=answered,
            where=(zone,),
            unknown=tuple(unknown),
            id=row["id"],
            status=row["status"],
            ours=row.get("labels", {}).get("hpc-cluster") == self.settings["cluster"],
            started=epoch(row.get("lastStartTimestamp") or row.get("creationTimestamp", "")),
            stopped_by="" if answered or row["status"] not in ENDED else self.stopped_by(zone, row["id"]),
        )

    def stopped_by(self, zone: str, instance: str) -> str:
        """Return who asked for the instance's last stop, also from inside; empty if nobody did. Operations of Google's
        own, such as compute.instances.hostError, have names with dots."""
        query = urllib.parse.urlencode({"filter": f"targetId={instance}"})
        status, row = self.ask("GET", f"{zone}/operations?{query}")
        if status != 200:
            raise OSError(f"operations in {zone} can't be listed: {problem(status, row)}")
        ends = [
            one
            for one in row.get("items", ())
            if one["operationType"] in STOPS or one["operationType"].startswith("compute.instances.")
        ]
        last = max(ends, key=lambda one: epoch(one.get("insertTime", "")), default=None)
        return last.get("user", "somebody") if last and last["operationType"] in STOPS else ""

    # -- acting ------------------------------------------------------------------------------------------------------

    def begin(self, seen: Seen) -> None:
        """Note the move before anything is done."""
        old = seen.where[0] if seen.where else self.memory.zone
        new = self.other(old)
        ids = {"delete": str(uuid.uuid4()), "insert": str(uuid.uuid4())}
        self.memory.move = {"id": seen.id or self.memory.known, "from": old, "to": new, "next": 0.0, **ids}
        self.note(f"the controller is moved from {old} to {new}")

    def finish(self, now: float) -> None:
        """Delete the old instance, and create the new one."""
        move = self.memory.move
        if move is None or now < move["next"]:
            return
        name = self.settings["name"]
        gone = self.delete(move)
        status, row = self.ask("GET", f"{move['to']}/instances/{name}")
        if status == 404:
            body = json.loads(json.dumps(self.settings["body"]).replace("{zone}", move["to"]))
            wrong = self.operate("POST", move["to"], f"instances?requestId={move['insert']}", body)
            if wrong:
                self.note(f"it could not be created in {move['to']}: {wrong}")
                # The old zone may have room again; but only one that has no old instance any more.
                again = move["from"] if gone and move["to"] != move["from"] else self.other(move["from"])
                move |= {"to": again, "insert": str(uuid.uuid4()), "next": time.time() + self.pace.retry}
                self.save()
                return
            status, row = self.ask("GET", f"{move['to']}/instances/{name}")
        if status != 200:
            raise OSError(f"{name} in {move['to']}: {problem(status, row)}")
        self.memory.move, self.memory.moved = None, now
        self.note(f"the controller is in {move['to']}")

    def other(self, zone: str) -> str:
        return next(other for other in self.settings["zones"] if other != zone)

    def delete(self, move: dict[str, Any]) -> bool:
        """Delete the old instance, unless it is another by now. Returns whether it is gone; one in a zone that does
        not answer may stay, without its disks."""
        path = f"{move['from']}/instances/{self.settings['name']}"
        try:
            status, row = self.ask("GET", path)
            if status == 404 or (status == 200 and row["id"] != move["id"]):
                return True
            query = f"instances/{self.settings['name']}?requestId={move['delete']}"
            wrong = self.operate("DELETE", move["from"], query)
        except OSError as error:
            wrong = str(error)
        if wrong:
            self.note(f"the old one in {move['from']} is not deleted: {wrong}")
        return not wrong

    def operate(self, method: str, zone: str, path: str, body: dict[str, Any] | None = None) -> str:
        """Have an operation done; returns what is wrong with it, or nothing."""
        status, row = self.ask(method, f"{zone}/{path}", body)
        ends = time.monotonic() + self.pace.wait
        while status == 200 and row.get("status") != "DONE":
            if time.monotonic() > ends:
                return f"operation {row.get('name')} is not done in {self.pace.wait:g} s"
            time.sleep(min(self.pace.poll, 2.0))
            status, row = self.ask("GET", f"{zone}/operations/{row['name']}")
        return problem(status, row) if status != 200 or row.get("error") else ""

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Make a request; returns status and answer. Raises OSError where there is none."""
        settings = self.settings
        token = settings.get("token") or json.loads(metadata(TOKEN))["access_token"]
        url = f"{settings.get('endpoint') or GOOGLE}/compute/v1/projects/{settings['project']}/zones/{path}"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        status, _, text = answer(url, headers, method=method, data=data)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, {}

    # -- reporting -----------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Keep a line of the journal, with all that was begun."""
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        self.memory.journal = [*self.memory.journal, f"{stamp} {text}"][-KEPT:]
        self.save()
        print(text, flush=True)
        self.publish()

    def say(self, text: str) -> None:
        """Print what differs from the pass before."""
        if text != self.memory.said:
            self.memory.said = text
            print(text, flush=True)
            self.publish()

    def publish(self) -> None:
        """Put it where it can be read from outside."""
        if "token" not in self.settings:
            text = "\n".join([self.memory.said, *self.memory.journal[:-6:-1]])[:1000].encode()
            with suppress(OSError):
                url = METADATA + "guest-attributes/hpc/failover"
                answer(url, FLAVOR, seconds=2, method="PUT", data=text)

    def status(self) -> dict[str, Any]:
        """Return what the controller shows in its own status."""
        memory, mode = self.memory, self.settings["mode"]
        armed = mode == "act" and bool(memory.known)
        return {
            "time": memory.looked, "mode": mode, "armed": armed, "said": memory.said, "moved": memory.moved,
            "journal": memory.journal[:-6:-1],
        }  # fmt: skip

    def serve(self) -> None:
        """Answer the controller, and nobody else, with the status. Nothing depends on it."""
        watch = self

        class Handler(BaseHTTPRequestHandler):
            timeout = PROBE_SECONDS

            def do_GET(self) -> None:
                if self.client_address[0] != watch.settings["address"]:
                    self.send_error(403)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(watch.status()).encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
                del format, args

        try:
            server = HTTPServer(("", int(self.settings["port"])), Handler)
        except OSError as error:
            self.say(f"its status can't be read from the controller: {error}")
            return
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def save(self) -> None:
        self._state.parent.mkdir(parents=True, exist_ok=True)
        part = self._state.with_suffix(".part")
        with part.open("w") as file:
            json.dump(asdict(self.memory), file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._state)


def problem(status: int, row: Mapping[str, Any]) -> str:
    """Return what an answer or an operation says is wrong, on one line."""
    error = row.get("error") or {}
    rows = error.get("errors") or [error]
    words = "; ".join(f"{one.get('code', one.get('reason', ''))} {one.get('message', '')}".strip() for one in rows)
    return words or f"Compute Engine answers {status}"


def epoch(text: str) -> float:
    """Seconds of a time as Compute Engine writes it; 0 for none."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0.0


def from_metadata() -> dict[str, Any]:
    """Return the settings from the metadata server; a new version of this program replaces it, and it starts again."""
    try:
        own, settings = metadata("attributes/startup-script"), json.loads(metadata("attributes/hpc-watch"))
    except KeyError as error:
        raise BootError(f"the machine's metadata lacks {error}: it was not made by the stack") from None
    if not PROGRAM.exists() or PROGRAM.read_text() != own:
        install(own)
    return settings


def install(own: str) -> None:
    """Have this program run as a service; ends this process."""
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((PROGRAM, own), (UNIT, UNIT_TEXT)):
        part = path.with_suffix(".part")
        part.write_text(text)
        part.replace(path)
    for command in ("daemon-reload", "enable hpc-failover", "--no-block restart hpc-failover"):
        subprocess.run(["systemctl", *command.split()], check=True)
    sys.exit(0)


def main() -> None:
    if Path(sys.argv[0]) != PROGRAM:
        install(metadata("attributes/startup-script"))
    watch = Watch(from_metadata)
    watch.serve()
    watch.run()


if __name__ == "__main__":
    main()
