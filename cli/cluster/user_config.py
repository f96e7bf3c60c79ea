"""Writes the ssh_config of a stack into the state dir, for the user's ssh, scp, rsync and editors."""

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
class StackFiles:
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
        """The admin key, which only `--admin` writes."""
        return self._file("key")

    def remove(self) -> None:
        for path in (self.config, self.known_hosts, self.key):
            path.unlink(missing_ok=True)

    def _file(self, kind: str) -> Path:
        return state_dir.directory() / "ssh" / f"{self.stack}.{kind}"


def render(cluster: Cluster, files: StackFiles, *, user: str, admin: bool, nodes: bool) -> tuple[str, dict[str, str]]:
    """Return the text of the ssh_config, and for each machine that is missing in it the reason. Writes its known_hosts,
    and with `admin` the key.

    A user gets the login machines, and with `nodes` the nodes through them. `admin` gets every machine, as root. Raises
    CliError: no target is reached by ssh, or a file can't be written."""
    login = cluster.target(None)
    login = driver_of(login).ssh_target(login, LOOK_UP_SECONDS)
    by_name = {**cluster.targets, login.name: login}
    targets = [target for target in by_name.values() if isinstance(driver_of(target), Ssh)]
    if not admin:
        # Users reach nodes through the login machine only; on the controller only root can log in.
        allowed = [target for target in targets if "login" in target.roles or (nodes and "node" in target.roles)]
        direct = {target.name for target in allowed if target.direct or "login" in target.roles}
        targets = [target if target.name in direct else replace(target, jump=login) for target in allowed]
    if login not in targets:
        raise CliError(f"{login.name} is not reached by ssh, so there is no ssh_config for it. Use: ./hpc run")
    keys, missing = _host_keys(cluster, [by_name[target.name] for target in targets])
    write(files.known_hosts, ssh.known_hosts(keys))
    files.key.unlink(missing_ok=True)
    shared = {**ssh.PINNED, "User": user, "UserKnownHostsFile": ssh.quoted(files.known_hosts)}
    if admin:
        write(files.key, cluster.admin_key if cluster.admin_key.endswith("\n") else f"{cluster.admin_key}\n")
        shared |= {"IdentityFile": ssh.quoted(files.key), "IdentitiesOnly": "yes", "IdentityAgent": "none"}
    hosts = [
        Host(
            names=[*([files.stack] if target.name == login.name else []), target.name],
            options={**ssh.route_options(target), **shared, **(_shared_connection(files) if target.direct else {})},
        )
        for target in targets
        if target.name in keys
    ]
    return ssh.render(hosts), missing


def _shared_connection(files: StackFiles) -> dict[str, str]:
    """Return the options that share one connection to a host. Not for a host behind a jump host: ssh would hide the
    jump host's errors."""
    folder = files.config.parent
    if len(str(folder)) > _LONGEST_SOCKET:
        return {}
    return {"ControlMaster": "auto", "ControlPath": ssh.quoted(folder)[:-1] + '/%C"', "ControlPersist": "60"}


def _host_keys(cluster: Cluster, targets: list[Target]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the host keys of targets, read from jump hosts if the outputs lack them, and why others are unknown."""
    keys = {target.name: target.host_key for target in targets if target.host_key}
    unknown = [target for target in targets if not target.host_key]
    if not unknown:
        return keys, {}
    published, missing = Ssh().host_keys(unknown, cluster.admin_key)
    return {**keys, **published}, missing


def write(path: Path, text: str) -> None:
    """Write a file of the stack. Raises CliError: it can't be written."""
    try:
        state_dir.write_file(path, text)
    except OSError as error:
        raise CliError(f"{path}: can't be written: {error.strerror}.") from None
