"""Public keys are read as by ssh-keygen, and damaged or weak ones are refused."""

import base64
import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.config.ssh_key import read_key
from cluster.findings import RefusedError
from tests import programs

KINDS = {
    "ed25519": ("ed25519", 256), "rsa": ("rsa -b 2048", 2048), "p256": ("ecdsa -b 256", 256),
    "p384": ("ecdsa -b 384", 384), "p521": ("ecdsa -b 521", 521),
}  # fmt: skip
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl carol@laptop"


def text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def line(*parts: bytes) -> str:
    blob = b"".join(map(text, parts))
    return f"{parts[0].decode()} {base64.b64encode(blob).decode()}"


@pytest.mark.parametrize("kind", KINDS)
def test_bits_and_fingerprint_equal_those_of_ssh_keygen(kind: str, tmp_path: Path) -> None:
    words, bits = KINDS[kind]
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", *words.split(), "-N", "", "-C", "a b", "-f", str(file)], check=True)
    public = file.with_suffix(".pub")
    said = programs.run(["ssh-keygen", "-l", "-f", str(public)], check=True).stdout
    found = read_key(public.read_text())
    assert said.split()[:2] == [str(found.bits), found.fingerprint]
    assert (found.bits, found.comment) == (bits, "a b")


def test_keys_of_security_tokens_are_read() -> None:
    assert read_key(line(b"sk-ssh-ed25519@openssh.com", b"k" * 32, b"ssh:")).bits == 256
    curve = line(b"sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\4" + b"k" * 64, b"ssh:")
    assert read_key(curve).bits == 256


@pytest.mark.parametrize(
    "bad",
    [
        line(b"ssh-ed25519", b"k" * 31),
        line(b"ssh-ed25519", b"k" * 32, b"more"),
        line(b"sk-ssh-ed25519@openssh.com", b"k" * 32),
        line(b"ecdsa-sha2-nistp256", b"nistp384", b"\4" + b"k" * 96),
        line(b"ecdsa-sha2-nistp256", b"nistp256", b"\3" + b"k" * 64),
        line(b"ssh-rsa", b"\1\0\1", b"\x80" + b"k" * 255 + b"\2"),
        line(b"ssh-rsa", b"\1\0\1"),
        line(b"ssh-ed25519", b"k" * 60)[:-24],
    ],
)
def test_a_damaged_key_is_refused(bad: str) -> None:
    with pytest.raises(RefusedError):
        read_key(bad)


@pytest.mark.parametrize("bits", [1024, 2047, 16385])
def test_rsa_of_other_lengths_is_refused(bits: int) -> None:
    number = (1 << bits - 1 | 1).to_bytes(bits // 8 + 1, "big")
    with pytest.raises(RefusedError, match=f"this one has {bits}"):
        read_key(line(b"ssh-rsa", b"\1\0\1", number))


@pytest.mark.parametrize("bad", ["ssh-dss AAAA", f'from="10.0.0.1" {ED25519}', f"{ED25519}\nx", "", "hello"])
def test_other_lines_are_refused(bad: str) -> None:
    with pytest.raises(RefusedError):
        read_key(bad)


@given(st.binary(max_size=200), st.integers(0, 66))
def test_any_bytes_are_a_key_or_are_refused(data: bytes, cut: int) -> None:
    words = ED25519.split()
    blob = base64.b64decode(words[1])
    mixed = base64.b64encode(blob[:cut] + data).decode()
    with contextlib.suppress(RefusedError):
        assert read_key(f"{words[0]} {mixed}").bits == 256
