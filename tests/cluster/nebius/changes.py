"""Changes of a small cluster on Nebius, as a stack file would have them."""

from typing import Any

Changes = dict[str, Any]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFjY2VwdGVkLWJ5LW5vYm9keS1hdC1hbGwtLS0t alice@laptop"


def filesystems(**values: Any) -> Changes:
    return {"nebius": {"filesystems": values}}


def submount(mount: str, **values: Any) -> Changes:
    return filesystems(submounts={"data": {"mount": mount, "spec": {"size_gib": 100}, **values}})


def worker(**values: Any) -> Changes:
    return {"nebius": {"workers": {"worker": values}}}


def nodeset(**values: Any) -> Changes:
    return {"nodesets": {"worker": {"count": 2, **values}}}


def version(number: str, **values: Any) -> Changes:
    return {**values, "nebius": {**values.get("nebius", {}), "soperator": {"version": number}}}


SPEC = {"size_gib": 100}
EXISTING = "computefilesystem-e00abc"
Case = tuple[Changes, str, str, str, str]
"""Changes, and what is refused of them: place, given, allowed, to do."""
