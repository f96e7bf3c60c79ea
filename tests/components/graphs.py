"""Everything that a program registered, as a text that can be reviewed."""

import json
from pathlib import Path

from tests.harness import Recording

GOLDEN = Path(__file__).parents[1] / "golden" / "gcp"


def graph(recording: Recording) -> str:
    """Every resource with its inputs, what it waits for, and whether it is protected, as JSON."""
    names = {one.urn: one.name for one in recording.resources}
    rows = {
        f"{one.type.rpartition('/')[0] or one.type} {one.name}": {
            "parent": names.get(one.parent, ""),
            **({"protect": True} if one.request.protect else {}),
            **({"ignore_changes": sorted(one.request.ignoreChanges)} if one.request.ignoreChanges else {}),
            **(
                {"after": sorted(urn.rpartition("::")[2] for urn in one.request.dependencies)}
                if one.request.dependencies
                else {}
            ),
            "inputs": one.inputs,
        }
        for one in recording.resources
        if one.custom
    }
    return json.dumps(dict(sorted(rows.items())), indent=1, sort_keys=True) + "\n"


def hold(name: str, text: str, *, update: bool) -> None:
    """Compare a text with the reviewed one, or write it for review."""
    path = GOLDEN / name
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden file {path.name}: write it with `pytest --update-golden` and review it"
    assert text == path.read_text(), "if the change is meant: `pytest --update-golden`, then review the difference"
