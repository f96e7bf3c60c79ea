"""The cluster's users and groups as they are on this machine."""

from __future__ import annotations

import grp
import hashlib
import pwd
from typing import Any

from rights import subordinate_ids, sudoers
from system import authorized_keys, homes, text_block, users
from system.host import read_json


def observe() -> dict[str, Any]:
    """Every ordinary user and group here, and which of them the set-up made: users {uid, gid, groups, shell, home,
    sudo, containers}. `sudo` is left out on a machine that does not have it."""
    groups = grp.getgrall()
    roots, ranges = sudoers.named(), subordinate_ids.names()
    managed = read_json(users.MANAGED, {})
    return {
        "managed": managed,
        "users": {
            one.pw_name: {
                "uid": one.pw_uid,
                "gid": one.pw_gid,
                "groups": sorted(g.gr_name for g in groups if one.pw_name in g.gr_mem),
                "shell": one.pw_shell,
                "home": one.pw_dir,
                **({} if roots is None else {"sudo": one.pw_name in roots}),
                "containers": bool(ranges & {one.pw_name, str(one.pw_uid)}),
            }
            for one in pwd.getpwall()
            if one.pw_name in managed.get("users", ()) or 1000 <= one.pw_uid < 60000
        },
        "groups": {
            g.gr_name: g.gr_gid for g in groups if g.gr_name in managed.get("groups", ()) or 1000 <= g.gr_gid < 60000
        },
    }


def keys() -> dict[str, str]:
    """For each user of ours a hash of the SSH keys that we gave; those they added themselves are theirs.

    Where they can't be read, what is in the way.
    """
    managed = read_json(users.MANAGED, {})
    return {name: _keys(str(homes.HOMES / name)) for name in managed.get("users", ())}


def _keys(home: str) -> str:
    try:
        return digest(text_block.block(authorized_keys.text(home)))
    except (authorized_keys.StrangeError, OSError) as error:
        return str(error)


def digest(lines: list[str]) -> str:
    """A hash of keys, in their order."""
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]
