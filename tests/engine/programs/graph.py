"""Creates the resources that graph.json lists."""

import json
from pathlib import Path

import pulumi
from living import Living  # pyrefly: ignore[missing-import]

resources = {}
for node in json.loads(Path("graph.json").read_text()):
    options = {**node.get("options", {})}
    for key in ("depends_on", "deleted_with", "parent"):
        if names := options.get(key):
            options[key] = [resources[n] for n in names] if isinstance(names, list) else resources[names]
    if "aliases" in options:
        options["aliases"] = [pulumi.Alias(name=alias) for alias in options["aliases"]]
    if "deleted_with" in options:
        node.setdefault("props", {})["host"] = options["deleted_with"].id
    refs = [resources[name].stamp for name in node.get("refs", [])]
    resources[node["name"]] = Living(
        node["name"], pulumi.ResourceOptions(**options), refs=refs, **node.get("props", {})
    )
pulumi.export("stamps", {name: resource.stamp for name, resource in resources.items()})
