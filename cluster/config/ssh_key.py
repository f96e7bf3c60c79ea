"""SSH public keys: format, kind, length and fingerprint (RFC 4253 §6.6, RFC 5656 §3.1, PROTOCOL.u2f)."""

import base64
import binascii
import hashlib
from dataclasses import dataclass

from cluster.findings import RefusedError

KEY_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)

_BARE = "remove what can't be printed, and all but one line"


def public_key(value: str) -> str:
    """Return a public key as a line of an authorized_keys file, without options."""
    # A character that some program reads as the end of a line would make two keys of one.
    one_line = value.strip(" \t\r\n").replace("\t", " ")
    parts = one_line.split(None, 2)
    advice = "paste the line of ~/.ssh/id_ed25519.pub (the public key, made with `ssh-keygen -t ed25519`)"
    if "PRIVATE KEY" in value:
        raise RefusedError(
            "a public key, e.g. ssh-ed25519 AAAAC3... alice@laptop",
            f"take it out and make a new pair, since others may have read this one; {advice}",
        )
    if len(parts) < 2 or parts[0] not in KEY_TYPES or not one_line.isprintable():
        raise RefusedError(f"one line: type, key, comment; types: {', '.join(KEY_TYPES)}", f"{_BARE}; {advice}")
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError("the key in base64, e.g. ssh-ed25519 AAAAC3... alice@laptop", advice) from None
    kind = parts[0].encode()
    # The blob begins with the length and the name of its type, which detects a truncated key and another type.
    if len(blob) < 40 or blob[:4] != len(kind).to_bytes(4, "big") or blob[4 : 4 + len(kind)] != kind:
        raise RefusedError(f"a whole {parts[0]} key", f"the key is cut short or of another type: {advice}")
    return one_line


SHORTEST_RSA = 2048
"""Bits. NIST SP 800-131A disallows shorter keys; sshd accepts 1024 and more (sshd_config(5), RequiredRSASize)."""
LONGEST_RSA = 16384
"""Bits. OpenSSH reads no longer keys (sshbuf.h, SSHBUF_MAX_BIGNUM)."""
_POINT = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
"""Bytes of an uncompressed point of each curve."""
_NEW = "make a new pair: ssh-keygen -t ed25519"


@dataclass(frozen=True, kw_only=True)
class SshKey:
    """A public key."""

    line: str
    """The line of ~/.ssh/id_ed25519.pub: type, key, comment."""
    kind: str
    bits: int
    comment: str
    fingerprint: str
    """The output of `ssh-keygen -l`: SHA256:..."""

    @property
    def blob(self) -> str:
        """The key itself, which is the same in lines with other comments."""
        return self.line.split()[1]


def read_key(line: str) -> SshKey:
    """Parse one line. Raises RefusedError if it is not a public key, or if the key is damaged or too short."""
    line = public_key(line)
    kind, text, comment = (*line.split(None, 2), "")[:3]
    blob = base64.b64decode(text)
    try:
        parts = _parts(blob)
        bits = _bits(kind, parts)
    except (ValueError, IndexError):
        raise RefusedError(f"a whole {kind} key", "copy the line of the .pub file again: it is damaged") from None
    if kind == "ssh-rsa" and not SHORTEST_RSA <= bits <= LONGEST_RSA:
        raise RefusedError(f"an RSA key of {SHORTEST_RSA} to {LONGEST_RSA} bits; this one has {bits}", _NEW)
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return SshKey(line=line, kind=kind, bits=bits, comment=comment, fingerprint=f"SHA256:{digest}")


def _parts(blob: bytes) -> list[bytes]:
    """Return the strings of a key, each of which follows its length. Raises ValueError if one is truncated."""
    parts, at = [], 0
    while at < len(blob):
        length = int.from_bytes(blob[at : at + 4], "big")
        part = blob[at + 4 : at + 4 + length]
        if at + 4 > len(blob) or len(part) != length:
            raise ValueError
        parts.append(part)
        at += 4 + length
    return parts


def _bits(kind: str, parts: list[bytes]) -> int:
    """Return the length of a key in bits. Raises ValueError if its parts do not fit its kind."""
    more = 1 if kind.startswith("sk-") else 0  # the application, such as "ssh:"
    if kind.endswith("rsa"):
        number = int.from_bytes(parts[2], "big")
        if len(parts) != 3 or not number & 1:  # the product of two odd primes
            raise ValueError
        return number.bit_length()
    if "ed25519" in kind:
        if len(parts) != 2 + more or len(parts[1]) != 32:
            raise ValueError
        return 256
    curve = parts[1].decode("ascii", "replace")
    if len(parts) != 3 + more or curve not in kind or len(parts[2]) != _POINT.get(curve) or parts[2][0] != 4:
        raise ValueError
    return int(curve.removeprefix("nistp"))
