"""Modes and owners of the files with secrets, and the keys that may log in as root."""

import base64
import hashlib
import pwd
import stat
from pathlib import Path
from typing import Any

from interface import SPOOLS
from slurm import slurmd
from system import munge, remote_node
from system.host import log, set_access

ROOT_KEYS = (Path("/root/.ssh/authorized_keys"), Path("/root/.ssh/authorized_keys2"))
DATABASE_PASSWORD = Path("/etc/hpc/database-password")
TOKEN_KEY_DELIVERED = Path("/etc/hpc/jwt.key")  # written by the stack, for root only
TOKEN_KEY = slurmd.ETC / "jwt.key"  # as in slurm.conf (AuthAltParameters)
# The mode and the owner that each file must have. Other checks report missing files.
MODES = {
    munge.KEY: (0o400, "munge"),
    munge.KEY.parent: (0o700, "munge"),
    munge.DELIVERED: (0o600, "root"),
    DATABASE_PASSWORD: (0o600, "root"),
    TOKEN_KEY: (0o600, "slurm"),
    TOKEN_KEY_DELIVERED: (0o600, "root"),
    remote_node.KEY: (0o600, "root"),
    slurmd.ETC / "slurmdbd.conf": (0o600, "slurm"),
    Path(SPOOLS["controller"]): (0o700, "slurm"),
    Path("/etc/ssh/sshd_config.d/hpc.conf"): (0o644, "root"),
}


def wrong_modes() -> dict[str, dict[str, str]]:
    """Return the files of MODES with another mode or owner, by path: `wanted` and `there`, for example "0400 munge"."""
    wrong = {}
    for path, (mode, owner) in MODES.items():
        try:
            status = path.lstat()
        except OSError:
            continue
        actual, wanted = f"{stat.S_IMODE(status.st_mode):04o} {_user_name(status.st_uid)}", f"{mode:04o} {owner}"
        if stat.S_ISLNK(status.st_mode):
            actual = f"a link to {path.readlink()}"
        if actual != wanted:
            wrong[str(path)] = {"wanted": wanted, "there": actual}
    return wrong


def restore_modes() -> None:
    """Set mode and owner of the files of MODES that have others. Links, which somebody has made, are left alone."""
    wrong = wrong_modes()
    for path, (mode, owner) in MODES.items():
        if str(path) in wrong and not path.is_symlink() and set_access(path, mode=mode, owner=owner):
            log(f"{path}: {owner}'s alone again ({mode:04o})" if not mode & 0o077 else f"{path}: {owner}'s again")


def root_keys() -> dict[str, str]:
    """Return the comment of each SSH key that may log in as root, by a hash of the key."""
    comments = {}
    for path in ROOT_KEYS:
        for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
            words = line.split()
            # Options may precede the type of the key, and may contain blanks.
            at = next((n for n, word in enumerate(words) if word.startswith(("ssh-", "ecdsa-", "sk-"))), None)
            if at is not None and not line.startswith("#") and len(words) > at + 1:
                comments[key_id(words[at + 1])] = " ".join(words[at + 2 :]) or path.name
    return comments


def cluster_key() -> str:
    """Return the hash of the key by which the controller logs in to nodes; empty on machines without that key."""
    if not remote_node.KEY.exists():
        return ""
    lines = remote_node.KEY.read_text().splitlines()[1:-1]
    rest = base64.b64decode("".join(lines))[len("openssh-key-v1\0") :]
    # PROTOCOL.key of OpenSSH: cipher, kdf, its options, the number of keys, then the public key, not encrypted.
    for _ in range(3):
        rest = _split_field(rest)[1]
    return key_id(base64.b64encode(_split_field(rest[4:])[0]).decode())


def key_id(blob: str) -> str:
    """Return a short hash of a public key, given in base64 as in authorized_keys."""
    return hashlib.sha256(blob.encode()).hexdigest()[:16]


def observe() -> dict[str, Any]:
    """Return wrong modes, the keys of root and the controller's key."""
    return {"modes": wrong_modes(), "root": root_keys(), "cluster_key": cluster_key()}


def _split_field(data: bytes) -> tuple[bytes, bytes]:
    """Return the first field of a key file, and the rest."""
    size = int.from_bytes(data[:4], "big")
    return data[4 : 4 + size], data[4 + size :]


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
