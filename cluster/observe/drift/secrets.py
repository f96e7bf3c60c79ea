"""Secrets that others can read or that were changed, and ways in that the stack does not give."""

import base64
import hashlib
from collections.abc import Iterator

from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.health import ClusterObservation


def guarded(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Modes and owners of secrets, root's keys, and the MUNGE key, of every machine."""
    own = {*wanted.root_keys, seen.controller.part("guarded", "cluster_key")}
    for one in seen.machines:
        found = one.part("guarded")
        if found is None:
            continue
        for path, row in found["modes"].items():
            yield Difference(
                id="mode-changed", where=(one.name,), what=f"{path}: mode and owner", stack=row["wanted"],
                there=row["there"],
            )  # fmt: skip
        # The controller has a key of its own, which it reports.
        if wanted.root_keys and seen.controller.part("guarded") is not None:
            for key in sorted(set(found["root"]) - own):
                yield Difference(
                    id="root-key", where=(one.name,), what="a key that may log in as root", stack="no such key",
                    there=found["root"][key], mends="hand",
                )  # fmt: skip
        munge = one.munge or {}
        if munge.get("delivered") and munge.get("key") != munge["delivered"]:
            yield Difference(
                id="munge-key-changed", where=(one.name,), what="the MUNGE key", stack="as delivered", there="another"
            )


def key_id(private: str) -> str:
    """The hash of a private key's public half, as scripts/node/system/protected_files.py has it; empty for other texts.

    The key in OpenSSH's format (its PROTOCOL.key): cipher, kdf and its options, the number of keys, and the public one.
    """
    try:
        rest = base64.b64decode("".join(private.split("-----")[2].split()))[len("openssh-key-v1\0") :]
    except (ValueError, IndexError):
        return ""
    for _ in range(3):
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    public = rest[8 : 8 + int.from_bytes(rest[4:8], "big")]
    return hashlib.sha256(base64.b64encode(public)).hexdigest()[:16]
