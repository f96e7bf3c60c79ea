"""Jobs that slurmctld accepted and forgot, because it was killed before it had written them.

slurmctld writes script and environment of a batch job (hash.N/job.ID in its state folder) before it answers sbatch, and
the job itself up to five seconds later (state_save.c). After a kill it deletes the files of jobs that it does not have
(sync_job_files). So the newest ones are kept before each start of slurmctld, and a job that slurmctld does not have
afterwards is submitted again as its user, with its script, its environment, and what it asked for: submissions.lua has
added that to the environment. Jobs of srun and salloc have no such files: slurmctld's log names them, and so do we.
"""

import functools
import json
import os
import pwd
import re
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from accounting import records
from system.host import SetupError, folder, log, open_regular, printable, run, succeeds, wait

STATE = Path("/var/spool/slurmctld")
KEPT = STATE / "hpc-kept"  # as submissions.lua has it; hard links are possible within the state folder alone
WINDOW = "window"  # the file in KEPT with the times between which slurmctld may have forgotten jobs
RUN = Path("/run/hpc/again")
NOTES = Path("/var/lib/hpc/controller/lost_jobs.jsonl")  # on the state disk
LOG = Path("/var/log/slurm/slurmctld.log")
MAIL = "/usr/local/sbin/hpc-mail"
RECORD = "HPC_SUBMISSION"
MARGIN = 60  # seconds that slurmctld may take to write its jobs: one that came meanwhile is newer than the file says
SUBMIT_SECONDS = 60
SLURMDBD_SECONDS = 600  # until slurmdbd answers: its database may have to recover first
AGAIN_SECONDS = 1
ASSOCIATIONS_SECONDS = 60  # after that, until slurmctld has read the associations; it tries every few seconds
MOST_RESERVED = 4096  # numbers
FIRST_USER = 1000  # lower uids are of the system
TAIL = 1 << 22  # bytes of slurmctld's log, and of NOTES
SHOWN = 86400  # seconds for which `status` names a lost job
INTERACTIVE = re.compile(r"^\[([-0-9T:]{19})[^\]]*\] .*_slurm_rpc_allocate_resources JobId=(\d+)")
BEGUN = re.compile(r"^\[([-0-9T:]{19})[^\]]*\] .*(?:Allocate|Started) JobId=(\d+)")


class Kept(NamedTuple):
    """The files of a job, and what submissions.lua noted of it (empty for a job from before there was one)."""

    name: str
    number: int
    submitted: float
    record: dict[str, list[str]]
    script: bytes
    environment: bytes

    def one(self, name: str) -> str:
        return self.record.get(name, [""])[0]


@contextmanager
def as_slurm() -> Generator[None]:
    """Work with the rights of the user slurm, who may put anything in the place of what is in the state folder."""
    account = pwd.getpwnam("slurm")
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def keep() -> None:
    """Before a start of slurmctld: keep the files of all jobs that it may have forgotten."""
    with as_slurm():
        saved = _changed(STATE / "job_state") or 0.0
        found = [(path, at) for path in STATE.glob("hash.*/job.*") if (at := _changed(path) or 0.0) > saved - MARGIN]
        KEPT.mkdir(mode=0o700, exist_ok=True)
        for path, at in found:
            kept = KEPT / f"{path.name}.{at:.6f}"
            half = KEPT / f".{kept.name}"
            if not kept.exists():
                rmtree(half, ignore_errors=True)
                half.mkdir(mode=0o700)
                for name in ("environment", "script"):
                    with suppress(FileNotFoundError):
                        os.link(path / name, half / name)
                half.replace(kept)
        since = min(saved - MARGIN, (_window() or (saved, 0))[0])  # an earlier start may not have been followed up
        half = KEPT / f".{WINDOW}"
        half.write_text(json.dumps([since, time.time()]))
        half.replace(KEPT / WINDOW)


