"""Collects the state of this machine as one JSON document, which `./hpc status` and `./hpc drift` check.

It changes nothing and takes no lock, so that it works while a set-up runs. Every part has a deadline: a file system or
a daemon that hangs costs only its own part, which then has an error instead of a value.
"""

import grp
import hashlib
import json
import os
import pwd
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import lost_jobs
from judge.findings import findings
from monitoring import service as monitoring
from slurm import slurmd
from system import (
    authorized_keys,
    cluster_state,
    homes,
    installation,
    mounts,
    munge,
    phase_state,
    protected_files,
    software,
    text_block,
    users,
)
from system.host import Part, SetupError, journal, read_json, run, side_by_side, timeout_factor, which

UNITS = {
    "controller": ("munge", "mariadb", "slurmdbd", "slurmctld", "ssh"),
    "login": ("munge", "ssh"),
    "monitoring": ("munge", "ssh"),
    "node": ("munge", "slurmd", "ssh"),
}
NODE_UNITS = ("hpc-node", "hpc-watch")  # on machines that set themselves up
JOURNAL_LINES = 12
PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,NRestarts,StateChangeTimestampMonotonic,ActiveEnterTimestampMonotonic"
)


def units_of(roles: list[str]) -> list[str]:
    """Return the units that a machine with these roles runs."""
    # A machine has no role before its set-up has succeeded.
    names = [*(unit for role in roles for unit in UNITS[role]), "munge", "ssh"]
    payload = (phase_state.last_input("configure") if "controller" in roles else None) or {}
    names += ["slurmrestd"] if payload.get("slurmrestd") else []
    names += ["hpc-reconcile"] if payload.get("reconcile") else []
    names += ["hpc-topology"] if (payload.get("topology") or {}).get("places") else []
    names += monitoring.units()
    return [*dict.fromkeys(names), *(NODE_UNITS if roles == ["node"] else ())]


def unit_states(units: list[str]) -> dict[str, dict[str, Any]]:
    """Return the state of each unit, with times in seconds since the epoch (0: never), and messages of failing ones."""
    text = run("systemctl", "show", f"--property={PROPERTIES}", *units, timeout=3)
    states = parse_units(text, now=time.time(), monotonic=time.monotonic())
    for unit, row in states.items():
        if row["state"] != "active" or row["restarts"]:
            row["journal"] = journal(unit, JOURNAL_LINES, timeout=2).splitlines()
    return states


def parse_units(text: str, *, now: float, monotonic: float) -> dict[str, dict[str, Any]]:
    """Parse the output of `systemctl show`, which has a block per unit. A pure function.

    Its times are microseconds of the monotonic clock, which is independent of time zones and of changes of the clock.
    """
    states: dict[str, dict[str, Any]] = {}
    for block in text.strip().split("\n\n"):
        row = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        states[row["Id"].partition(".service")[0]] = {
            "state": row["ActiveState"] if row["LoadState"] == "loaded" else row["LoadState"],
            "sub": row["SubState"],
            "result": row.get("Result", ""),
            "restarts": int(row.get("NRestarts") or 0),
            "since": _when(row.get("StateChangeTimestampMonotonic", ""), now, monotonic),
            "started": _when(row.get("ActiveEnterTimestampMonotonic", ""), now, monotonic),
        }
    return states


def _when(microseconds: str, now: float, monotonic: float) -> float:
    return round(now - monotonic + int(microseconds) / 1e6, 1) if microseconds.strip("0") else 0.0


def unix_accounts() -> dict[str, Any]:
    """Return the ordinary users and groups of this machine, and the names of those that the set-up made (`managed`).

    Users have {uid, gid, groups, shell, home, sudo, containers}, without `sudo` on a machine that does not have it.
    """
    groups = grp.getgrall()
    sudo_users, ranges = users.sudo_users(), users.subordinate_id_owners()
    managed = read_json(users.MANAGED, {})
    return {
        "managed": managed,
        "users": {
            user.pw_name: {
                "uid": user.pw_uid,
                "gid": user.pw_gid,
                "groups": sorted(g.gr_name for g in groups if user.pw_name in g.gr_mem),
                "shell": user.pw_shell,
                "home": user.pw_dir,
                **({} if sudo_users is None else {"sudo": user.pw_name in sudo_users}),
                "containers": bool(ranges & {user.pw_name, str(user.pw_uid)}),
            }
            for user in pwd.getpwall()
            if user.pw_name in managed.get("users", ()) or 1000 <= user.pw_uid < 60000
        },
        "groups": {
            g.gr_name: g.gr_gid for g in groups if g.gr_name in managed.get("groups", ()) or 1000 <= g.gr_gid < 60000
        },
    }


def user_keys() -> dict[str, str]:
    """Return a hash of the stack's SSH keys in the home of each of the stack's users, or why they can't be read."""
    hashes: dict[str, str] = {}
    for name in read_json(users.MANAGED, {}).get("users", ()):
        try:
            lines = text_block.lines_in_block(authorized_keys.text(str(homes.HOMES / name)))
            hashes[name] = _hash("\n".join(lines).encode(errors="surrogateescape"))
        except (authorized_keys.UnexpectedFileError, OSError) as error:
            hashes[name] = str(error)
    return hashes


