"""The accounting database: settings of MariaDB, slurmdbd's database and user, and queries.

SQL statements do what `mysql_secure_installation` does after its questions. One answer differs: root logs in over the
Unix socket without a password."""

import os
from pathlib import Path

from system.host import SetupError, run, service, succeeds, wait, write
from system.protected_files import DATABASE_PASSWORD as PASSWORD

CONFIG = Path("/etc/mysql/mariadb.conf.d/zz-hpc.cnf")  # read last, after settings that an image may have
GIB = 1 << 30
DATABASE = "slurm_acct_db"
QUERY_SECONDS = 3600.0  # millions of job records


def configure() -> bool:
    """Write the server's settings and start it, without waiting until it answers; return whether it was restarted."""
    text = settings(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if run("systemctl", "show", "--property=ActiveState", "--value", "mariadb").strip() == "activating":
        # The boot is starting it. A SIGTERM during the start may hang it until systemd's timeout, a quarter of an hour.
        succeeds("systemctl", "start", "mariadb", timeout=180)
    write(CONFIG, text)
    return service("mariadb", settings=text, block=False)


def settings(memory: int) -> str:
    """Return the server's settings for a machine with `memory` bytes.

    The values are those of Slurm's accounting page ("Slurm Accounting Configuration Before Build"), except for the
    buffer pool: an eighth of the memory, since slurmctld runs there too, but at most 4 GiB and at least 512 MiB, below
    which slurmdbd logs an error.
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
        # Its default is ON since MariaDB 11.6.2. Two of slurmdbd's statements on one row then fail with error 1020
        # ("Record has changed since last read"). Servers without the option ignore it (`loose-`).
        "loose-innodb-snapshot-isolation = OFF\n"
        # From 11.4 on, a server without a certificate generates one at each start, with an RSA key of 4096 bits. That
        # takes a second, and only this machine reaches the server. Its clients must then not require TLS.
        "ssl = OFF\n"
        "[client]\n"
        "disable-ssl-verify-server-cert\n"
    )


def prepare() -> None:
    """Wait for the server, harden it, and create database and user for slurmdbd. It is idempotent.

    Raises SetupError if the server does not answer.
    """
    if not PASSWORD.exists():
        raise SetupError(f"no database password was delivered: {PASSWORD} is missing")
    # Returns after the start that `configure` requested. Until then no client can connect.
    succeeds("systemctl", "start", "mariadb", timeout=180)
    # The socket exists before the server answers, and may be left by a killed server.
    wait("MariaDB", lambda: succeeds("mariadb", "--batch", "-e", "SELECT 1"), seconds=180, interval=0.3, unit="mariadb")
    # On standard input: a password on a command line is readable by every user of the machine.
    run("mariadb", "--batch", stdin=statements(PASSWORD.read_text().strip()))


def statements(password: str) -> str:
    """Return SQL that hardens the server and sets up slurmdbd's user, whose generated password is alphanumeric."""
    if not password.isalnum():
        raise SetupError("the database password must have letters and digits only")
    return (
        # No SQL can be injected: the password was checked above.
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
    """Run a statement as root over the server's socket, and return its rows as text."""
    out = run("mariadb", "--batch", "--raw", "--skip-column-names", stdin=statement, timeout=QUERY_SECONDS)
    return [line.split("\t") for line in out.removesuffix("\n").split("\n")] if out else []


def sacctmgr_show(kind: str, *fields: str, timeout: float = 120) -> list[list[str]]:
    """Return the rows of `sacctmgr show` for a kind of entity. Raises SetupError if slurmdbd does not answer."""
    form = f"format={','.join(fields)}"
    text = run("sacctmgr", "--noheader", "--parsable2", "show", *kind.split(), form, timeout=timeout)
    return [line.split("|") for line in text.split("\n") if line]


def tables(database: str) -> set[str]:
    """Return the names of a database's tables; none if there is no such database."""
    rows = query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}';")  # noqa: S608 - constants of ours
    return {name for (name,) in rows}


def cluster_name() -> str:
    """Return the name of the cluster in the controller's slurm.conf. Raises SetupError if there is none."""
    for line in Path("/etc/slurm/slurm.conf").read_text().split("\n"):
        if line.startswith("ClusterName="):
            return line.partition("=")[2].strip()
    raise SetupError("/etc/slurm/slurm.conf names no cluster: bring the stack up first")


def count_jobs(number: int) -> str:
    """Return `1 job`, `2 jobs`."""
    return f"{number} job{'' if number == 1 else 's'}"