def _changed(path: Path) -> float | None:
    try:
        return path.lstat().st_mtime
    except OSError:
        return None


def submit_again() -> None:
    """After a start of slurmctld: submit again what it has forgotten, and name each such job."""
    with as_slurm():
        window, paths = _window(), list(KEPT.glob("job.*"))
        kept = sorted((one for path in paths if (one := _read(path))), key=lambda one: one.number)
    if window is None:
        return
    wait("slurmctld's answer", lambda: succeeds("scontrol", "ping"), seconds=600, interval=0.2, unit="slurmctld")
    lines = _log_lines(window[0])
    jobs = records.ended(records.TAIL)
    ended = {key for key, job in jobs.items() if not job["job_state"] & records.REQUEUED}
    for number in _interactive(lines, window, {number for number, at in ended if window[0] <= at <= window[1]}):
        _note({"job": number, "why": "a job of srun or salloc: its user has to start it again"})
    lost = [
        one
        for one in kept
        if not _has(one) and not any(n == one.number and abs(at - one.submitted) <= 1 for n, at in ended)
    ]
    begun = {int(found[2]) for line in lines if (found := BEGUN.match(line))}
    numbers: dict[int, int] = {}
    with _reserved([one.number for one in lost]):
        for one in in_order(lost, begun):
            if again := _again(one, numbers, other=one.number in begun):
                numbers[one.number] = again
            with as_slurm():
                _drop(one.name)
    with as_slurm():
        # slurmctld may have been killed again meanwhile, and more been kept.
        for name in [path.name for path in paths] + [WINDOW] * (window == _window()):
            _drop(name)


def in_order(lost: list[Kept], begun: set[int]) -> list[Kept]:
    """Return first the jobs that get their own numbers, by number, since slurmctld counts up. A pure function.

    Those that had begun get other numbers, which those that depend on them have to name.
    """
    late = set(begun)
    for one in lost:
        if late & {int(number) for number in re.findall(r"\d+", one.one("dependency"))}:
            late.add(one.number)
    return sorted(lost, key=lambda one: (one.number in late, one.number))


def _window() -> tuple[float, float] | None:
    try:
        with open_regular(KEPT / WINDOW) as file:
            since, until = json.load(file)
            return float(since), float(until)
    except (OSError, ValueError, TypeError):
        return None


def _read(path: Path) -> Kept | None:
    """A kept job; None for one that slurmctld had not written completely, so that no sbatch had its answer."""
    found = re.fullmatch(r"job\.(\d{1,10})\.(\d+\.\d+)", path.name)
    try:
        with open_regular(path / "environment") as file:
            environment = file.read()[4:]  # after the number of variables
        with open_regular(path / "script") as file:
            script = file.read()
    except OSError:
        return None
    if not found or not script.endswith(b"\0"):
        return None
    record = parse_qs(_value(environment, RECORD), keep_blank_values=True)
    return Kept(path.name, int(found[1]), float(found[2]), record, script[:-1], environment)


def _value(environment: bytes, name: str) -> str:
    start = f"{name}=".encode()
    return next(
        (entry[len(start) :].decode(errors="replace") for entry in environment.split(b"\0") if entry.startswith(start)),
        "",
    )


def _files(number: int) -> Path:
    return STATE / f"hash.{number % 10}" / f"job.{number}"


def _has(one: Kept) -> bool:
    """Return whether slurmctld has the job itself: its files are the kept ones, and not those of a later job."""
    with as_slurm():
        try:
            kept = (KEPT / one.name / "environment").lstat()
            return os.path.samestat(kept, (_files(one.number) / "environment").lstat())
        except OSError:
            return False


def _now(identity: str, since: float) -> int | None:
    """The number of the job with this record's identity that slurmctld has."""
    with as_slurm():
        for path in STATE.glob("hash.*/job.*"):
            at = _changed(path) or 0.0
            if at >= since and identity in _identity(path, at):
                return int(path.name.partition(".")[2])
    return None


