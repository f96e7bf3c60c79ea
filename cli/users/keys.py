"""SSH public keys as somebody gives them on a command line: files, standard input, or the key itself."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cluster.config.validators.ssh_key import KEY_TYPES, SshKey, read_key
from cluster.findings import Finding, RefusedError
from cluster.regular_file import refuse_special

STDIN = "-"
_LONGEST = 1 << 20
_PRIVATE = ("PRIVATE KEY", "PuTTY-User-Key-File", "b3BlbnNzaC1rZXktdjE")
"""Texts in private keys: PEM's and OpenSSH's, PuTTY's, and OpenSSH's first bytes in base64 ("openssh-key-v1")."""
_CONVERT = "---- BEGIN SSH2 PUBLIC KEY"
_PASTE = "give the line of ~/.ssh/id_ed25519.pub, or the file"


def read(given: Sequence[str]) -> tuple[list[SshKey], list[Finding]]:
    """The keys in what was given, each once and in its order, and everything that is wrong with it."""
    found: dict[str, SshKey] = {}
    wrong: list[Finding] = []
    for text in dict.fromkeys(given):
        for key in _keys(text):
            if isinstance(key, Finding):
                wrong.append(key)
            else:
                found.setdefault(key.blob, key)
    return list(found.values()), wrong


def _keys(given: str) -> Iterator[SshKey | Finding]:
    if given.partition(" ")[0] in KEY_TYPES:
        where, text = "--key", given
    elif given == STDIN:
        where, text = "--key -", sys.stdin.read(_LONGEST)
    else:
        where = f"--key {'FILE' if any(mark in given for mark in _PRIVATE) else given}"
        try:
            path = Path(given).expanduser()
            refuse_special(path)
            with path.open("rb") as file:
                text = file.read(_LONGEST).decode(errors="replace")
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no path"
            yield _wrong("key-file", where, str(why or error), "a file that can be read", _PASTE)
            return
    if any(mark in text for mark in _PRIVATE):
        todo = f"give {given}.pub" if Path(f"{given}.pub").exists() else "give the .pub file beside it"
        yield _wrong("key-private", where, "a private key (not shown)", "a public key", todo)
        return
    if _CONVERT in text:
        todo = f"convert it: ssh-keygen -i -f {given} >key.pub"
        yield _wrong("key-format", where, "a public key in SSH2's format (RFC 4716)", "OpenSSH's format", todo)
        return
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        yield _wrong("key-none", where, "nothing", "at least one public key", _PASTE)
    for number, line in lines:
        try:
            yield read_key(line)
        except RefusedError as error:
            place = where if len(lines) == 1 else f"{where}, line {number}"
            # Whatever it is, it may be a secret.
            first = line.split()[0]
            shown = f"{first} ..." if first.startswith(("ssh-", "ecdsa-", "sk-")) and len(first) < 60 else "not shown"
            options = any(f" {kind} " in line for kind in KEY_TYPES)
            allowed = "a key without options (from=, command= ...)" if options else error.allowed
            yield _wrong("key-invalid", place, shown, allowed, "remove the options" if options else error.todo)


def _wrong(kind: str, at: str, given: str, allowed: str, todo: str) -> Finding:
    return Finding(id=kind, at=at, given=given, allowed=allowed, todo=todo)
