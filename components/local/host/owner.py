"""The state that owns a stack's machines on this host; its operator's key identifies it.

Two states may have the same project, stack and name (another HPC_HOME, a lost state). One that did not create the
machines has none of them: it would recreate each, and end its jobs.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from components.local.host.paths import HostError, StackPaths
from hostfiles import write_atomically


def state_id(admin_key: str) -> str:
    """The id of a state: a hash of the public key that each generates once and keeps."""
    fields = admin_key.split()
    return hashlib.sha256(" ".join(fields[:2]).encode()).hexdigest()[:16] if fields else ""


def recorded(paths: StackPaths) -> dict[str, Any]:
    """Return what is on record of the stack's network and its owner; empty where nothing is, or nothing that can be
    read."""
    try:
        found = json.loads(paths.network.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def to_record(before: Sequence[str], state: str, paths: StackPaths) -> dict[str, Any]:
    """The owner as it is to be recorded: `before`, the ids that the same state had earlier, stay its own."""
    known = recorded(paths)
    if not state:
        return {}
    ids = list(dict.fromkeys([state, *before, *known.get("states", [])]))
    return {
        "states": ids,
        "home": _home(),
        "since": known.get("since") or datetime.now(timezone.utc).isoformat("T", "seconds"),
    }


def is_other_states(paths: StackPaths, state: str, *, before: Sequence[str] = ()) -> bool:
    """Return whether another state made what is there; not where no state is on record."""
    known = recorded(paths)
    if "states" not in known:
        return False
    return not {state, *before} & set(known["states"])


def refuse_other_state(paths: StackPaths, state: str, *, before: Sequence[str] = ()) -> None:
    """Raises HostError, with the owner of the machines and what to do, where another state made them."""
    if state and is_other_states(paths, state, before=before):
        raise HostError(refusal(paths))


def refusal(paths: StackPaths) -> str:
    """Return why this state can't bring the stack up."""
    known, name = recorded(paths), paths.stack
    whose = f"made by {known.get('owner') or 'an unknown stack'}"
    if known.get("home"):
        whose += f" with the state in {known['home']}, since {known.get('since', 'an unknown time')}"
    return (
        f"cluster.name: {name!r} is up on this host, {whose}. The state in use now does not have its machines: "
        "each would be recreated, and all jobs would be lost. Nothing was changed.\n"
        "  to go on with it:         use that state (HPC_HOME, PULUMI_BACKEND_URL), or bring it here: "
        "./hpc state export there, ./hpc state import here\n"
        "  if that state is lost:    ./hpc destroy STACK --leftovers removes what is here, jobs and shared folders "
        "included; then `up`\n"
        "  for a cluster beside it:  another name and another network.cidr"
    )


def _home() -> str:
    """Return where the state is, for people: as cli/stack/state_dir.py finds it."""
    home = os.environ.get("HPC_HOME") or Path.home() / ".hpc"
    return os.environ.get("PULUMI_BACKEND_URL") or f"file://{Path(home).expanduser().absolute()}"


CLAIM = "claim"
"""The output that has it."""


def claim(paths: StackPaths, what: str, claim: str | None = None) -> str:
    """Record a claim, a new one if none is given; returns it."""
    claim = claim or secrets.token_hex(8)
    write_atomically(paths.claims / what, claim)
    return claim


def holds_claim(paths: StackPaths, what: str, claim: str | None) -> bool:
    """Return whether no other claim was recorded since; also where there is no record of any."""
    try:
        return (paths.claims / what).read_text(encoding="utf-8") == claim
    except FileNotFoundError:
        return True


def remove_claim(paths: StackPaths, what: str) -> None:
    (paths.claims / what).unlink(missing_ok=True)


def remove_claims(paths: StackPaths) -> None:
    """Remove all claims of a stack of which nothing is left."""
    shutil.rmtree(paths.claims, ignore_errors=True)