@functools.cache
def _identity(path: Path, _at: float) -> list[str]:
    """The identity in a job's record. Each is read once: many may have been lost."""
    try:
        with open_regular(path / "environment") as file:
            return parse_qs(_value(file.read()[4:], RECORD)).get("id", [])
    except OSError:
        return []


def _again(one: Kept, numbers: dict[int, int], *, other: bool) -> int | None:
    """Submit a job again and name it; its number now, or None where that can't be done.

    It has its old number where no other job has that, and `other` one where processes of it may still be on a node:
    slurmctld ends those when the node registers.
    """
    note: dict[str, Any] = {"job": one.number, "user": one.one("uid"), "name": one.one("name")}
    identity, why = one.one("id"), ""
    try:
        account = pwd.getpwuid(int(one.one("uid") or -1))
        note["user"] = account.pw_name
    except (KeyError, ValueError, OverflowError):
        why, account = "it is not noted whose it is", None
    # With a system account's rights sbatch could read files that slurm, who can write here, may not.
    if account and account.pw_uid < FIRST_USER:
        why = f"a job of {account.pw_name}, which is no user's account"
    if one.one("kind"):
        why = f"a {one.one('kind')} job: its user has to submit it again"
    if not why and account:
        # One that an earlier run was killed behind has been submitted again.
        now = _now(identity, one.submitted)
        while now is None:
            why = _submit(one, account, numbers, other=other)
            now = _now(identity, one.submitted)
            if now is None:
                if not succeeds("scontrol", "ping") or _associations_end() < time.monotonic():
                    break
                time.sleep(AGAIN_SECONDS)
        if now is not None:
            note["again"], why = now, ""
        elif not succeeds("scontrol", "ping"):
            raise SetupError(f"job {one.number} of {account.pw_name} is not submitted again: slurmctld does not answer")
    _note({**note, **({"why": why} if why else {})})
    if account and int(one.one("mail_type") or 0):
        _mail(note, one.one("mail_user") or account.pw_name, why)
    return note.get("again")


@functools.cache
def _associations_end() -> float:
    """The time (of time.monotonic()) until which a job that sbatch refuses is tried again.

    A slurmctld that starts before slurmdbd answers has the users, accounts and QOS that it last saved, up to five
    minutes before it was killed, and refuses the jobs of newer ones.
    """
    with suppress(SetupError):
        shown = ("sacctmgr", "--noheader", "show", "cluster")
        wait("slurmdbd's answer", lambda: succeeds(*shown), seconds=SLURMDBD_SECONDS, interval=1, unit="slurmdbd")
    return time.monotonic() + ASSOCIATIONS_SECONDS


def _submit(one: Kept, account: pwd.struct_passwd, numbers: dict[int, int], *, other: bool) -> str:
    """Submit the kept job as its user; the reason where sbatch refuses it.

    Options in the script are read again. Those of the command line, and every change by the site's rules, are in the
    record, which submissions.lua applies.
    """
    place = RUN / one.name
    rmtree(RUN, ignore_errors=True)
    folder(RUN.parent)
    RUN.mkdir(mode=0o711)
    place.mkdir(mode=0o700)
    for name, content in (("job.sh", one.script), ("environment", one.environment)):
        (place / name).write_bytes(content)
        os.chown(place / name, account.pw_uid, account.pw_gid)
    os.chown(place, account.pw_uid, account.pw_gid)
    changed = ",".join(f"{old}={new}" for old, new in numbers.items() if old != new)
    command = [
        *("sbatch", "--parsable", f"--export-file={place}/environment", f"--comment=hpc-again:{one.name}:{changed}"),
        *(f"{place}/job.sh", *one.record.get("argument", ())),
    ]
    try:
        with nullcontext() if other else _given(one.number):
            # A script with `#SBATCH --wait` has sbatch stay until its job's end.
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=SUBMIT_SECONDS,
                check=False,
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=os.getgrouplist(account.pw_name, account.pw_gid),
                env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                cwd="/",
            )
    except subprocess.TimeoutExpired:
        return f"sbatch did not end within {SUBMIT_SECONDS} s"
    except OSError as error:
        return f"sbatch can't be run: {error.strerror}"
    finally:
        rmtree(RUN, ignore_errors=True)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return " / ".join(line.removeprefix("sbatch: error: ") for line in said[-2:]) or "sbatch says no reason"


