"""status."""

import json as jsonlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from typer import Exit

from cli import options
from cli.commands import outputs

if TYPE_CHECKING:
    from cluster.health import Finding, Sight, Sights


def status(stack: options.Stack, *, json: options.Json = False) -> None:
    """Show how the cluster is: what is wrong with it, its nodes, queue, daemons and storage.

    Every machine is asked at once and nothing is changed; ten seconds at most. Exit code 0 when all is well, 1 when
    there is something to look at.

    JSON: {stack, ok, findings [{id, where, what, todo, note, since}], machines {name: {roles, reached, why, facts}}}; times
    are seconds since the epoch. An id stands for a kind of fault, and stays.
    """
    from cli.status.ask import ask
    from cluster.health import findings

    seen = ask(stack, outputs.read(stack, show_secrets=True))
    found = findings(seen)
    if json:
        print(jsonlib.dumps(_document(seen, found), indent=2, ensure_ascii=False))
    else:
        from cli.status import screen

        screen.show(seen, found)
    raise Exit(1 if found else 0)


def _document(seen: "Sights", found: "list[Finding]") -> dict[str, Any]:
    return {
        "stack": seen.stack,
        "ok": not found,
        "findings": [asdict(one) for one in found],
        "machines": {one.name: _machine(one) for one in seen.machines},
    }


def _machine(one: "Sight") -> dict[str, Any]:
    facts = {name: value for name, value in one.facts.items() if name not in ("name", "roles")}
    return {"roles": one.roles, "reached": one.reached, "why": one.why, "facts": facts}
