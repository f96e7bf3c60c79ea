"""Change of the release of Slurm: state and accounting database are copied first, and restored if it fails.

slurmdbd and slurmctld convert database and state when they first start on them, and no release reads what a newer one
has written. So both are copied before that, to the state disk, and restored if the new daemons do not come up. A record
has the release that wrote them last, and the one that is about to take over: the next run undoes one that was killed in
between, whichever release that has.
"""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from accounting import backup, database
from interface import ReleaseInput
from jobs import drain_leaving
from slurm import nodes, slurmctld
from system.host import SetupError, folder, listens, log, read_json, run, stop_services, succeeds, write

FOLDER = Path("/var/lib/hpc/controller/upgrade")  # on the state disk
RECORD = FOLDER / "release.json"  # {"release": of the state, "taking": the one that is taking over}
DUMP = FOLDER / "accounting.sql.gz"
STATE = FOLDER / "slurmctld"
UNKNOWN = "of an unknown release"  # if the controller was last set up before there was a record
DAEMONS = ("slurmctld", "slurmdbd")
LOG_SECONDS = 60  # between two lines of the log about the same wait


def installed() -> str:
    """Return the release of this machine's Slurm, such as 26.05: `slurmctld -V` prints `slurm-wlm 26.05.5`."""
    return release_of(run("slurmctld", "-V").split()[-1])


def release_of(version: str) -> str:
    """Return the release of a version: 26.05 for 26.05.5; empty where there is none."""
    return ".".join(version.split(".")[:2]) if version[:1].isdigit() else ""


def check_nodes(release: ReleaseInput | None, *, seconds: float = 0) -> None:
    """Raise SetupError, naming the nodes, if a slurmd is of a release before those that Slurm's files are made for, as
    it would not read them. Nothing is changed before.

    Elastic nodes are waited for, for `seconds`: the reconcile loop powers them down when their jobs have ended.
    """
    if not release:
        return
    oldest, is_interrupted = release["nodes"], drain_leaving.interruption_check()
    end, next_log = time.monotonic() + seconds, 0.0
    while True:
        old_nodes, elastic = _nodes_before(oldest)
        if not old_nodes:
            return
        names = ", ".join(f"{name} ({release})" for name, release in sorted(old_nodes.items())[:8])
        names += f", and {len(old_nodes) - 8} more" if len(old_nodes) > 8 else ""
        if set(old_nodes) - elastic or time.monotonic() > end or is_interrupted():
            break
        if time.monotonic() > next_log:
            log(f"waiting for elastic nodes with a Slurm before {oldest}, {seconds:.0f} s at most: {names}")
            next_log = time.monotonic() + LOG_SECONDS
        time.sleep(2)
    raise SetupError(
        f"these nodes run a Slurm before {oldest}, which would not read Slurm's files: {names}. Nothing was "
        "changed. Let their machines be recreated, elastic ones by `scontrol power down asap NODES`, then run `up`"
    )


def _nodes_before(oldest: str) -> tuple[dict[str, str], set[str]]:
    """Return the release of each node with one before `oldest`, and which of these nodes are elastic."""
    if not (slurmctld.applied() and listens(slurmctld.SLURMCTLD_PORT)):
        return {}, set()
    if oldest > installed():
        return {}, set()  # the stack file names another release than its image has
    # A node that is off has the version of its last machine; the next one is of the new image.
    on = {name: node for name, node in nodes.parse(run(*nodes.COMMAND)).items() if not node.off}
    releases = {name: release_of(node.version) for name, node in on.items()}
    old_nodes = {name: release for name, release in releases.items() if release and release < oldest}
    return old_nodes, {name for name in old_nodes if on[name].elastic}


