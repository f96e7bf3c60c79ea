"""Charts of a rehearsal: those that stand for Soperator's, with as much in them as the real ones have."""

import json
import random
import shutil
import tempfile
from pathlib import Path

from cluster.platforms.nebius import versions

STAND_INS = Path(__file__).parents[1] / "charts" / "repository"
"""The charts, as small as they can be."""
DEFINITIONS_BYTES = 3_500_000
"""Of the definitions in helm-soperator 4.1.7, whose release record takes 952 KB of the 1 MiB of a Secret."""
_DEFINITIONS = 6
_TEXT = "{:.<880}\n"
"""A description that compresses with its random beginning as well as those of Soperator do."""
_ELSEWHERE = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: extensive-check, namespace: %s}
"""
"""An object of helm-soperator-activechecks that is in one namespace, whatever the release's is."""


def write(folder: Path, version: str) -> None:
    """Write the charts that stand for those of a version, the same at each call."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
        new = Path(made) / "new"
        shutil.copytree(STAND_INS, new)
        for name in map("ballast{}".format, range(_DEFINITIONS)):
            file = new / "helm-soperator" / "crds" / f"{name}.yaml"
            file.write_text(definition(name, padding=DEFINITIONS_BYTES // _DEFINITIONS), encoding="utf-8")
        if only := versions.series(version).cluster_name:
            elsewhere = new / "helm-soperator-activechecks" / "templates" / "elsewhere.yaml"
            elsewhere.write_text(_ELSEWHERE % only, encoding="utf-8")
        if folder.exists():
            folder.rename(Path(made) / "old")
        new.rename(folder)


def definition(name: str, *fields: str, padding: int = 0) -> str:
    """A definition of a kind with these fields, and about so many bytes of others, as a text of YAML."""
    words = random.Random(name)  # noqa: S311 - the same in each run
    texts = (_TEXT.format(words.randbytes(117).hex()) for _ in range(padding // 1000))
    others = {f"pad{row}": {"type": "string", "description": text} for row, text in enumerate(texts)}
    known = {field: {"type": "string"} for field in fields}
    spec = {"type": "object", "properties": {**known, **others}}
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.rehearsal.hpc"},
        "spec": {
            "group": "rehearsal.hpc",
            "scope": "Namespaced",
            "names": {"kind": name.title(), "plural": f"{name}s"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }
    # kubectl reads a stream that begins with a brace as JSON alone.
    return f"# {name}\n{json.dumps(document, indent=2)}\n"
