"""The accounting database: MariaDB, sized and hardened, with slurmdbd's own database and user; and questions to it.

What `mysql_secure_installation` asks a person is done here by statements. One answer differs: root keeps logging in
over the Unix socket, so there is no root password to lose."""

import os
from pathlib import Path

from system.host import SetupError, run, service, succeeds, wait, write
from system.protected_files import DATABASE_PASSWORD as PASSWORD

CONFIG = Path("/etc/mysql/mariadb.conf.d/zz-hpc.cnf")  # the last one read: an image may bring settings of its own
GIB = 1 << 30
DATABASE = "slurm_acct_db"
QUERY_SECONDS = 3600.0  # millions of job records


def configure() -> bool:
    """Write the server's settings and have it start; True when it was (re)started. Does not wait until it answers."""
    text = settings(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if run("systemctl", "show", "--property=ActiveState", "--value", "mariadb").strip() == "activating":
        # A boot has started it already. A SIGTERM in the middle of its start may hang it, and systemd waits a quarter
        # of an hour for its end.
        succeeds("systemctl", "start", "mariadb", timeout=180)
    write(CONFIG, text)
    return service("mariadb", settings=text, block=False)


def settings(memory: int) -> str:
    """The server's settings for a machine with `memory` bytes.

    The values are those of Slurm's accounting page ("Slurm Accounting Configuration Before Build"), but the buffer
    pool: 4 GiB where the machine can spare it, else an eighth of its memory, since slurmctld shares the machine, and
    never less than the 512 MiB below which slurmdbd complains.
    """
    pool = min(4 * GIB, max(GIB // 2, memory // 8)) >> 20
    return (
        "# Written by the cluster's set-up; changes here are overwritten.\n"
        "[mysqld]\n"
        "bind-address = 127.0.0.1\n"
        f"innodb_buffer_pool_size = {pool}M\n"
        "innodb_log_file_size = 64M\n"
        "innodb_lock_wait_timeout = 900\n"
        "max_allowed_packet = 16M\n"
        # On since MariaDB 11.6.2, where two of slurmdbd's statements on one row then end in error 1020 ("Record has
        # changed since last read"); servers that do not know it skip what is loose.
        "loose-innodb-snapshot-isolation = OFF\n"
        # From MariaDB 11.4 on a server without a certificate makes one at each start, with an RSA key of 4096 bits: a
        # second of a processor, and nobody but this machine reaches it. Its clients then insist on TLS, so they do not.
        "ssl = OFF\n"
        "[client]\n"
        "disable-ssl-verify-server-cert\n"
    )


def prepare() -> None:
    """Wait for the server, harden it, and make database and user for slurmdbd. Safe to run again.

    Raises SetupError when the server does not answer.
    """
    if not PASSWORD.exists():
        raise SetupError(f"no database password was delivered: {PASSWORD} is missing")
    # Returns when the start that `configure` asked for has ended: until then each question would be a client in vain.
    succeeds("systemctl", "start", "mariadb", timeout=180)
    # Its socket is there before it answers, and may be left from a server that was killed.
    wait("MariaDB", lambda: succeeds("mariadb", "--batch", "-e", "SELECT 1"), seconds=180, interval=0.3, unit="mariadb")
    # On standard input: a password on a command line is readable by every user of the machine.
    run("mariadb", "--batch", stdin=statements(PASSWORD.read_text().strip()))


def statements(password: str) -> str:
    """SQL that makes the state right whatever it was. `password` has letters and digits only (it is generated so)."""
    if not password.isalnum():
        raise SetupError("the database password must have letters and digits only")
    return (
        # Nothing is injected: the password was checked above.
        "DELETE FROM mysql.global_priv WHERE User = '';\n"  # noqa: S608
        "DELETE FROM mysql.global_priv WHERE User = 'root' AND Host NOT IN ('localhost', '127.0.0.1', '::1');\n"
        "DROP DATABASE IF EXISTS test;\n"
        "DELETE FROM mysql.db WHERE Db = 'test' OR Db = 'test\\_%';\n"
        "FLUSH PRIVILEGES;\n"
        "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"
        f"CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY '{password}';\n"
        f"ALTER USER 'slurm'@'localhost' IDENTIFIED BY '{password}';\n"
        "GRANT ALL PRIVILEGES ON slurm_acct_db.* TO 'slurm'@'localhost';\n"
    )


def query(statement: str) -> list[list[str]]:
    """The rows that a statement gives, as text; root needs no password on the server's socket."""
    out = run("mariadb", "--batch", "--raw", "--skip-column-names", stdin=statement, timeout=QUERY_SECONDS)
    return [line.split("\t") for line in out.removesuffix("\n").split("\n")] if out else []


def sacctmgr_show(kind: str, *fields: str, timeout: float = 120) -> list[list[str]]:
    """The rows that `sacctmgr show` prints of a kind. Raises SetupError where slurmdbd does not answer."""
    form = f"format={','.join(fields)}"
    text = run("sacctmgr", "--noheader", "--parsable2", "show", *kind.split(), form, timeout=timeout)
    return [line.split("|") for line in text.split("\n") if line]


def tables(database: str) -> set[str]:
    """Names of a database's tables; none if there is no such database."""
    found = query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}';")  # noqa: S608 - constants of ours
    return {name for (name,) in found}


def cluster_name() -> str:
    """The cluster of this controller, as slurm.conf has it."""
    for line in Path("/etc/slurm/slurm.conf").read_text().split("\n"):
        if line.startswith("ClusterName="):
            return line.partition("=")[2].strip()
    raise SetupError("/etc/slurm/slurm.conf names no cluster: bring the stack up first")
