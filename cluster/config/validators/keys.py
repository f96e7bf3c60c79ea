"""SSH public keys."""

import base64
import binascii

from cluster.findings import Refused

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
    """One line of an authorized_keys file, without options."""
    # What some program takes for the end of a line would make two keys of one there, and one of them nobody's.
    one_line = value.strip(" \t\r\n").replace("\t", " ")
    parts = one_line.split(None, 2)
    advice = "paste the line of ~/.ssh/id_ed25519.pub (the public key, made with `ssh-keygen -t ed25519`)"
    if "PRIVATE KEY" in value:
        raise Refused(
            "a public key, e.g. ssh-ed25519 AAAAC3... alice@laptop",
            f"take it out and make a new pair, since others may have read this one; {advice}",
        )
    if len(parts) < 2 or parts[0] not in KEY_TYPES or not one_line.isprintable():
        raise Refused(f"one line: type, key, comment; types: {', '.join(KEY_TYPES)}", f"{_BARE}; {advice}")
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except (binascii.Error, ValueError):
        raise Refused("the key in base64, e.g. ssh-ed25519 AAAAC3... alice@laptop", advice) from None
    kind = parts[0].encode()
    # The blob begins with its own type, length first; a key cut short or pasted under another type shows here.
    if len(blob) < 40 or blob[:4] != len(kind).to_bytes(4, "big") or blob[4 : 4 + len(kind)] != kind:
        raise Refused(f"a whole {parts[0]} key", f"the key is cut short or of another type: {advice}")
    return one_line
