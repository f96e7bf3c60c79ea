"""Another release of Slurm takes over what the one before left: with a copy of it, and a way back.

slurmdbd and slurmctld convert database and state when they first start on them, and no release reads what a newer one
has written. So both are copied before that, to the state disk, and put back where the new daemons do not come up. A
record says which release wrote them last, and which one is about to take over: a run that was killed in between is
undone by the next, whichever release that has.
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
from interface import Release
from jobs import drain
from slurm import output, scheduler, slurmctld
from system.host import SetupError, folder, listens, log, read_json, run, stop_services, succeeds, write

FOLDER = Path("/var/lib/hpc/controller/upgrade")  # on the state disk
RECORD = FOLDER / "release.json"  # {"release": of the state, "taking": the one that is taking over}
DUMP = FOLDER / "accounting.sql.gz"
STATE = FOLDER / "slurmctld"
UNKNOWN = "of an unknown release"  # of a controller that was last set up before there was a record
DAEMONS = ("slurmctld", "slurmdbd")
REPEAT_SECONDS = 60  # how often a conversion says that it goes on


def installed() -> str:
    """Return the release of this machine's Slurm, such as 26.05: `slurmctld -V` prints `slurm-wlm 26.05.5`."""
    return release_of(run("slurmctld", "-V").split()[-1])


def release_of(version: str) -> str:
    """Return the release of a version: 26.05 of 26.05.5; empty where there is none."""
    return ".".join(version.split(".")[:2]) if version[:1].isdigit() else ""


def check_nodes(release: Release | None, *, seconds: float = 0) -> None:
    """Return if no node runs a slurmd of a release before those that Slurm's files are made for: it would not read
    them. Elastic nodes are waited for, which the reconcile loop powers down when their jobs have ended.

    Raises SetupError naming the others, or after `seconds`, before anything is changed.
    """
    if not release:
        return
    oldest, interrupted = release["nodes"], drain.interruption()
    end, again = time.monotonic() + seconds, 0.0
    while True:
        late, elastic = _late(oldest)
        if not late:
            return
        if set(late) - elastic or time.monotonic() > end or interrupted():
            break
        if time.monotonic() > again:
            log(f"waiting for elastic nodes with a Slurm before {oldest}, {seconds:.0f} s at most: {_named(late)}")
            again = time.monotonic() + REPEAT_SECONDS
        time.sleep(2)
    raise SetupError(
        f"these nodes run a Slurm before {oldest}, which would not read Slurm's files: {_named(late)}. Nothing was "
        "changed. Let their machines be recreated, elastic ones by `scontrol power down asap NODES`, then run `up`"
    )


def _late(oldest: str) -> tuple[dict[str, str], set[str]]:
    """Return the nodes with a release before `oldest`, and which of them are elastic."""
    if not (slurmctld.applied() and listens(slurmctld.SLURMCTLD_PORT)):
        return {}, set()
    if oldest > installed():
        return {}, set()  # the stack file names another release than its image has
    nodes = output.node_rows(run("scontrol", "--oneliner", "--all", "show", "node"))
    # A node that is off has the version of its last machine; the next one is of the new image.
    on = {name: row for name, row in nodes.items() if "POWERED_DOWN" not in row.get("State", "")}
    releases = {name: release_of(row.get("Version", "")) for name, row in on.items()}
    late = {name: release for name, release in releases.items() if release and release < oldest}
    return late, {name for name in late if scheduler.ELASTIC in on[name].get("State", "")}


def _named(late: dict[str, str]) -> str:
    named = ", ".join(f"{name} ({release})" for name, release in sorted(late.items())[:8])
    return named + (f", and {len(late) - 8} more" if len(late) > 8 else "")


