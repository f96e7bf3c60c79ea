"""The ssh_config of a stack that stays in the state dir, for ssh, scp, rsync and editors of the user."""

from dataclasses import dataclass, replace
from pathlib import Path

from cli.access import ssh
from cli.access.remote import LOOK_UP_SECONDS, driver_of
from cli.access.ssh import Host, Ssh
from cli.access.target import Target
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cli.stack import state_dir

_LONGEST_SOCKET = 104 - len("/" + 40 * "x" + ".0123456789abcdef")
"""Characters of the folder of a ControlPath: a socket's path has 104 at most on macOS, and ssh adds a suffix."""


@dataclass(frozen=True)
class Files:
    """Paths of a stack's files."""

    stack: str

    @property
    def config(self) -> Path:
        """The ssh_config."""
        return self._file("conf")

    @property
    def known_hosts(self) -> Path:
        """The host keys that it pins."""
        return self._file("known_hosts")

    @property
    def key(self) -> Path:
        """The admin key, if it was asked for."""
        return self._file("key")

    def remove(self) -> None:
        for path in (self.config, self.known_hosts, self.key):
            path.unlink(missing_ok=True)

    def _file(self, kind: str) -> Path:
        return state_dir.directory() / "ssh" / f"{self.stack}.{kind}"


def render(cluster: Cluster, files: Files, *, user: str, admin: bool, nodes: bool) -> tuple[str, dict[str, str]]:
    """The text of the ssh_config, and why machines are not in it. Writes its known_hosts, and with `admin` the key.

    A user gets the login machines, and with `nodes` the nodes through them. `admin` gets every machine, as root. Raises
    CliError: no target is reached by ssh, or nothing can be written there."""
    login = cluster.target(None)
    login = driver_of(login).over_ssh(login, LOOK_UP_SECONDS)
    reached = {**cluster.targets, login.name: login}
    targets = [target for target in reached.values() if isinstance(driver_of(target), Ssh)]
    if not admin:
        # Other machines let users in that way only: the controller is root's.
        mine = [target for target in targets if "login" in target.roles or (nodes and "node" in target.roles)]
        direct = {target.name for target in mine if target.direct or "login" in target.roles}
        targets = [target if target.name in direct else replace(target, jump=login) for target in mine]
    if login not in targets:
        raise CliError(f"{login.name} is not reached by ssh, so there is no ssh_config for it. Use: ./hpc run")
    keys, left_out = _host_keys(cluster, [reached[target.name] for target in targets])
    write(files.known_hosts, ssh.known_hosts(keys))
    files.key.unlink(missing_ok=True)
    shared = {**ssh.PINNED, "User": user, "UserKnownHostsFile": ssh.quoted(files.known_hosts)}
    if admin:
        write(files.key, cluster.admin_key if cluster.admin_key.endswith("\n") else f"{cluster.admin_key}\n")
        shared |= {"IdentityFile": ssh.quoted(files.key), "IdentitiesOnly": "yes", "IdentityAgent": "none"}
    hosts = [
        Host(
            names=[*([files.stack] if target.name == login.name else []), target.name],
            options={**ssh.route(target), **shared, **(_sharing(files) if target.direct else {})},
        )
        for target in targets
        if target.name in keys
    ]
    return ssh.render(hosts), left_out


def _sharing(files: Files) -> dict[str, str]:
    """Options that share one connection to a host. Only where none leads to it: ssh would hide that one's errors."""
    folder = files.config.parent
    if len(str(folder)) > _LONGEST_SOCKET:
        return {}
    return {"ControlMaster": "auto", "ControlPath": ssh.quoted(folder)[:-1] + '/%C"', "ControlPersist": "60"}


def _host_keys(cluster: Cluster, targets: list[Target]) -> tuple[dict[str, str], dict[str, str]]:
    """The host keys of targets, asked of jump hosts where only those know them; and why some are not known."""
    keys = {target.name: target.host_key for target in targets if target.host_key}
    unknown = [target for target in targets if not target.host_key]
    if not unknown:
        return keys, {}
    found, left_out = Ssh().host_keys(unknown, cluster.admin_key)
    return {**keys, **found}, left_out


def write(path: Path, text: str) -> None:
    """Write a file of the stack's. Raises CliError: it can't be written."""
    try:
        state_dir.write_file(path, text)
    except OSError as error:
        raise CliError(f"{path}: can't be written: {error.strerror}.") from None
