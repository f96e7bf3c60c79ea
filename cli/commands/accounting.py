"""`./hpc accounting backup` and `restore`."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from cli import console, options
from cli.cluster.cluster import connect
from cli.errors import CliError
from cli.stack import state_dir
from cluster.capability import Capability


def backup(
    stack: options.Stack,
    file: Annotated[
        Path | None,
        Argument(
            metavar="[FILE]",
            help="Where to write it, or in which folder. Default: accounting-backups of the state dir, by time.",
        ),
    ] = None,
) -> None:
    """Write all records of jobs, accounts and users into a file on this machine.

    The cluster goes on meanwhile, and the backup shows one moment of it. It is a gzipped SQL dump that says which
    cluster's it is and ends with a sum, 0600, and appears only when it is whole. Nothing is overwritten.
    """
    cluster = connect(stack, Capability.BACKUP)
    from cli.cluster.backup import default_name, fetch

    # Not the current folder, which for most people is this repository.
    target = file or state_dir.backups()
    target = target / default_name(cluster.name) if target.is_dir() else target
    if not target.parent.is_dir():
        raise CliError(f"{target}: there is no folder {target.parent}. Make it, or give another file.")
    console.note(f"Backing up the accounting of cluster {cluster.name} ...")
    header = fetch(cluster, target)
    size = target.stat().st_size
    amount = f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
    console.line(f"{target}: {header.jobs} job records of {header.date}, Slurm {header.slurm}, {amount}")


def restore(
    stack: options.Stack,
    file: Annotated[
        Path,
        Argument(
            metavar="FILE",
            help="What `accounting backup` wrote: a path, or a name in accounting-backups of the state dir.",
        ),
    ],
    *,
    yes: options.Yes = False,
) -> None:
    """Put a backup in the place of the accounting database. Jobs go on.

    What is there now is backed up first, and kept on the controller. Records of jobs that began after the backup are
    not merged. Accounts, users and QOS are made to match the stack again. The cluster may have been recreated since
    the backup, but must have the same name. Safe to repeat, also after it was cut off.
    """
    from cli.cluster.backup import BackupError, can_read, read_backup, restore_backup, uploaded_name

    file = file if file.exists() or file.name != str(file) else state_dir.backups() / file
    try:
        header = read_backup(file)
    except BackupError as error:
        raise CliError(f"{file}: {error}. Nothing was changed.") from None
    except OSError as error:
        raise CliError(f"{file}: can't be read: {error.strerror}.") from None
    cluster = connect(stack, Capability.BACKUP)
    if header.cluster != cluster.name:
        raise CliError(
            f"{file}: is of cluster {header.cluster}, and stack {stack} is cluster {cluster.name}. Nothing was changed."
        )
    from cli.cluster.scheduler import Scheduler

    release = Scheduler(cluster).run("slurmctld -V").split()[-1]
    if not can_read(release, header.slurm):
        raise CliError(
            f"{file}: was made with Slurm {header.slurm}, whose tables the cluster's {release} can't read. Nothing was "
            "changed."
        )
    what = f"the {header.jobs} job records of {header.date}"
    question = f"Put {what} in the place of what cluster {cluster.name} has recorded?"
    if not yes:
        console.confirm(question, doing=f"restoring {what}")
    from cli.stack import stack_config
    from cluster.slurm.accounting import restore_request

    request = restore_request(uploaded_name(header), header.sha256, stack_config.from_outputs(stack, cluster.outputs))
    restore_backup(cluster, file, header, request)
    console.note(f"Try: ./hpc usage {stack}")
