"""Builds the graph that graph.json describes."""

import json
from pathlib import Path

import pulumi
from living import Living  # pyrefly: ignore[missing-import]

made = {}
for node in json.loads(Path("graph.json").read_text()):
    options = {**node.get("options", {})}
    for key in ("depends_on", "deleted_with", "parent"):
        wanted = options.get(key)
        if wanted:
            options[key] = [made[n] for n in wanted] if isinstance(wanted, list) else made[wanted]
    if "aliases" in options:
        options["aliases"] = [pulumi.Alias(name=alias) for alias in options["aliases"]]
    if "deleted_with" in options:
        node.setdefault("props", {})["host"] = options["deleted_with"].id
    refs = [made[name].stamp for name in node.get("refs", [])]
    made[node["name"]] = Living(node["name"], pulumi.ResourceOptions(**options), refs=refs, **node.get("props", {}))
pulumi.export("stamps", {name: thing.stamp for name, thing in made.items()})
