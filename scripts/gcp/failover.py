#!/usr/bin/env python3
"""Creates the controller's instance in the other zone, on its own disks, when it does not come back by itself.

Runs as root on the machine `CLUSTER-watch` (hpc-failover.service), as its startup-script. In each pass it connects to
two ports of the controller, reads the instance from Compute Engine in both zones, and decides by RULES. For a move it
deletes the old instance, and creates one with the same name, address and disks. The regional disks are attached by
force, which takes them from an instance that could not be deleted. A move is written to a file before it begins, and is
continued after a kill.
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
"""Ports of slurmctld and NFS. Not SSH: sshd refuses a source whose connections end without a login (PerSourcePenalties
of sshd_config(5)), and a rehearsal's `up` connects from the same address."""
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
"""Types of operations by which a user stops an instance."""
KEPT = 20
"""Lines of the journal."""


@dataclass(frozen=True)
class Pace:
    """Time limits in seconds, but `misses`."""

    poll: float = 5
    """Between two passes."""
    misses: int = 6
    """Least number of passes in a row without an answer of the controller."""
    silence: float = 60
    """Least time without an answer."""
    hang: float = 600
    """Least time without an answer of an instance that has not ended for Google, or whose zone does not answer.
    Longer than a reboot takes."""
    boot: float = 300
    """After any start of the instance."""
    rest: float = 3600
    """Between two moves."""
    wait: float = 180
    """For the deletion of the old instance. After it the disks are attached by force."""
    retry: float = 30
    """Between two attempts to create the instance."""


@dataclass(frozen=True)
class Observation:
    """The result of the requests of one pass."""

    answered: bool
    """True if one of the controller's ports answered, even by refusing a connection."""
    zones: tuple[str, ...] = ()
    """Zones with an instance of the controller's name."""
    unknown: tuple[str, ...] = ()
    """Zones in which Compute Engine did not answer."""
    reached: bool = True
    """True if Compute Engine answered in any zone."""
    id: str = ""
    status: str = ""
    is_own: bool = True
    """True if the instance has the cluster's label."""
    started: float = 0.0
    stopped_by: str = ""
    """The account that requested the instance's last stop; empty if that was no request."""


@dataclass
class Memory:
    """The state that is kept from one pass to the next, in STATE."""

    known: str = ""
    """Id of the instance that answered last. One that never answered is being set up, or does not boot in any zone."""
    zone: str = ""
    """Zone of that instance."""
    looked: float = 0.0
    misses: int = 0
    silent_since: float = 0.0
    moved: float = 0.0
    move: dict[str, Any] | None = None
    """The move in progress: id and zone of the old instance, zone of the new one, and the ids of requests."""
    said: str = ""
    journal: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """The inputs of a decision."""

    observed: Observation
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
    (lambda c: c.observed.answered, NOTHING, "the controller answers"),
    (lambda c: not c.observed.reached, WAIT, "Compute Engine does not answer here either"),
    (
        lambda c: len(c.observed.zones) > 1,
        REPORT,
        "there are controllers in both zones: delete the one that has no disks",
    ),
    (lambda c: not c.observed.is_own, REPORT, "the instance lacks the cluster's label: it is another's"),
    (lambda c: not c.observed.zones and not c.observed.unknown, NOTHING, "the controller was deleted: `up` creates it"),
    (
        lambda c: c.observed.id != c.memory.known if c.observed.zones else c.memory.zone not in c.observed.unknown,
        WAIT,
        "this instance has not answered yet: it is being set up, or does not boot",
    ),
    (
        lambda c: c.memory.misses < c.pace.misses or c.silent < c.pace.silence,
        WAIT,
        "the controller does not answer, not for long yet",
    ),
    (lambda c: c.now - c.observed.started < c.pace.boot, WAIT, "it was started just now"),
    (
        lambda c: c.observed.status not in ENDED and c.silent < c.pace.hang,
        WAIT,
        "the controller does not answer, but is not stopped",
    ),
    (lambda c: bool(c.observed.stopped_by), NOTHING, "somebody had it stopped: start it, or delete it and run `up`"),
    (lambda c: c.now - c.memory.moved < c.pace.rest, REPORT, "the controller is gone again so soon after a move"),
    (lambda c: c.mode != "act", REPORT, "the controller is gone, and failover_mode is advise: it is not moved"),
    (lambda _: True, MOVE, "the controller is gone"),
)
"""Condition, action and reason. The first row whose condition holds decides."""


def decide(case: Case) -> tuple[str, str]:
    """Return the action and its reason. A pure function."""
    return next((action, why) for holds, action, why in RULES if holds(case))


