"""Every secret that a stack has drawn, and whether it stands anywhere in the clear, in whatever encoding."""

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from engine import values
from engine.state import crypter
from engine.state.state import State

DRAWN = ("random:", "tls:")


def drawn(file: Path, stack: str, passphrase: str) -> dict[str, str]:
    """The secret outputs of whatever drew some, by RESOURCE.OUTPUT, from a state file."""
    state = State(file, stack, "hpc", lambda: passphrase)
    with pytest.MonkeyPatch.context() as patch:
        # As ./hpc has it; tests/conftest.py has fewer.
        patch.setattr(crypter, "ROUNDS", 1_000_000)
        state.load()
    return {
        f"{one.urn.rpartition('::')[2]}.{name}": str(values.plain(value))
        for one in state.resources()
        for name, value in one.outputs.items()
        if one.type.startswith(DRAWN) and values.is_secret(value)
    }


def found(secrets: dict[str, str], text: bytes) -> list[str]:
    """Which of the secrets stand in a text, and how they are written there."""
    return sorted({f"{name} as {how}" for name, value in secrets.items() for how, one in written(value) if one in text})


def written(secret: str) -> Iterator[tuple[str, bytes]]:
    """The ways in which a secret may be written, each with its name."""
    for part in parts(secret):
        raw = part.encode()
        yield "text", raw
        yield "JSON", json.dumps(part)[1:-1].encode()
        yield "URL", quote(part, safe="").encode()
        yield "hex", raw.hex().encode()
        yield "HEX", raw.hex().upper().encode()
        for shift in range(3):
            # Inside something longer: without the characters that depend on what stands before and behind.
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield "base64", encode(bytes(shift) + raw)[4 if shift else 0 : -4]


def parts(secret: str) -> Iterable[str]:
    """The secret; of a key in lines also those that tell something, beyond what all keys of its kind begin with."""
    lines = secret.strip().split("\n")
    return [secret.strip(), *([line for line in lines[3:-1] if len(line) > 40] if len(lines) > 3 else lines[1:-1])]
