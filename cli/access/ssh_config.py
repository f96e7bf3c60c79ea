"""The text of an ssh_config and of the known_hosts that it pins, for targets that are reached by ssh."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.cluster.target import Target
from cli.errors import CliError
from cluster.platforms.gcp import iap

IAP = "iap"
"""The method of targets behind Identity-Aware Proxy; all others of this file are reached by plain ssh."""
_WORD = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?")
_KEY = re.compile(r"[A-Za-z0-9@.-]+ [A-Za-z0-9+/=]+")
PINNED = {
    "StrictHostKeyChecking": "yes",
    "GlobalKnownHostsFile": "/dev/null",
    "UpdateHostKeys": "no",
    "ServerAliveInterval": "15",
}
"""Options of every host: host keys come from the stack's state, and from nowhere else."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """One block of an ssh_config."""

    names: Sequence[str]
    options: Mapping[str, str]


def instance(target: Target) -> iap.Instance:
    """What Identity-Aware Proxy knows a target by."""
    name, project, zone = (checked(target.row.get(key)) for key in ("instance", "project", "zone"))
    return iap.Instance(name=name, project=project, zone=zone)


def route(target: Target) -> dict[str, str]:
    """The options that say where a target is and what leads to it."""
    # By name: a recreated machine may get an address that another one had.
    options = {"HostName": checked(target.address), "Port": str(target.port), "HostKeyAlias": checked(target.name)}
    if target.jump:
        options["ProxyJump"] = checked(target.jump.name)
    elif target.method == IAP:
        # ssh gives the line to a shell, after it has replaced what begins with %.
        options["ProxyCommand"] = shlex.join(["gcloud", *instance(target).piped()]).replace("%", "%%")
    return options


def render(hosts: Iterable[Host]) -> str:
    """The file's text. Values stand as given: `quoted` is for paths."""
    blocks = [
        "\n".join([f"Host {' '.join(host.names)}", *(f"  {name} {value}" for name, value in host.options.items())])
        for host in hosts
    ]
    return "\n\n".join(blocks) + "\n"


def known_hosts(keys: Mapping[str, str]) -> str:
    """The lines of a known_hosts, by the names of targets; targets without a key have none."""
    return "".join(f"{checked(name)} {_checked_key(name, key)}\n" for name, key in keys.items() if key)


def quoted(path: Path) -> str:
    """A path as a value of an ssh_config. Raises CliError: an ssh_config can't name it."""
    text = str(path)
    if re.search(r'["\\\x00-\x1f]|\$\{', text):
        raise CliError(f"{text!r}: a path in an ssh_config can hold no quote, backslash, line break or ${{...}}.")
    return f'"{text.replace("%", "%%")}"'


def checked(word: object) -> str:
    """A name or an address, which goes into the file as it is. Raises CliError: it is more than one plain word."""
    if not isinstance(word, str) or not _WORD.fullmatch(word):
        raise CliError(f"the stack's outputs name {word!r}, which is no name or address of a machine.")
    return word


def _checked_key(name: str, key: str) -> str:
    # What follows the key itself is a comment.
    found = _KEY.match(key)
    if not found or "\n" in key or not key.isprintable():
        raise CliError(f"{name}: {key[:60]!r} is no public SSH host key.")
    return found[0]
