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
# One of the files that slurmctld writes after five minutes, at its end and at a reconfigure (save_all_state). Without
# them 25.11 and later do not start where they have run before: a machine that is cut off sooner would lose its cluster.
ALL_SAVED = "assoc_usage"
MAIL = "/usr/local/sbin/hpc-mail"  # MailProg of slurm.conf
APPLIED = Path("/etc/hpc/slurm-files.json")  # the files that slurmctld runs with
HASH = Path("/etc/hpc/config-hash")  # of those and slurmdbd.conf, to be compared with the stack's `config_hash`
LOG = Path("/var/log/slurm/slurmctld.log")
COMPLETIONS = Path(__file__).with_name("jobcomp.lua")  # looked for beside slurm.conf (plugins/jobcomp/lua)
SUBMISSIONS = COMPLETIONS.with_name("submissions.lua")  # which job_submit.lua begins with
TRIES = 3  # starts by systemd after ours: what ends as often as that, at once, does so for ever
PASSWORD_MARK = "@database-password@"  # noqa: S105 - the mark in the rendered slurmdbd.conf, not a password
# Whoever acts as the user slurm, as root of any machine can, has slurmctld run programs (strigger(1)). They are to find
# no password, no home folder, nothing of the system that they may change, and to be none of a shared folder's.
CONFINED = f"""\
ProtectHome=yes
ProtectSystem=full
NoExecPaths=-/opt/apps -/var/mail -/tmp -/var/tmp -/dev/shm -{STATE} -{LOG.parent}
InaccessiblePaths=-{ETC / "slurmdbd.conf"} -/var/spool/slurmdbd -/var/lib/mysql -/etc/hpc
"""
# A capability that slurmctld lacks, and that is of no use: so the kernel keeps slurmctld's programs, which run as the
# same user, out of slurmdbd's memory and files (ptrace(2), access mode checking). Debian 12's daemon, which starts as
# root, would lose it.
GUARDED = "User=slurm\nGroup=slurm\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n"
KEEP = f"{lost_jobs.PROGRAM} keep-submissions"  # reads alone what slurm wrote, with no more rights than slurm
DROP_INS = {
    # A killed daemon comes back by itself, however often; and after a reboot none starts before what it talks to.
    unit: (
        "# Written by the cluster's set-up.\n"
        f"[Unit]\nAfter={after}\nStartLimitIntervalSec=0\n"
        f"[Service]\nRestart=on-failure\nRestartSec=2\n{more}"
    )
    for unit, after, more in (
        ("mariadb", "network.target", ""),
        # Without it all is well, only slower.
        (
            "slurmdbd",
            "mariadb.service munge.service systemd-tmpfiles-setup.service",
            f"ExecStartPre=-+/bin/sh {Path(__file__).parents[1] / 'quick_acks.sh'}\n{GUARDED}",
        ),
        (
            "slurmctld",
            "slurmdbd.service munge.service remote-fs.target systemd-tmpfiles-setup.service",
            # Not by ExecStartPost: after that, Debian 12's unit would wait for a pid file elsewhere.
            f"{CONFINED}ExecStartPre=-+{KEEP}\n[Unit]\nWants={lost_jobs.UNIT}.service\n",
        ),
    )
}


def prepare() -> None:
    """Create what the daemons do not make themselves: folders, log rotation, and coming back after a failure."""
    for unit, text in DROP_INS.items():
        write_unit(f"/etc/systemd/system/{unit}.service.d/hpc.conf", text)
    write_unit(f"/etc/systemd/system/{lost_jobs.UNIT}.service", lost_jobs.SERVICE)
    slurmd.keep_logs()
    write(MAIL, Path(__file__).with_name("mail.sh").read_text(), mode=0o755)
    for path in (COMPLETIONS, SUBMISSIONS):
        write(ETC / path.name, path.read_text())
    folder("/var/spool/slurmdbd", mode=0o700, owner="slurm")  # purged records are archived here
    # Distributions differ in where the daemons' files are looked for; the field's own folder is /etc/slurm.
    for old in ("/etc/slurm-llnl", "/usr/local/etc/slurm"):
        if Path(old).is_dir() and not Path(old).is_symlink() and not any(Path(old).iterdir()):
            link(old, str(ETC))