@contextmanager
def take_over(release: ReleaseInput | None) -> Generator[Callable[[], None]]:
    """Let the daemons that are started in this context take over state and database of the release before. The caller
    calls the function that it gets after it has written Slurm's files, and before it starts slurmdbd.

    Raises SetupError for a release that can't take over, with nothing changed; and for one that did not come up, with
    everything restored.
    """
    new = installed()
    old = _previous_release(new)
    if old in ("", new):
        yield lambda: None
        _write_record(new)
        return
    if release and old != UNKNOWN and old not in release["takes_over"]:
        raise SetupError(
            f"this machine has Slurm {new}, which does not take over what Slurm {old} left (it does so from "
            f"{', '.join(release['takes_over'])}). Nothing was changed. Put the release back in the stack file "
            "(`slurm.version` or `image`), and run `up`: the controller's machine is recreated with it"
        )

    def before_slurmdbd() -> None:
        _copy(old, new)
        _convert(new)

    try:
        yield before_slurmdbd
    except (SetupError, OSError) as error:
        if _record().get("taking") != new:
            raise  # no daemon of the new release has run
        restore(old)
        raise SetupError(
            f"{error}\nSlurm {new} did not take over: state and accounting database are again as Slurm {old} left "
            f"them, and jobs on other machines run on. To go on with Slurm {old}: put it back in the stack file "
            "(`slurm.version` or `image`), and run `up`, which recreates the controller's machine with it. To try "
            "again: run `up`"
        ) from None
    _write_record(new)
    log(f"Slurm {new} has taken over from Slurm {old}, whose state and database are kept in {FOLDER}")


def _previous_release(new: str) -> str:
    """Return the release that wrote state and database; empty on a new controller. If a run was killed during the
    conversion, both are restored first, or its end is recorded if slurmctld came up."""
    record = _record()
    if record.get("taking"):
        if record["taking"] != new or not succeeds("scontrol", "ping"):
            restore(record["release"])
            return record["release"]
        _write_record(new)
        return new
    if record:
        return record["release"]
    if not (slurmctld.STATE / "clustername").exists():
        return ""
    return new if slurmctld.applied() else UNKNOWN


def _record() -> dict[str, str]:
    return read_json(RECORD, {})


def _write_record(release: str, *, taking: str = "") -> None:
    folder(FOLDER, mode=0o700)
    write(RECORD, json.dumps({"release": release, **({"taking": taking} if taking else {})}) + "\n", quiet=True)


def _copy(old: str, new: str) -> None:
    """Stop the daemons, and copy state and database. Both copies are complete before the record names them."""
    run("systemctl", "stop", *DAEMONS)
    folder(FOLDER, mode=0o700)
    partial_dump, partial_state = DUMP.with_suffix(".part"), STATE.with_suffix(".half")
    with partial_dump.open("wb") as out:
        partial_dump.chmod(0o600)
        backup.write_backup(out)
    partial_dump.replace(DUMP)
    shutil.rmtree(partial_state, ignore_errors=True)
    run("cp", "--archive", str(slurmctld.STATE), str(partial_state), timeout=3600)
    shutil.rmtree(STATE, ignore_errors=True)
    partial_state.replace(STATE)
    _write_record(old, taking=new)
    log(f"kept the accounting database and the state as Slurm {old} left them: {DUMP}, {STATE}")


def _convert(new: str) -> None:
    """Run slurmdbd until it has converted the database. It does not run as systemd's unit, as systemd would restart a
    failing one again and again.

    Raises SetupError with its last errors if it ends, and after START_SECONDS.
    """
    log(f"slurmdbd {new} converts the accounting database")
    began = logged = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        command = ["setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", "slurmdbd", "-D"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while not listens(slurmctld.SLURMDBD_PORT):
                if process.poll() is not None:
                    errors.seek(0)
                    lines = errors.read().decode(errors="replace").splitlines()
                    why = [line for line in lines if "error:" in line or "fatal:" in line] or lines
                    raise SetupError("\n".join([f"slurmdbd {new} ends as soon as it has started:", *why[-5:]]))
                if time.monotonic() - began > backup.START_SECONDS:
                    raise SetupError(f"slurmdbd {new} did not come up within {backup.START_SECONDS:.0f} s")
                if time.monotonic() - logged > LOG_SECONDS:
                    logged = time.monotonic()
                    log(f"slurmdbd still converts, for {(logged - began) / 60:.0f} min")
                time.sleep(0.2)
        finally:
            process.terminate()
            process.wait()
    log(f"converted the accounting database in {time.monotonic() - began:.0f} s")


def restore(old: str) -> None:
    """Restore state and database from their copies. The copies stay, so that the next run completes an interrupted
    one."""
    stop_services(*DAEMONS)
    database.prepare()
    backup.load(DUMP, backup.FRESH)
    backup.swap_tables()
    database.query(f"DROP DATABASE IF EXISTS {backup.REPLACED}; DROP DATABASE IF EXISTS {backup.FRESH};")
    # The folder may be a mount point, so only its content is replaced.
    for path in slurmctld.STATE.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    run("cp", "--archive", f"{STATE}/.", str(slurmctld.STATE), timeout=3600)
    _write_record(old)
    log(f"state and accounting database are again as Slurm {old} left them")