@contextmanager
def take_over(release: Release | None) -> Generator[Callable[[], None]]:
    """Let the daemons that the caller starts take over what the release before left. The caller calls the function that
    it gets, after it has written Slurm's files and before it starts slurmdbd.

    Raises SetupError for a release that can't, with nothing changed; and for one that did not come up, with everything
    put back.
    """
    new = installed()
    old = _found(new)
    if old in ("", new):
        yield lambda: None
        _note(new)
        return
    if release and old != UNKNOWN and old not in release["takes_over"]:
        raise SetupError(
            f"this machine has Slurm {new}, which does not take over what Slurm {old} left (it does so from "
            f"{', '.join(release['takes_over'])}). Nothing was changed. Put the release back in the stack file "
            "(`slurm.version` or `image`), and run `up`: the controller's machine is recreated with it"
        )

    def before_slurmdbd() -> None:
        _keep(old, new)
        _convert(new)

    try:
        yield before_slurmdbd
    except (SetupError, OSError) as error:
        if _record().get("taking") != new:
            raise  # nothing of Slurm's has run
        put_back(old)
        raise SetupError(
            f"{error}\nSlurm {new} did not take over: state and accounting database are again as Slurm {old} left "
            f"them, and jobs on other machines run on. To go on with Slurm {old}: put it back in the stack file "
            "(`slurm.version` or `image`), and run `up`, which recreates the controller's machine with it. To try "
            "again: run `up`"
        ) from None
    _note(new)
    log(f"Slurm {new} has taken over from Slurm {old}, whose state and database are kept in {FOLDER}")


def _found(new: str) -> str:
    """Return the release that wrote state and database; empty on a new controller. What a killed run left half
    converted is put back first, or noted as done where that run came to its end."""
    record = _record()
    if record.get("taking"):
        if record["taking"] != new or not succeeds("scontrol", "ping"):
            put_back(record["release"])
            return record["release"]
        _note(new)
        return new
    if record:
        return record["release"]
    if not (slurmctld.STATE / "clustername").exists():
        return ""
    return new if slurmctld.applied() else UNKNOWN


def _record() -> dict[str, str]:
    return read_json(RECORD, {})


def _note(release: str, *, taking: str = "") -> None:
    folder(FOLDER, mode=0o700)
    write(RECORD, json.dumps({"release": release, **({"taking": taking} if taking else {})}) + "\n", quiet=True)


def _keep(old: str, new: str) -> None:
    """Stop the daemons, and copy state and database. Both copies are complete before the record names them."""
    run("systemctl", "stop", *DAEMONS)
    folder(FOLDER, mode=0o700)
    part, half = DUMP.with_suffix(".part"), STATE.with_suffix(".half")
    with part.open("wb") as out:
        part.chmod(0o600)
        backup.write_backup(out)
    part.replace(DUMP)
    shutil.rmtree(half, ignore_errors=True)
    run("cp", "--archive", str(slurmctld.STATE), str(half), timeout=3600)
    shutil.rmtree(STATE, ignore_errors=True)
    half.replace(STATE)
    _note(old, taking=new)
    log(f"kept the accounting database and the state as Slurm {old} left them: {DUMP}, {STATE}")


def _convert(new: str) -> None:
    """Run slurmdbd until it has converted the database. It is no unit of systemd's, which would start one that fails
    again and again.

    Raises SetupError with its last errors where it ends, and after START_SECONDS.
    """
    log(f"slurmdbd {new} converts the accounting database")
    began = said = time.monotonic()
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
                if time.monotonic() - said > REPEAT_SECONDS:
                    said = time.monotonic()
                    log(f"slurmdbd still converts, for {(said - began) / 60:.0f} min")
                time.sleep(0.2)
        finally:
            process.terminate()
            process.wait()
    log(f"converted the accounting database in {time.monotonic() - began:.0f} s")


def put_back(old: str) -> None:
    """Put state and database back as they were kept. Another run completes an interrupted one: copies stay."""
    stop_services(*DAEMONS)
    database.prepare()
    backup.load(DUMP, backup.FRESH)
    backup.swap_tables()
    database.query(f"DROP DATABASE IF EXISTS {backup.REPLACED}; DROP DATABASE IF EXISTS {backup.FRESH};")
    # What is there is mounted, so its content changes places and not the folder.
    for path in slurmctld.STATE.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    run("cp", "--archive", f"{STATE}/.", str(slurmctld.STATE), timeout=3600)
    _note(old)
    log(f"state and accounting database are again as Slurm {old} left them")