SECONDS = 4.0  # for all parts
CLIENTS = ("slurm ", "accounting ")
CONNECT_SECONDS = 2
CACHE = Path("/var/spool/slurmd/conf-cache")  # files that slurmd fetched from slurmctld (slurmd(8), --conf-server)
SECRET = {"slurmdbd.conf"}
_exists = os.path.exists  # False where Path.exists raises, as on a file system whose server is gone
NVIDIA = Path("/sys/module/nvidia/version")  # the version of the kernel module


def show() -> None:
    """Print the document. Its keys are those of `parts`; a part that can't be read is {"error": why}. `findings` are
    those of the other parts."""
    document = read()
    document["findings"] = [finding._asdict() for finding in findings(document)]
    document["seconds"] = round(time.time() - document["time"], 3)
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def read(names: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """Return the document, of the parts whose names begin with one of `names`."""
    began, seconds = time.time(), SECONDS * timeout_factor()
    own_roles = roles()
    readers = {name: reader for name, reader in parts(own_roles).items() if name.startswith(names)}
    # Clients of daemons, which only the controller has, are faster in parallel.
    together = [name for name in readers if not name.startswith(CLIENTS)]
    found = side_by_side(readers, seconds=seconds, together=together, stuck=seconds / 4)
    return {"name": socket.gethostname(), "roles": own_roles, "time": began, **found}


def roles() -> list[str]:
    """Return the roles of this machine, by the files that its set-up has written."""
    marks = {
        "controller": protected_files.DATABASE_PASSWORD,
        "login": Path("/etc/profile.d/hpc.sh"),
        "node": Path("/etc/hpc/node.json"),
    }
    found = [role for role, mark in marks.items() if _exists(mark)]
    if not found and _exists(monitoring.SETTINGS):
        return ["monitoring"]
    return found if "node" in found or not _exists(Path("/etc/hpc/started/slurmd")) else [*found, "node"]


def parts(own_roles: list[str]) -> dict[str, Part]:
    """Return the readers of the parts of the document, by name. Parts `GROUP NAME` are gathered under GROUP."""
    controls = "controller" in own_roles
    found: dict[str, Part] = {
        # First those that read the machine's own disk, without another program.
        "boot": _boot,
        "followed": lambda: _json("/etc/hpc/orders.json").get("digest", ""),
        "setup": _setup,
        "image": installation.image,
        "files": lambda: _files(controls=controls),
        "unix": unix_accounts,
        "guarded": protected_files.observe,
        "versions": lambda: _versions(controls=controls),
        "software": software.observe,
        "munge": munge.check,
        "daemons": lambda: unit_states(units_of(own_roles)),
        **{f"disks {path}": (lambda path=path: mounts.disk_usage(path)) for path in mounts.local_paths(own_roles)},
    }
    if monitoring.PROMETHEUS in monitoring.units():
        from monitoring import alertmanager, prometheus

        found["alerts"] = prometheus.firing
        found["silences"] = alertmanager.silences
    if "node" in own_roles:
        found["jobs"] = lambda: sorted(lost_jobs.jobs_with_processes())
    if not controls:
        found["controller"] = _controller
    else:
        from accounting import accounts
        from jobs import prologs
        from reconcile import service
        from slurm import scheduler, slurmctld, topology

        found["reconcile"] = service.status
        found["budget"] = service.spending
        if topology.REFUSED.exists():
            found["topology"] = topology.refused
        found["scripts"] = prologs.observe
        found |= {f"slurm {name}": part for name, part in scheduler.PARTS.items()}
        found |= {f"accounting {name}": part for name, part in accounts.PARTS.items()}
        found["accounting hours"] = accounts.hours_used
        found["killed"] = slurmctld.killed
    # Last those on shared file systems, which may hang.
    return found | {
        "cluster_state": lambda: _cluster_state(controls=controls),
        "keys": user_keys,
        **{f"disks {path}": (lambda path=path: mounts.shared_usage(path)) for path in mounts.shared_targets()},
    }


def _json(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    return json.loads(path.read_text()) if path.exists() else {}


def _boot() -> dict[str, Any]:
    mark = Path("/run/hpc/boot-id")
    started = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]  # field 22: when PID 1 began, in ticks
    uptime = float(Path("/proc/uptime").read_text().split()[0]) - int(started) / os.sysconf("SC_CLK_TCK")
    return {"id": mark.read_text() if mark.exists() else "", "uptime": round(uptime, 1)}


def _cluster_state(*, controls: bool) -> dict[str, Any]:
    """Return the newest config version, this machine's report, and what is damaged in the cluster state."""
    value, damaged = read_json(cluster_state.CONFIG, None), ""
    config: dict[str, Any] = value if isinstance(value, dict) else {}
    path = cluster_state.REPORTS / f"{socket.gethostname()}.json"
    report = cluster_state.read_object(path)
    hashed = {name: value for name, value in config.items() if name != "digest"}
    published = cluster_state.CLIENT / "slurm.conf"
    if not (_exists(cluster_state.CONFIG) or report):
        # On other machines the file system may not be mounted, which another part reports.
        if not controls:
            raise SetupError(f"{cluster_state.FOLDER} is empty")
        damaged = f"{cluster_state.FOLDER} is empty"
    elif not config or config.get("digest") != cluster_state.digest(hashed):
        damaged = f"{cluster_state.CONFIG} is not what the controller wrote"
    elif not report and _exists(path):
        damaged = "what this machine reported can't be read"
    elif controls and (
        (published.read_bytes() if _exists(published) else b"") != _applied().get("slurm.conf", "").encode()
    ):
        damaged = f"{published} is not what the controller wrote"
    newest = {name: config.get(name, "") for name in ("digest", "setup", "slurmd")}
    return {"newest": newest, "report": report, "damaged": damaged}


def _setup() -> str:
    """Return a hash of the set-up's files, computed as in components/slurm/payload.py."""
    digest, folder = hashlib.sha256(), str(Path(__file__).parent)
    for name in sorted(_files_in(folder)):
        with open(f"{folder}/{name}", encoding="utf-8") as file:  # noqa: PTH123 - twice as fast as Path.read_text
            text = file.read()
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()[:16]


def _files_in(folder: str, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the files below a folder, without compiled ones."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                yield f"{prefix}{entry.name}"
            elif entry.name != "__pycache__":
                yield from _files_in(entry.path, f"{prefix}{entry.name}/")


def _versions(*, controls: bool) -> dict[str, str]:
    """Return the versions of system, kernel, Slurm, MUNGE, MariaDB on the controller, and NVIDIA's driver if loaded."""
    lines = Path("/etc/os-release").read_text().splitlines()
    # From a daemon if there is one: commands first search for slurm.conf, and wait for it.
    slurm = next((name for name in ("slurmctld", "slurmd") if which(name)), "scontrol")
    found = {
        "os": next((line[12:].strip('"') for line in lines if line.startswith("PRETTY_NAME=")), ""),
        "kernel": os.uname().release,
        "slurm": run(slurm, "-V", timeout=2).split()[-1],
        "munge": run("munge", "--version").split()[0],
    }
    if _exists(NVIDIA):
        found["nvidia"] = NVIDIA.read_text().strip()
    if controls and _exists(Path("/usr/sbin/mariadbd")):
        found["mariadb"] = run("mariadbd", "--version").partition("Ver ")[2].split("-")[0]
    return found


def _files(*, controls: bool) -> dict[str, Any]:
    """Return hashes of Slurm's files in /etc/slurm, in slurmd's cache, and of those that slurmctld runs with.

    On the controller also their texts, with a mark in place of the database's password.
    """
    found: dict[str, Any] = {"etc": _hashes(slurmd.ETC), "cache": _hashes(CACHE)}
    if not controls:
        return found
    applied = _applied()
    found["applied"] = {name: _hash(text.encode()) for name, text in applied.items()}
    texts = {name: (slurmd.ETC / name) for name in [*applied, *SECRET]}
    found["texts"] = {name: _without_password(path.read_text()) for name, path in texts.items() if path.exists()}
    return found


def _applied() -> dict[str, str]:
    """Return the files that slurmctld runs with."""
    from slurm import slurmctld

    return slurmctld.applied()


def _without_password(text: str) -> str:
    """Return the text with a mark in place of the delivered password, and another mark for any other password."""
    from slurm import slurmctld

    password = protected_files.DATABASE_PASSWORD.read_text().strip()
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        name, equals, value = line.partition("=")
        if name.strip().lower() == "storagepass":
            value = slurmctld.PASSWORD_MARK if value.strip() == password else "@another-password@"
        lines.append(f"{name}{equals}{value}")
    return "\n".join(lines) + "\n"


def _hashes(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    # Not even a hash of a short password may leave the machine.
    return {p.name: _hash(p.read_bytes()) for p in sorted(folder.iterdir()) if p.is_file() and p.name not in SECRET}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _controller() -> dict[str, Any]:
    """Return whether this machine reaches slurmctld's port, which slurmd and every command need."""
    host, _, port = _conf_server().partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        return {"host": host, "port": int(port), "reached": False, "why": str(error)}
    return {"host": host, "port": int(port), "reached": True}


def _conf_server() -> str:
    """Return host:port of slurmctld, from node.json or from the slurm.conf that the controller has published."""
    server = _json("/etc/hpc/node.json").get("conf_server", "")
    if server:
        return server
    from slurm.slurmctld import SLURMCTLD_PORT

    for line in (cluster_state.CLIENT / "slurm.conf").read_text().split("\n"):
        if line.startswith("SlurmctldHost="):
            name, _, address = line.partition("=")[2].strip().rstrip(")").partition("(")
            return f"{address or name}:{SLURMCTLD_PORT}"
    raise SetupError("neither node.json nor the published slurm.conf names the controller")
