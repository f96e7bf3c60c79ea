"""The state that owns a stack's machines on this host. The operator's key identifies it.

Two states may have the same project, stack and name (another HPC_HOME, a lost state). A state that did not create the
machines does not contain them: it would recreate them all, and end their jobs.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from components.local.host.paths import HostError, StackPaths
from scripts.hostfiles import write_atomically


def state_id(admin_key: str) -> str:
    """Return the id of a state: a hash of the public key that it generates once and keeps."""
    fields = admin_key.split()
    return hashlib.sha256(" ".join(fields[:2]).encode()).hexdigest()[:16] if fields else ""


def recorded(paths: StackPaths) -> dict[str, Any]:
    """Return the record of the stack's network and its owner; empty if there is none, or if it is damaged.

    Raises HostError: this user is not root, who alone can read it.
    """
    try:
        record = json.loads(paths.network.read_text())
    except PermissionError:
        msg = f"platform local: only root can read what cluster {paths.stack} on this host is; run again as root (sudo)"
        raise HostError(msg) from None
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def to_record(before: Sequence[str], state: str, paths: StackPaths) -> dict[str, Any]:
    """Return the owner's part of the record. `before` are the ids that the same state had earlier."""
    old = recorded(paths)
    if not state:
        return {}
    home = Path(os.environ.get("HPC_HOME") or Path.home() / ".hpc").expanduser().absolute()
    return {
        "states": list(dict.fromkeys([state, *before, *old.get("states", [])])),
        # For people: the state's place, as cli/stack/state_dir.py finds it.
        "home": os.environ.get("PULUMI_BACKEND_URL") or f"file://{home}",
        "since": old.get("since") or datetime.now(timezone.utc).isoformat("T", "seconds"),
    }


def is_other_states(paths: StackPaths, state: str, *, before: Sequence[str] = ()) -> bool:
    """Return whether the record has an owner, and it is another state."""
    record = recorded(paths)
    return "states" in record and not {state, *before} & set(record["states"])


def refuse_other_state(paths: StackPaths, state: str, *, before: Sequence[str] = ()) -> None:
    """Raise HostError if another state owns the machines."""
    if state and is_other_states(paths, state, before=before):
        raise HostError(refusal(paths))


def refusal(paths: StackPaths) -> str:
    """Return the message about a stack that another state owns."""
    record, name = recorded(paths), paths.stack
    whose = f"made by {record.get('owner') or 'an unknown stack'}"
    if record.get("home"):
        whose += f" with the state in {record['home']}, since {record.get('since', 'an unknown time')}"
    return (
        f"cluster.name: {name!r} is up on this host, {whose}. The state in use now does not have its machines: "
        "each would be recreated, and all jobs would be lost. Nothing was changed.\n"
        "  to go on with it:         use that state (HPC_HOME, PULUMI_BACKEND_URL), or bring it here: "
        "./hpc state export there, ./hpc state import here\n"
        "  if that state is lost:    ./hpc destroy STACK --leftovers removes what is here, jobs and shared folders "
        "included; then `up`\n"
        "  for a cluster beside it:  another name and another network.cidr"
    )


CLAIM = "claim"
"""The output that has the claim."""


def claim(paths: StackPaths, what: str, claim: str | None = None) -> str:
    """Record a claim, a new one if none is given, and return it."""
    claim = claim or secrets.token_hex(8)
    write_atomically(paths.claims / what, claim)
    return claim


def holds_claim(paths: StackPaths, what: str, claim: str | None) -> bool:
    """Return whether this is the recorded claim. True also without any record."""
    try:
        return (paths.claims / what).read_text(encoding="utf-8") == claim
    except FileNotFoundError:
        return True
