"""Access to secrets and log-ins here: facts of the machine, and what the set-up makes of them."""

import base64
import hashlib
import pwd
import stat
from pathlib import Path
from typing import Any

from slurm import slurmd
from system import mounts, munge, remote_node
from system.host import log, own

ROOT_KEYS = (Path("/root/.ssh/authorized_keys"), Path("/root/.ssh/authorized_keys2"))
DATABASE_PASSWORD = Path("/etc/hpc/database-password")
TOKEN_KEY_DELIVERED = Path("/etc/hpc/jwt.key")  # put here by the stack, root only
TOKEN_KEY = slurmd.ETC / "jwt.key"  # as rendered (AuthAltParameters)
# Mode and owner that the set-up gives. Missing files are other differences.
MODES = {
    munge.KEY: (0o400, "munge"),
    munge.KEY.parent: (0o700, "munge"),
    munge.DELIVERED: (0o600, "root"),
    DATABASE_PASSWORD: (0o600, "root"),
    TOKEN_KEY: (0o600, "slurm"),
    TOKEN_KEY_DELIVERED: (0o600, "root"),
    remote_node.KEY: (0o600, "root"),
    slurmd.ETC / "slurmdbd.conf": (0o600, "slurm"),
    Path(mounts.SPOOLS["controller"]): (0o700, "slurm"),
    Path("/etc/ssh/sshd_config.d/hpc.conf"): (0o644, "root"),
}


def modes() -> dict[str, dict[str, str]]:
    """Files with another mode or owner than the set-up gives: `wanted` and `there`, as "0400 munge"."""
    found = {}
    for path, (mode, owner) in MODES.items():
        try:
            there = path.lstat()
        except OSError:
            continue
        said, wanted = f"{stat.S_IMODE(there.st_mode):04o} {_name(there.st_uid)}", f"{mode:04o} {owner}"
        if stat.S_ISLNK(there.st_mode):
            said = f"a link to {path.readlink()}"
        if said != wanted:
            found[str(path)] = {"wanted": wanted, "there": said}
    return found


def restore_modes() -> None:
    """Give back to what is there the mode and owner that the set-up gives; where a hand has put a link, nothing."""
    wrong = modes()
    for path, (mode, owner) in MODES.items():
        if str(path) in wrong and not path.is_symlink() and own(path, mode=mode, owner=owner):
            log(f"{path}: {owner}'s alone again ({mode:04o})" if not mode & 0o077 else f"{path}: {owner}'s again")


def root_keys() -> dict[str, str]:
    """Return who may log in as root: for each key a hash of it, with its comment."""
    found = {}
    for path in ROOT_KEYS:
        for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
            words = line.split()
            # Options may stand before the type, and hold blanks.
            place = next((n for n, word in enumerate(words) if word.startswith(("ssh-", "ecdsa-", "sk-"))), None)
            if place is not None and not line.startswith("#") and len(words) > place + 1:
                found[key_id(words[place + 1])] = " ".join(words[place + 2 :]) or path.name
    return found


def cluster_key() -> str:
    """The hash of the controller's own key to the nodes; empty on machines that have none."""
    if not remote_node.KEY.exists():
        return ""
    lines = remote_node.KEY.read_text().splitlines()[1:-1]
    rest = base64.b64decode("".join(lines))[len("openssh-key-v1\0") :]
    # PROTOCOL.key of OpenSSH: cipher, kdf, its options, the number of keys, and the public one, in clear.
    for _ in range(3):
        rest = _field(rest)[1]
    return key_id(base64.b64encode(_field(rest[4:])[0]).decode())


def key_id(blob: str) -> str:
    """A short hash of a public key in base64, as authorized_keys has it."""
    return hashlib.sha256(blob.encode()).hexdigest()[:16]


def observe() -> dict[str, Any]:
    """Wrong modes, keys of root and the controller's key."""
    return {"modes": modes(), "root": root_keys(), "cluster_key": cluster_key()}


def _field(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big")
    return data[4 : 4 + size], data[4 + size :]


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