def applied() -> dict[str, str]:
    """The files that slurmctld runs with, by name; none before its first start."""
    try:
        return json.loads(APPLIED.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        # Damaged: the files of the last set-up that succeeded.
        payload = phase_state.last_input("configure") or {"files": {}}
        return {n: "\n".join(lines) + "\n" for n, lines in payload["files"].items() if n != "slurmdbd.conf"}


def refuse_other_name(name: str) -> None:
    """Slurm's state, the database and every host name carry the cluster's name. Raises SetupError for another one."""
    runs = conf_changes.cluster(applied().get("slurm.conf", ""))
    if runs and runs != name:
        raise SetupError(
            f"this controller runs cluster {runs}, the stack says {name}. A cluster can't be renamed: put the name "
            f"back, or destroy {runs} and bring up {name}"
        )


def write_files(files: dict[str, str]) -> None:
    """Slurm's files, for the daemons and for every command on this machine."""
    for name, text in files.items():
        write(ETC / name, text)


def accounting_daemon(conf: str, *, before: Callable[[], None]) -> None:
    """slurmdbd.conf (0600: it holds the password) and the daemon. slurm.conf must be there: sacctmgr reads it.

    `before` is called when the database answers, and slurmdbd has not been started.
    """
    text = conf.replace(PASSWORD_MARK, database.PASSWORD.read_text().strip())
    write(ETC / "slurmdbd.conf", text, mode=0o600, owner="slurm")
    database.prepare()
    before()
    _start_slurmdbd(text)


def _start_slurmdbd(conf: str) -> None:
    service("slurmdbd", settings=conf + DROP_INS["slurmdbd"])
    # Also where nothing was to be done: after a boot it runs for seconds before it listens.
    wait("slurmdbd", lambda: listens(SLURMDBD_PORT), seconds=180, unit="slurmdbd")


def register_cluster(name: str) -> None:
    """Make the cluster known to slurmdbd before slurmctld first speaks to it: else the cluster ids will not match."""
    if [name] not in database.sacctmgr_show("cluster", "cluster"):
        run("sacctmgr", "--immediate", "add", "cluster", name)
        log(f"registered cluster {name}")


def register_qos(names: list[str]) -> None:
    """Make QOS that partitions name known to slurmdbd: slurmctld does not start with one that it can't find there.

    Their limits come with the rest of the accounting, once slurmctld runs.
    """
    if not names:
        return
    known = database.sacctmgr_show("qos", "name")
    for name in names:
        if [name] not in known:
            run("sacctmgr", "--immediate", "add", "qos", name)
            log(f"registered QOS {name}")


def controller_daemon(files: dict[str, str]) -> None:
    """Have slurmctld run with `files`, by the mildest means: nothing, reconfigure, or a restart. Jobs survive each.

    What it runs with is remembered after it took it, so that a killed set-up is made good by the next. Raises
    SetupError when slurmctld does not answer afterwards.
    """
    folder(STATE, mode=0o700, owner="slurm")
    old = applied()
    need = conf_changes.need(old, files)
    running = succeeds("systemctl", "is-active", "--quiet", "slurmctld")
    if need is conf_changes.Need.RESTART:
        forget("slurmctld")
    for name in set(old) - set(files):
        # Before the start: the site's rules are read where they are there.
        (ETC / name).unlink(missing_ok=True)
        log(f"removed {ETC / name}")
    _begin()
    answer()
    if running and need is not conf_changes.Need.NOTHING:
        # After a restart too: slurmctld hands out new files to the nodes only on a reconfigure.
        run("scontrol", "reconfigure")
        log("slurmctld: reconfigured")
        answer()
    elif not (STATE / ALL_SAVED).exists():
        run("scontrol", "reconfigure")
        answer()
    write(APPLIED, json.dumps(files), quiet=True)
    write(HASH, digest() + "\n", quiet=True)


def answer() -> None:
    """Wait until slurmctld answers. Raises SetupError with its last messages when it does not, or keeps exiting."""

    def lives(*, there: bool) -> bool:
        if not there and restarts("slurmctld") >= TRIES:
            raise SetupError(f"slurmctld ends as soon as it has started:\n{_complaints() or journal('slurmctld')}")
        return there

    for what, test in (
        ("slurmctld", lambda: lives(there=listens(SLURMCTLD_PORT))),
        ("slurmctld's answer", lambda: lives(there=succeeds("scontrol", "ping"))),
    ):
        wait(what, test, seconds=180, interval=0.2, unit="slurmctld")


def _begin() -> None:
    """Start slurmctld, or restart one that was forgotten, or started by another unit.

    Newer releases notify systemd when they are up: the start of one that ends fails by itself.
    """
    try:
        service("slurmctld", settings=DROP_INS["slurmctld"] + SUBMISSIONS.read_text())
    except SetupError as error:
        raise SetupError(f"slurmctld ends as soon as it has started:\n{_complaints() or error}") from None


def _complaints() -> str:
    """The last errors in slurmctld's log: the journal only says that it has ended."""
    lines = LOG.read_text(errors="replace").splitlines()[-50:] if LOG.exists() else []
    return "\n".join([line for line in lines if "fatal:" in line or "error:" in line][-5:])


@contextmanager
def or_back(files: dict[str, str]) -> Generator[None]:
    """Have the daemons run with the files that they ran with before, where they do not come up with `files`.

    Nothing is put back where there were none, or no others. Raises SetupError, with the reason and what was done.
    """
    old = applied()
    dbd = (ETC / "slurmdbd.conf").read_text() if old and (ETC / "slurmdbd.conf").exists() else ""
    try:
        yield
    except SetupError as error:
        now = (ETC / "slurmdbd.conf").read_text() if dbd else ""
        if not dbd or (conf_changes.need(old, files) is conf_changes.Need.NOTHING and dbd == now):
            raise
        try:
            for name in set(files) - set(old):
                (ETC / name).unlink(missing_ok=True)
            write_files(old)
            write(ETC / "slurmdbd.conf", dbd, mode=0o600, owner="slurm")
            _start_slurmdbd(dbd)
            # slurmctld may run still, with some of the new files taken in, or be about to be restarted by systemd.
            forget("slurmctld")
            _begin()
            answer()
            run("scontrol", "reconfigure")
        except SetupError as worse:
            raise SetupError(
                f"{error}\nWith the files that it ran with before it does not come up either: {worse}"
            ) from None
        raise SetupError(
            f"{error}\nThe edit did not take effect: Slurm's files are again those from before it, and slurmctld runs "
            "with them. Correct the stack file, or take the edit back, and run `up`"
        ) from None


def replace_file(name: str, text: str) -> None:
    """Have slurmctld run with another text of one of its files, by a reconfigure.

    Raises SetupError where it refuses it; then it runs with the text of before.
    """
    old = applied()
    write(ETC / name, text)
    try:
        run("scontrol", "reconfigure")
        answer()
    except SetupError as error:
        write(ETC / name, old[name])
        forget("slurmctld")  # releases before 23.11 end at a file that they refuse
        _begin()
        answer()
        raise SetupError(f"slurmctld refuses it, and runs with the one of before: {_complaints() or error}") from None
    write(APPLIED, json.dumps({**old, name: text}), quiet=True)
    log(f"slurmctld: reconfigured with another {name}")


def digest() -> str:
    """SHA-256 of Slurm's files as they lie here: the stack's output `config_hash`, as long as nobody changes them.

    Names and contents, each after its length, as cluster/slurm has it; the password counts as its mark. The stack does
    not have topology.conf, which follows the nodes' places.
    """
    names = set(applied()) - {conf_changes.TOPOLOGY} | {"slurmdbd.conf"}
    texts = {name: (ETC / name).read_text() for name in names}
    texts["slurmdbd.conf"] = texts["slurmdbd.conf"].replace(database.PASSWORD.read_text().strip(), PASSWORD_MARK)
    total = hashlib.sha256()
    for name in sorted(texts):
        for part in (name.encode(), texts[name].encode()):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()


SLURMRESTD_UNIT = Path("/etc/systemd/system/slurmrestd.service")  # in the place of the package's own
SLURMRESTD, SLURMRESTD_PORT, SLURMRESTD_USER = "/usr/sbin/slurmrestd", 6820, "slurmrestd"


def keep_token_key() -> None:
    """Install the key that slurmctld and slurmdbd are about to read, 0600 and slurm's own.

    Raises SetupError, before anything was changed, where this machine can't run slurmrestd, or has no key.
    """
    if not Path(SLURMRESTD).exists():
        raise SetupError("slurm.slurmrestd: there is no slurmrestd on this machine: its image is of an earlier version")
    if not TOKEN_KEY_DELIVERED.exists():
        raise SetupError(f"slurm.slurmrestd: no key for tokens was delivered: {TOKEN_KEY_DELIVERED} is missing")
    key = TOKEN_KEY_DELIVERED.read_bytes()
    if not TOKEN_KEY.exists() or TOKEN_KEY.read_bytes() != key:
        # They read it when they start, and are started by who calls this; jobs do not notice. Ended first, lest a kill
        # comes between.
        for name in ("slurmctld", "slurmdbd"):
            if succeeds("systemctl", "is-active", "--quiet", name):
                run("systemctl", "stop", name)
    write(TOKEN_KEY, key, mode=0o600, owner="slurm")


def start_slurmrestd() -> None:
    """Have slurmrestd running as a user of its own: it refuses root and slurm. slurmctld must answer."""
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
    """The unit: on the cluster's own network alone, and for nobody without a token. A pure function."""
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
    """Take all of it away; slurmctld and slurmdbd must no longer know the key. Also where there is nothing of it."""
    stop_services("slurmrestd")  # the package's own too, which an image may have left enabled
    if SLURMRESTD_UNIT.exists():
        unread_units()
        SLURMRESTD_UNIT.unlink()
        forget("slurmrestd")
        log("removed slurmrestd's unit")
    for path in (TOKEN_KEY, TOKEN_KEY_DELIVERED):
        path.unlink(missing_ok=True)
    if has_user(SLURMRESTD_USER):
        run("userdel", SLURMRESTD_USER)


JOB_SUBMIT, SITE_RULES = "job_submit.lua", "job_submit_site.lua"
# Of Debian's and Ubuntu's packages, and of SchedMD's own.
LUA_PLUGINS = ("usr/lib/*/slurm-wlm/job_submit_lua.so", "usr/lib/*/slurm/job_submit_lua.so")


def check_job_submit(site_rules: str, root: Path = Path("/")) -> None:
    """Raise SetupError, with the line, where the site's rules are no Lua; and where slurmctld can't run any here.

    slurmctld reports at its start what shows only when the script runs.
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
    # Without a library slurmctld reports that it can't load the plugin.
    if library is not None and (wrong := _lua_error(library, site_rules.encode())):
        raise SetupError(
            f"slurm.job_submit_lua: {wrong}\nNothing was changed. Correct it in the stack file, and run `up`"
        )


def _lua_error(library: ctypes.CDLL, text: bytes) -> str:
    library.luaL_newstate.restype = ctypes.c_void_p
    library.lua_tolstring.restype = ctypes.c_char_p
    state = ctypes.c_void_p(library.luaL_newstate())
    given = (state, text, ctypes.c_size_t(len(text)), f"={SITE_RULES}".encode())
    try:
        # 5.1 has luaL_loadbuffer; since 5.2 that is a macro for this, whose last word is the kind: t, text.
        later = hasattr(library, "luaL_loadbufferx")
        failed = library.luaL_loadbufferx(*given, b"t") if later else library.luaL_loadbuffer(*given)
        return library.lua_tolstring(state, -1, None).decode(errors="replace") if failed else ""
    finally:
        library.lua_close(state)
