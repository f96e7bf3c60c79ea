"""The journal of the reconcile loop: a line of JSON for each action, on a disk that users can fill."""

import errno
import json
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reconcile.compute_engine import CloudError
from system.host import SetupError, log

BYTES = 5_000_000
SHOWN_ACTIONS = 10  # in the status
MAX_REPAIR_LINES = 2000  # lines of repairs that a new journal takes over
_REPAIR_LINE = re.compile(r'"action": "(reset|report|replace)"|"rule": "repaired"')


class Journal:
    """The journal in a folder, and its last lines."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.folder, self.clock = folder, clock
        self.recent: list[dict[str, Any]] = []
        self._disk_error = ""

    def write(self, **row: Any) -> None:  # noqa: ANN401 - JSON values
        """Append a line. A result is logged too."""
        row = {"time": round(self.clock(), 1), **row}
        self.recent = [*self.recent, row][-SHOWN_ACTIONS:]
        self.unless_full(lambda: self._append(json.dumps(row)))
        if row.get("result"):
            log(f"{row['rule']}: {','.join(row['nodes'])}: {row['result']}")

    @contextmanager
    def errors(self, rule: str, names: Sequence[str]) -> Generator[None]:
        """Write into the journal that slurmctld or the cloud has refused something, and go on."""
        try:
            yield
        except (SetupError, CloudError) as error:
            self.write(rule=rule, nodes=names, result=str(error))

    def unless_full(self, writes: Callable[[], object]) -> None:
        """Write something that a pass can do without, and log it once if the disk is full. Users can fill the disk, as
        /home is on it too; machines are still created for jobs. A step that must be recorded before it is done is not
        done then (`Loop._store_repair`).

        Any other error ends the loop: the disk may have been taken from this controller by another one.
        """
        try:
            writes()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if (text := str(error)) != self._disk_error:
                self._disk_error = text
                log(f"the loop can't write its files, and goes on without: {text}")

    def _append(self, line: str) -> None:
        path = self.folder / "journal.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        kept: list[str] = []
        if path.exists() and path.stat().st_size > BYTES:
            last = path.with_suffix(".jsonl.1")
            if last.exists():
                # Figures of reliability over months are made from the lines of repairs: the new journal keeps these.
                kept = [row for row in last.read_text().splitlines() if _REPAIR_LINE.search(row)][-MAX_REPAIR_LINES:]
            path.replace(last)
        with path.open("a") as file:
            file.write("".join(f"{row}\n" for row in (*kept, line)))
