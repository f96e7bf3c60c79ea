"""A cluster that is up, as far as its outputs tell, and an ssh that keeps what it was given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Tool = Callable[[str, str], Path]
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"
MACHINES = {
    "controller": ("10.77.0.2", "controller"),
    "login-0": ("10.77.0.3", "login"),
    "cpu-0": ("10.77.2.0", "node"),
    "cpu-1": ("10.77.2.1", "node"),
}
OUTPUTS: dict[str, Any] = {
    "cluster": "dev",
    "targets": {
        f"dev-{name}": {"method": "ssh", "address": address, "roles": [role], "host_key": f"ssh-ed25519 AAA{number}\n"}
        for number, (name, (address, role)) in enumerate(MACHINES.items(), 1)
    },
    "admin_key": KEY,
    "users": ["alice", "bob"],
    "login": "dev-login-0",
}
FAKE_SSH = """\
{
    printf 'word %s\\n' "$@"
    sed 's/^ */option /' "$2"
    key=$(sed -n 's/^ *IdentityFile //p' "$2")
    printf 'mode %s\\n' "$(stat -Lc %a "$key")" "$(stat -c %a "${2%/*}")"
    sed 's/^/key /' "$key"
    sed 's/^/known /' "$(sed -n 's/^ *UserKnownHostsFile //p' "$2")"
    sed 's/^/input /'
} >"$LOG"
exit 7
"""


def said(log: Path, kind: str) -> list[str]:
    """Return what FAKE_SSH kept of a kind: word, option, mode, key, known, input."""
    return [line.removeprefix(f"{kind} ") for line in log.read_text().splitlines() if line.startswith(f"{kind} ")]
