"""The controller's daemons: slurmdbd, slurmctld with the files rendered for them, and slurmrestd (Slurm's REST API)."""

import contextlib
import ctypes
import hashlib
import json
import re
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from accounting import database
from jobs import lost_jobs
from slurm import conf_changes, slurmd
from slurm.slurmd import ETC
from system import phase_state
from system.host import (
    SetupError,
    folder,
    forget,
    has_user,
    journal,
    link,
    listens,
    log,
    restarts,
    run,
    service,
    stop_services,
    succeeds,
    unread_units,
    wait,
    write,
    write_unit,
)
from system.protected_files import TOKEN_KEY, TOKEN_KEY_DELIVERED

SLURMCTLD_PORT, SLURMDBD_PORT = 6817, 6819  # as rendered (slurm.conf(5), slurmdbd.conf(5))
STATE = Path("/var/spool/slurmctld")
# One of the files that slurmctld writes after five minutes, at its end and at a reconfigure (save_all_state). 25.11 and
# later do not start without them if they have run before. A machine that loses its power sooner would lose its cluster.
SAVED_STATE = "assoc_usage"
MAIL = "/usr/local/sbin/hpc-mail"  # MailProg of slurm.conf
APPLIED = Path("/etc/hpc/slurm-files.json")  # the files that slurmctld runs with
HASH = Path("/etc/hpc/config-hash")  # of those and slurmdbd.conf, to be compared with the stack's `config_hash`
LOG = Path("/var/log/slurm/slurmctld.log")
# On the state disk: exists while slurmctld runs, or after a run that did not end by itself.
RUNNING = Path("/var/lib/hpc/controller/slurmctld-running")
KILLED = RUNNING.with_name("slurmctld-killed")  # changed at the first start after a kill or a loss of power
# As scontrol prints SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT (src/common/slurm_errno.c), after MessageTimeout.
TIMED_OUT = "Socket timed out on send/recv operation"
MAX_RESTARTS = 3  # by systemd: a daemon that ends at once so often always does
PASSWORD_MARK = "@database-password@"  # noqa: S105 - the mark in the rendered slurmdbd.conf, not a password
# The user slurm, as whom root of any machine can act, can let slurmctld run programs (strigger(1)). They must not read
# passwords or home folders, nor change the system, nor be files of a shared folder.
CONFINED = f"""\
ProtectHome=yes
ProtectSystem=full
NoExecPaths=-/opt/apps -/var/mail -/tmp -/var/tmp -/dev/shm -{STATE} -{LOG.parent}
InaccessiblePaths=-{ETC / "slurmdbd.conf"} -/var/spool/slurmdbd -/var/lib/mysql -/etc/hpc
"""
# slurmdbd has a capability that it does not need and slurmctld does not have. So the kernel denies slurmctld's
# programs, which run as the same user, access to slurmdbd's memory and files (ptrace(2), access mode checking). The
# daemon must not start as root, as Debian 12's does, since it would lose the capability.
GUARDED = "User=slurm\nGroup=slurm\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n"
# SERVICE_RESULT: systemd.exec(5). `exit-code` is an end by itself too, as at a slurm.conf with a mistake.
NOTE_KILLS = f"""\
ExecStartPre=-+/bin/sh -c 'test ! -e {RUNNING} || touch {KILLED}; touch {RUNNING}'
ExecStopPost=-+/bin/sh -c 'case $$SERVICE_RESULT in success|exit-code) rm -f {RUNNING};; esac'
"""
DROP_INS = {
    # systemd restarts a killed daemon, however often. After a reboot, a daemon starts after those that it connects to.
    unit: (
        "# Written by the cluster's set-up.\n"
        f"[Unit]\nAfter={after}\nStartLimitIntervalSec=0\n"
        f"[Service]\nRestart=on-failure\nRestartSec=2\n{more}"
    )
    for unit, after, more in (
        ("mariadb", "network.target", ""),
        # quick_acks.sh may fail: slurmdbd is only slower then.
        (
            "slurmdbd",
            "mariadb.service munge.service systemd-tmpfiles-setup.service",
            f"ExecStartPre=-+/bin/sh {Path(__file__).parents[1] / 'quick_acks.sh'}\n{GUARDED}",
        ),
        (
            "slurmctld",
            "slurmdbd.service munge.service remote-fs.target systemd-tmpfiles-setup.service",
            # Not by ExecStartPost, after which Debian 12's unit would wait for a pid file elsewhere.
            f"{CONFINED}{NOTE_KILLS}[Unit]\nWants={lost_jobs.UNIT}.service\n",
        ),
    )
}