def remember(memory: Memory, observed: Observation, now: float) -> None:
    """Update the memory with an observation."""
    if not observed.answered:
        memory.misses += 1
        memory.silent_since = memory.silent_since or now
        return
    memory.misses, memory.silent_since = 0, 0.0
    if len(observed.zones) == 1 and observed.status == "RUNNING":
        memory.known, memory.zone = observed.id, observed.zones[0]


class Watch:
    """The watch of one cluster's controller."""

    def __init__(self, read_settings: Callable[[], dict[str, Any]], state: Path = STATE) -> None:
        self._read_settings, self._state = read_settings, state
        self.settings, self.memory = read_settings(), Memory()
        names = {field.name for field in fields(Memory)}
        with suppress(FileNotFoundError):
            stored = json.loads(state.read_text())
            self.memory = Memory(**{name: value for name, value in stored.items() if name in names})

    @property
    def pace(self) -> Pace:
        return Pace(**self.settings.get("pace", {}))

    def run(self) -> None:
        """Make passes forever; none while the stack has no controller to watch."""
        while True:
            try:
                if settings := self._read_settings():
                    self.settings = settings
                    self.run_pass(time.time())
            except (OSError, ValueError, LookupError, BootError) as error:
                self.print_change(f"{error}; it is tried again")
            time.sleep(self.pace.poll)

    def run_pass(self, now: float) -> str:
        """Make a pass, and return its action."""
        before = asdict(self.memory)
        observed = self.observe(answered=self.answers())
        remember(self.memory, observed, now)
        ignored = {"misses": 0, "looked": now}  # they change in each pass
        self.memory.looked = now
        if asdict(self.memory) | ignored != before | ignored:
            self.save()
        action, why = decide(Case(observed, self.memory, self.pace, self.settings["mode"], now))
        self.print_change(f"{action}: {why}")
        if action == MOVE:
            self.begin_move(observed)
        if action in (MOVE, FINISH):
            self.finish_move(now)
        return action

    # -- observations ------------------------------------------------------------------------------------------------

    def answers(self) -> bool:
        """Return whether any port of the controller answers. A refused connection is an answer too."""

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

    def observe(self, *, answered: bool) -> Observation:
        """Read the controller's instance from Compute Engine in both zones."""
        instances: dict[str, dict[str, Any]] = {}
        unknown = []
        for zone in self.settings["zones"]:
            try:
                status, row = self.ask("GET", f"{zone}/instances/{self.settings['name']}")
            except OSError:
                status, row = 0, {}
            if status == 200:
                instances[zone] = row
            elif status != 404:
                unknown.append(zone)
        reached = len(unknown) < len(self.settings["zones"])
        if len(instances) != 1:
            return Observation(answered, tuple(instances), tuple(unknown), reached)
        ((zone, row),) = instances.items()
        return Observation(
            answered=answered,
            zones=(zone,),
            unknown=tuple(unknown),
            id=row["id"],
            status=row["status"],
            is_own=row.get("labels", {}).get("hpc-cluster") == self.settings["cluster"],
            started=epoch(row.get("lastStartTimestamp") or row.get("creationTimestamp", "")),
            stopped_by="" if answered or row["status"] not in ENDED else self.stopped_by(zone, row["id"]),
        )

    def stopped_by(self, zone: str, instance: str) -> str:
        """Return the account that requested the instance's last stop, also from inside; empty if none did. Names of
        Google's own operations, such as compute.instances.hostError, have dots."""
        query = urllib.parse.urlencode({"filter": f"targetId={instance}"})
        status, row = self.ask("GET", f"{zone}/operations?{query}")
        if status != 200:
            raise OSError(f"operations in {zone} can't be listed: {problem(status, row)}")
        stops = [
            operation
            for operation in row.get("items", ())
            if operation["operationType"] in STOPS or operation["operationType"].startswith("compute.instances.")
        ]
        last = max(stops, key=lambda operation: epoch(operation.get("insertTime", "")), default=None)
        return last.get("user", "somebody") if last and last["operationType"] in STOPS else ""

    # -- moves -------------------------------------------------------------------------------------------------------

    def begin_move(self, observed: Observation) -> None:
        """Write the move to the state file, before any request."""
        old = observed.zones[0] if observed.zones else self.memory.zone
        new = self.other_zone(old)
        ids = {"delete": str(uuid.uuid4()), "insert": str(uuid.uuid4())}
        self.memory.move = {"id": observed.id or self.memory.known, "from": old, "to": new, "next": 0.0, **ids}
        self.note(f"the controller is moved from {old} to {new}")

    def finish_move(self, now: float) -> None:
        """Delete the old instance, and create the new one."""
        move = self.memory.move
        if move is None or now < move["next"]:
            return
        name = self.settings["name"]
        deleted = self.delete_old(move)
        status, row = self.ask("GET", f"{move['to']}/instances/{name}")
        if status == 404:
            body = json.loads(json.dumps(self.settings["body"]).replace("{zone}", move["to"]))
            error = self.operate("POST", move["to"], f"instances?requestId={move['insert']}", body)
            if error:
                self.note(f"it could not be created in {move['to']}: {error}")
                # The old zone may have capacity again. It is tried only if the old instance is deleted.
                zone = move["from"] if deleted and move["to"] != move["from"] else self.other_zone(move["from"])
                move |= {"to": zone, "insert": str(uuid.uuid4()), "next": time.time() + self.pace.retry}
                self.save()
                return
            status, row = self.ask("GET", f"{move['to']}/instances/{name}")
        if status != 200:
            raise OSError(f"{name} in {move['to']}: {problem(status, row)}")
        self.memory.move, self.memory.moved = None, now
        self.note(f"the controller is in {move['to']}")

    def other_zone(self, zone: str) -> str:
        return next(other for other in self.settings["zones"] if other != zone)

    def delete_old(self, move: dict[str, Any]) -> bool:
        """Delete the old instance, unless the instance of that name is another one now. Returns whether it is deleted.
        An instance in a zone that does not answer may stay, without its disks."""
        path = f"{move['from']}/instances/{self.settings['name']}"
        try:
            status, row = self.ask("GET", path)
            if status == 404 or (status == 200 and row["id"] != move["id"]):
                return True
            query = f"instances/{self.settings['name']}?requestId={move['delete']}"
            reason = self.operate("DELETE", move["from"], query)
        except OSError as error:
            reason = str(error)
        if reason:
            self.note(f"the old one in {move['from']} is not deleted: {reason}")
        return not reason

    def operate(self, method: str, zone: str, path: str, body: dict[str, Any] | None = None) -> str:
        """Begin an operation, wait until it is done, and return its error; empty for none."""
        status, row = self.ask(method, f"{zone}/{path}", body)
        deadline = time.monotonic() + self.pace.wait
        while status == 200 and row.get("status") != "DONE":
            if time.monotonic() > deadline:
                return f"operation {row.get('name')} is not done in {self.pace.wait:g} s"
            time.sleep(min(self.pace.poll, 2.0))
            status, row = self.ask("GET", f"{zone}/operations/{row['name']}")
        return problem(status, row) if status != 200 or row.get("error") else ""

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Make a request, and return status and answer. Raises OSError if there is no answer."""
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

    # -- reports -----------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Add a line to the journal, print it, and save the state."""
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        self.memory.journal = [*self.memory.journal, f"{stamp} {text}"][-KEPT:]
        self.save()
        print(text, flush=True)
        self.publish()

    def print_change(self, text: str) -> None:
        """Print a line if it differs from the last one."""
        if text != self.memory.said:
            self.memory.said = text
            print(text, flush=True)
            self.publish()

    def publish(self) -> None:
        """Write the last line and the journal to a guest attribute, which can be read from outside."""
        if "token" not in self.settings:
            text = "\n".join([self.memory.said, *self.memory.journal[:-6:-1]])[:1000].encode()
            with suppress(OSError):
                url = METADATA + "guest-attributes/hpc/failover"
                answer(url, FLAVOR, seconds=2, method="PUT", data=text)

    def status(self) -> dict[str, Any]:
        """Return the status of the watch, which the controller includes in its own."""
        memory, mode = self.memory, self.settings["mode"]
        armed = mode == "act" and bool(memory.known)
        return {
            "time": memory.looked, "mode": mode, "armed": armed, "said": memory.said, "moved": memory.moved,
            "journal": memory.journal[:-6:-1],
        }  # fmt: skip

    def serve(self) -> None:
        """Serve the status to the controller's address only. If that fails, the watch goes on."""
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
            self.print_change(f"its status can't be read from the controller: {error}")
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
    """Return the errors of an answer or of an operation on one line."""
    error = row.get("error") or {}
    rows = error.get("errors") or [error]
    text = "; ".join(f"{each.get('code', each.get('reason', ''))} {each.get('message', '')}".strip() for each in rows)
    return text or f"Compute Engine answers {status}"


def epoch(text: str) -> float:
    """Return the seconds since 1970 of a time as Compute Engine writes it; 0 for an empty one."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0.0


def from_metadata() -> dict[str, Any]:
    """Return the settings from the metadata server. If the metadata has another version of this program, install that
    version and restart."""
    try:
        script, settings = metadata("attributes/startup-script"), json.loads(metadata("attributes/hpc-watch"))
    except KeyError as error:
        raise BootError(f"the machine's metadata lacks {error}: it was not made by the stack") from None
    if not PROGRAM.exists() or PROGRAM.read_text() != script:
        install(script)
    return settings


def install(script: str) -> None:
    """Install this program as a service, start it, and end this process."""
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((PROGRAM, script), (UNIT, UNIT_TEXT)):
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
