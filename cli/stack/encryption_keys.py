"""The keys of a stack file that say how its secrets are encrypted, added before the Pulumi CLI adds them.

The CLI rewrites the whole stack file to add them (sdk/go/common/workspace/project.go, save), which loses blank lines
and whatever its model of the file lacks. It does not touch a file that has them.
"""

from pathlib import Path

from cli import console

KEYS = ("encryptionsalt", "secretsprovider", "encryptedkey")
"""The keys of a stack file (workspace.ProjectStack) that say how its secrets are kept."""


def read(path: Path) -> dict[str, str]:
    """Those keys as a stack file has them; none of one that is not there or can't be read."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {key: str(document[key]) for key in KEYS if document.get(key)} if isinstance(document, dict) else {}


def append(path: Path, found: dict[str, str]) -> None:
    """Add keys that the file lacks at its end, and leave the rest as it is."""
    missing = {key: value for key, value in found.items() if key not in read(path)}
    if not missing:
        return
    try:
        text = path.read_text(encoding="utf-8")
        lines = "".join(f"{key}: {value}\n" for key, value in missing.items())
        with path.open("a", encoding="utf-8") as file:
            file.write(("" if text.endswith("\n") or not text else "\n") + lines)
    except OSError as error:
        # The state has it too, so the run can do without.
        console.note(f"{path}: {', '.join(missing)} can't be added: {error.strerror}.")
        return
    console.note(f"Added to {path.name}: {', '.join(missing)} (no secret; keep it with the file)")