def prepare() -> None:
    """Create what the daemons need: drop-ins of their units, programs, folders and log rotation."""
    for unit, text in DROP_INS.items():
        write_unit(f"/etc/systemd/system/{unit}.service.d/hpc.conf", text)
    write_unit(f"/etc/systemd/system/{lost_jobs.UNIT}.service", lost_jobs.SERVICE)
    slurmd.keep_logs()
    write(MAIL, Path(__file__).with_name("mail.sh").read_text(), mode=0o755)
    folder(RUNNING.parent)
    folder("/var/spool/slurmdbd", mode=0o700, owner="slurm")  # purged records are archived here
    # Distributions differ in the folder of the daemons' files. Here it is /etc/slurm, as in Slurm's documentation.
    for old in ("/etc/slurm-llnl", "/usr/local/etc/slurm"):
        if Path(old).is_dir() and not Path(old).is_symlink() and not any(Path(old).iterdir()):
            link(old, str(ETC))


def killed() -> float | None:
    """Return when slurmctld was first started after its last kill or loss of power; None if there was none."""
    try:
        return KILLED.stat().st_mtime
    except FileNotFoundError:
        return None


def applied() -> dict[str, str]:
    """Return the files that slurmctld runs with, by name; none before its first start."""
    try:
        return json.loads(APPLIED.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        # The record is damaged: return the files of the last set-up that succeeded.
        payload = phase_state.last_input("configure") or {"files": {}}
        return {n: "\n".join(lines) + "\n" for n, lines in payload["files"].items() if n != "slurmdbd.conf"}


def refuse_other_name(name: str) -> None:
    """Raise SetupError if this controller runs a cluster with another name: Slurm's state, the database and every host
    name contain the name."""
    current = conf_changes.cluster_name(applied().get("slurm.conf", ""))
    if current and current != name:
        raise SetupError(
            f"this controller runs cluster {current}, the stack says {name}. A cluster can't be renamed: put the name "
            f"back, or destroy {current} and bring up {name}"
        )


def write_files(files: dict[str, str]) -> None:
    """Write Slurm's files, for the daemons and for every command on this machine."""
    for name, text in files.items():
        write(ETC / name, text)


def run_slurmdbd(conf: str, *, before: Callable[[], None]) -> None:
    """Write slurmdbd.conf (0600, as it contains the password) and run slurmdbd. slurm.conf must be written before,
    since sacctmgr reads it.

    `before` is called when the database answers, before slurmdbd is started.
    """
    text = conf.replace(PASSWORD_MARK, database.PASSWORD.read_text().strip())
    write(ETC / "slurmdbd.conf", text, mode=0o600, owner="slurm")
    database.prepare()
    before()
    _start_slurmdbd(text)


def _start_slurmdbd(conf: str) -> None:
    service("slurmdbd", settings=conf + DROP_INS["slurmdbd"])
    # Also if it was running: after a boot it runs for seconds before it listens.
    wait("slurmdbd", lambda: listens(SLURMDBD_PORT), seconds=180, unit="slurmdbd")


def register(cluster: str, qos: list[str]) -> None:
    """Register the cluster and the QOS of its partitions with slurmdbd before slurmctld first connects to it.

    Otherwise the cluster ids will not match, and slurmctld does not start with a QOS that slurmdbd does not have. Phase
    `accounting` sets the limits of QOS when slurmctld runs.
    """
    for entity, field, names in (("cluster", "cluster", [cluster]), ("qos", "name", qos)):
        registered = database.sacctmgr_show(entity, field) if names else []
        for name in names:
            if [name] not in registered:
                run("sacctmgr", "--immediate", "add", entity, name)
                log(f"registered {entity.replace('qos', 'QOS')} {name}")


def run_slurmctld(files: dict[str, str]) -> None:
    """Run slurmctld with `files`, by the least disruptive action: none, a reconfigure, or a restart. Jobs survive each.

    The files are recorded after slurmctld runs with them, so that the next set-up completes a killed one. Raises
    SetupError if slurmctld does not answer afterwards.
    """
    folder(STATE, mode=0o700, owner="slurm")
    old = applied()
    need = conf_changes.need(old, files)
    running = succeeds("systemctl", "is-active", "--quiet", "slurmctld")
    if need is conf_changes.Need.RESTART:
        forget("slurmctld")
    for name in set(old) - set(files):
        # Before the start: slurmctld reads the site's rules if the file exists.
        (ETC / name).unlink(missing_ok=True)
        log(f"removed {ETC / name}")
    _start_slurmctld()
    wait_for_slurmctld()
    if running and need is not conf_changes.Need.NOTHING:
        # After a restart too: slurmctld sends new files to the nodes only on a reconfigure.
        reconfigure()
        log("slurmctld: reconfigured")
        wait_for_slurmctld()
    elif not (STATE / SAVED_STATE).exists():
        reconfigure()
        wait_for_slurmctld()
    write(APPLIED, json.dumps(files), quiet=True)
    write(HASH, digest() + "\n", quiet=True)


def reconfigure() -> None:
    """Let slurmctld and the nodes read their files again. Raises SetupError: it refuses them, or does not answer.

    One that does not answer in time is restarted first: releases before 24.11.6 may hang in a reconfigure for ever (its
    CHANGELOG; fae866a0d7 of SchedMD/slurm). Jobs survive that.
    """
    try:
        run("scontrol", "reconfigure")
    except SetupError as error:
        if TIMED_OUT not in str(error):
            raise
        log("slurmctld: does not answer to a reconfigure, and is restarted")
        _restart_slurmctld()
        run("scontrol", "reconfigure")


def wait_for_slurmctld() -> None:
    """Wait until slurmctld answers. Raises SetupError with its last errors if it does not, or keeps ending."""

    def check(*, passed: bool) -> bool:
        if not passed and restarts("slurmctld") >= MAX_RESTARTS:
            raise SetupError(f"slurmctld ends as soon as it has started:\n{_last_errors() or journal('slurmctld')}")
        return passed

    for what, test in (
        ("slurmctld", lambda: check(passed=listens(SLURMCTLD_PORT))),
        ("slurmctld's answer", lambda: check(passed=succeeds("scontrol", "ping"))),
    ):
        wait(what, test, seconds=180, interval=0.05, unit="slurmctld")


def _start_slurmctld() -> None:
    """Start slurmctld, or restart one that was forgotten (`forget`) or started with another unit.

    Newer releases notify systemd when they are up, so that systemd reports one that ends as a failed start.
    """
    try:
        service("slurmctld", settings=DROP_INS["slurmctld"])
    except SetupError as error:
        raise SetupError(f"slurmctld ends as soon as it has started:\n{_last_errors() or error}") from None


def _restart_slurmctld() -> None:
    forget("slurmctld")
    _start_slurmctld()
    wait_for_slurmctld()


def _last_errors() -> str:
    """Return the last errors in slurmctld's log. The journal has only its end."""
    lines = LOG.read_text(errors="replace").splitlines()[-50:] if LOG.exists() else []
    return "\n".join([line for line in lines if "fatal:" in line or "error:" in line][-5:])


@contextmanager
def restore_on_failure(files: dict[str, str]) -> Generator[None]:
    """If the daemons do not come up with `files` in this context, run them with the files that they ran with before.

    If there were none before, or no others, nothing is restored. Raises SetupError with the reason and what was done.
    """
    old = applied()
    dbd = (ETC / "slurmdbd.conf").read_text() if old and (ETC / "slurmdbd.conf").exists() else ""
    try:
        yield
    except SetupError as error:
        new_dbd = (ETC / "slurmdbd.conf").read_text() if dbd else ""
        if not dbd or (conf_changes.need(old, files) is conf_changes.Need.NOTHING and dbd == new_dbd):
            raise
        try:
            for name in set(files) - set(old):
                (ETC / name).unlink(missing_ok=True)
            write_files(old)
            write(ETC / "slurmdbd.conf", dbd, mode=0o600, owner="slurm")
            _start_slurmdbd(dbd)
            # slurmctld may still run with some of the new files, or be about to be restarted by systemd.
            _restart_slurmctld()
            reconfigure()
        except SetupError as second:
            raise SetupError(
                f"{error}\nWith the files that it ran with before it does not come up either: {second}"
            ) from None
        raise SetupError(
            f"{error}\nThe edit did not take effect: Slurm's files are again those from before it, and slurmctld runs "
            "with them. Correct the stack file, or take the edit back, and run `up`"
        ) from None


def replace_file(name: str, text: str) -> None:
    """Replace the text of one of slurmctld's files, by a reconfigure.

    Raises SetupError if slurmctld refuses it. Then it runs with the text of before.
    """
    old = applied()
    write(ETC / name, text)
    try:
        reconfigure()
        wait_for_slurmctld()
    except SetupError as error:
        write(ETC / name, old[name])
        _restart_slurmctld()  # releases before 23.11 end at a file that they refuse
        raise SetupError(f"slurmctld refuses it, and runs with the one of before: {_last_errors() or error}") from None
    write(APPLIED, json.dumps({**old, name: text}), quiet=True)
    log(f"slurmctld: reconfigured with another {name}")


def digest() -> str:
    """Return the SHA-256 of Slurm's files on this machine. It is the stack's output `config_hash` until somebody
    changes one.

    It is a hash of names and contents, each after its length, as in cluster/slurm, with the mark in place of the
    password. It leaves out topology.conf, which the stack does not have.
    """
    names = set(applied()) - {conf_changes.TOPOLOGY} | {"slurmdbd.conf"}
    texts = {name: (ETC / name).read_text() for name in names}
    texts["slurmdbd.conf"] = texts["slurmdbd.conf"].replace(database.PASSWORD.read_text().strip(), PASSWORD_MARK)
    total = hashlib.sha256()
    for name in sorted(texts):
        for part in (name.encode(), texts[name].encode()):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()


SLURMRESTD_UNIT = Path("/etc/systemd/system/slurmrestd.service")  # replaces the package's own
SLURMRESTD, SLURMRESTD_PORT, SLURMRESTD_USER = "/usr/sbin/slurmrestd", 6820, "slurmrestd"


def keep_token_key() -> None:
    """Install the key that slurmctld and slurmdbd are about to read, readable by slurm alone.

    Raises SetupError, before anything is changed, if this machine can't run slurmrestd or has no key.
    """
    if not Path(SLURMRESTD).exists():
        raise SetupError("slurm.slurmrestd: there is no slurmrestd on this machine: its image is of an earlier version")
    if not TOKEN_KEY_DELIVERED.exists():
        raise SetupError(f"slurm.slurmrestd: no key for tokens was delivered: {TOKEN_KEY_DELIVERED} is missing")
    key = TOKEN_KEY_DELIVERED.read_bytes()
    if not TOKEN_KEY.exists() or TOKEN_KEY.read_bytes() != key:
        # The daemons read the key when they start, and the caller starts them; jobs go on. They are stopped first, so
        # that a kill in between leaves none running with the old key.
        for name in ("slurmctld", "slurmdbd"):
            if succeeds("systemctl", "is-active", "--quiet", name):
                run("systemctl", "stop", name)
    write(TOKEN_KEY, key, mode=0o600, owner="slurm")


def start_slurmrestd() -> None:
    """Run slurmrestd as a user of its own, since it refuses root and slurm. slurmctld must answer."""
    if not has_user(SLURMRESTD_USER):
        home = ("--no-create-home", "--home-dir", "/nonexistent")
        run("useradd", "--system", "--user-group", *home, "--shell", "/usr/sbin/nologin", SLURMRESTD_USER)
        log(f"made the user {SLURMRESTD_USER}")
    address = socket.gethostbyname(socket.gethostname())
    if address.startswith("127."):
        raise SetupError(f"{socket.gethostname()} is {address} on this machine, where no other reaches slurmrestd")
    text = slurmrestd_unit(address)
    write_unit(SLURMRESTD_UNIT, text)
    service("slurmrestd", settings=text)
    wait("slurmrestd", lambda: listens(SLURMRESTD_PORT), seconds=180, unit="slurmrestd")


def slurmrestd_unit(address: str) -> str:
    """Return the unit of slurmrestd, which listens on the cluster's network only, and requires tokens. A pure
    function."""
    return f"""\
# Written by the cluster's set-up.
[Unit]
Description=Slurm REST daemon
After=network-online.target slurmctld.service
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={SLURMRESTD_USER}
Group={SLURMRESTD_USER}
# The token comes with each request.
Environment=SLURM_JWT=daemon
ExecStart={SLURMRESTD} -a rest_auth/jwt {address}:{SLURMRESTD_PORT}
Restart=on-failure
RestartSec=2
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""


def remove_slurmrestd() -> None:
    """Remove slurmrestd's unit, keys and user, where they exist. slurmctld and slurmdbd must run without the key."""
    stop_services("slurmrestd")  # also the package's own unit, which may be enabled in an image
    if SLURMRESTD_UNIT.exists():
        unread_units()
        SLURMRESTD_UNIT.unlink()
        forget("slurmrestd")
        log("removed slurmrestd's unit")
    for path in (TOKEN_KEY, TOKEN_KEY_DELIVERED):
        path.unlink(missing_ok=True)
    if has_user(SLURMRESTD_USER):
        run("userdel", SLURMRESTD_USER)


JOB_SUBMIT = "job_submit.lua"
# Of Debian's and Ubuntu's packages, and of SchedMD's own.
LUA_PLUGINS = ("usr/lib/*/slurm-wlm/job_submit_lua.so", "usr/lib/*/slurm/job_submit_lua.so")


def check_job_submit(rules: str, root: Path = Path("/")) -> None:
    """Raise SetupError, with the line, if the stack's rules are not valid Lua, and if slurmctld has no Lua plugin here.

    Errors of a valid script are reported by slurmctld at its start.
    """
    plugin = next((path for pattern in LUA_PLUGINS for path in root.glob(pattern)), None)
    if plugin is None:
        raise SetupError(
            "there is no job_submit_lua.so on this machine, which slurmctld needs: install Slurm with its Lua plugins"
        )
    library = None
    for name in re.findall(rb"liblua[-.0-9a-z]*", plugin.read_bytes()):
        with contextlib.suppress(OSError):
            library = library or ctypes.CDLL(name.decode())
    # If there is no library, slurmctld reports that it can't load the plugin.
    if library is not None and (message := _lua_error(library, rules.encode())):
        raise SetupError(
            f"slurm.job_submit_lua: {message}\nNothing was changed. Correct it in the stack file, and run `up`"
        )


def _lua_error(library: ctypes.CDLL, text: bytes) -> str:
    library.luaL_newstate.restype = ctypes.c_void_p
    library.lua_tolstring.restype = ctypes.c_char_p
    state = ctypes.c_void_p(library.luaL_newstate())
    arguments = (state, text, ctypes.c_size_t(len(text)), f"={JOB_SUBMIT}".encode())
    try:
        # Lua 5.1 has luaL_loadbuffer. Since 5.2 that is a macro for luaL_loadbufferx, whose last argument `t` allows
        # text.
        is_5_1 = not hasattr(library, "luaL_loadbufferx")
        failed = library.luaL_loadbuffer(*arguments) if is_5_1 else library.luaL_loadbufferx(*arguments, b"t")
        return library.lua_tolstring(state, -1, None).decode(errors="replace") if failed else ""
    finally:
        library.lua_close(state)