@contextmanager
def _reserved(numbers: list[int]) -> Generator[None]:
    """Have slurmctld give none of these numbers to a new job: it skips those with files (_dup_job_file_test)."""
    found = re.search(r"^NEXT_JOB_ID\s*=\s*(\d+)", run("scontrol", "show", "config"), re.MULTILINE) if numbers else None
    block = range(int(found[1]), max(numbers) + 1)[:MOST_RESERVED] if found else range(0)
    with as_slurm():
        for number in block:
            _reserve(number)
    try:
        yield
    finally:
        with as_slurm():
            for number in {*block, *numbers}:
                _release(number)


@contextmanager
def _given(number: int) -> Generator[None]:
    """Have slurmctld give the next job this number, where it is the lowest that is not reserved."""
    with as_slurm():
        _release(number)
    yield
    with as_slurm():
        _reserve(number)


def _reserve(number: int) -> None:
    with suppress(OSError):
        _files(number).parent.mkdir(mode=0o700, exist_ok=True)
        _files(number).mkdir(mode=0o700)


def _release(number: int) -> None:
    with suppress(OSError):
        _files(number).rmdir()  # a job's own is not empty


def _log_lines(since: float) -> list[str]:
    try:
        with open_regular(LOG) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    first = time.strftime("[%Y-%m-%dT%H:%M:%S", time.localtime(since))
    return [line for line in lines if line.startswith("[") and line[:20] >= first]


def _interactive(lines: list[str], window: tuple[float, float], ended: set[int]) -> Iterator[int]:
    """Numbers of the jobs of srun and salloc that slurmctld's log has, and slurmctld has not."""
    until = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(window[1]))
    accepted = {int(found[2]) for line in lines if (found := INTERACTIVE.match(line)) and found[1] <= until}
    if accepted:
        rows = run("squeue", "--all", "--noheader", "--states=all", "--format=%A %V").splitlines()
        # A job of the same number may have come since.
        known = {int(number) for number, _, submitted in (row.partition(" ") for row in rows) if submitted <= until}
        yield from sorted(accepted - known - ended)


def _drop(name: str) -> None:
    rmtree(KEPT / name, ignore_errors=True)
    with suppress(OSError):
        (KEPT / name).unlink()


def _note(note: dict[str, Any]) -> None:
    """Name a lost job, in the log of the unit and for `status`."""
    folder(NOTES.parent)
    with NOTES.open("a") as file:
        file.write(json.dumps({"time": int(time.time()), **note}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    log(sentence(note))


def sentence(note: dict[str, Any]) -> str:
    """Return what became of a lost job. A pure function."""
    whose = f" of {note['user']}" if note.get("user") else ""
    what = f"submitted again as job {note['again']}" if "again" in note else f"not submitted again: {note['why']}"
    return printable(f"slurmctld was killed and lost job {note['job']}{whose}: {what}")


def _mail(note: dict[str, Any], address: str, why: str) -> None:
    subject = f"Slurm Job_id={note['job']} Name={note['name']} Lost, {'not ' if why else ''}submitted again"
    with suppress(SetupError):
        run(MAIL, "-s", subject + (f" as Job_id={note['again']}" if not why else ""), address)


def observe() -> list[dict[str, Any]]:
    """The jobs that were lost within the last day."""
    try:
        with NOTES.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        with suppress(ValueError):
            note = json.loads(line)
            if note["time"] > time.time() - SHOWN:
                found.append(note)
    return found
