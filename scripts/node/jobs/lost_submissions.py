"""Jobs that slurmctld accepted and lost, because it was killed before it had written them.

slurmctld writes script and environment of a batch job (hash.N/job.ID in its state folder) before it answers sbatch, and
the job itself up to five seconds later (state_save.c). After a kill it deletes the files of jobs that it does not have
(sync_job_files). So the newest files are kept before each start of slurmctld. A job that slurmctld does not have
afterwards is submitted again as its user, with its script, its environment and its options, which submissions.lua has
added to the environment. Jobs of srun and salloc have no such files: they are only named, from slurmctld's log.
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
KEPT = STATE / "hpc-kept"  # submissions.lua has the same path; hard links must be within the state folder
WINDOW = "window"  # the file in KEPT with the times between which slurmctld may have lost jobs
RUN = Path("/run/hpc/again")
NOTES = Path("/var/lib/hpc/controller/lost_jobs.jsonl")  # on the state disk
LOG = Path("/var/log/slurm/slurmctld.log")
MAIL = "/usr/local/sbin/hpc-mail"
RECORD = "HPC_SUBMISSION"
MARGIN = 60  # seconds that slurmctld may take to write its jobs, before the file has its time of change
SUBMIT_SECONDS = 60
SLURMDBD_SECONDS = 600  # until slurmdbd answers: its database may have to recover first
RETRY_SECONDS = 1
ASSOCIATIONS_SECONDS = 60  # after that, until slurmctld has read the associations; it tries every few seconds
MAX_RESERVED = 4096  # numbers
MIN_USER_UID = 1000  # lower uids are system accounts
TAIL = 1 << 22  # bytes that are read of slurmctld's log and of NOTES
SHOWN_SECONDS = 86400  # for which `status` names a lost job
INTERACTIVE = re.compile(r"^\[([-0-9T:]{19})[^\]]*\] .*_slurm_rpc_allocate_resources JobId=(\d+)")
BEGUN = re.compile(r"^\[([-0-9T:]{19})[^\]]*\] .*(?:Allocate|Started) JobId=(\d+)")


class KeptJob(NamedTuple):
    """The kept files of a job, and its record by submissions.lua (empty for a job from before there was one)."""

    name: str
    number: int
    submitted: float
    record: dict[str, list[str]]
    script: bytes
    environment: bytes

    def field(self, name: str) -> str:
        return self.record.get(name, [""])[0]


@contextmanager
def as_slurm() -> Generator[None]:
    """Run the context with the rights of the user slurm, since slurm may have replaced anything in the state folder."""
    account = pwd.getpwnam("slurm")
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def keep() -> None:
    """Keep the files of all jobs that slurmctld may have lost. This runs before each start of slurmctld."""
    with as_slurm():
        saved = _change_time(STATE / "job_state")
        times = {path: _change_time(path) for path in STATE.glob("hash.*/job.*")}
        KEPT.mkdir(mode=0o700, exist_ok=True)
        for path, at in times.items():
            kept = KEPT / f"{path.name}.{at:.6f}"
            if at > saved - MARGIN and not kept.exists():
                partial = KEPT / f".{kept.name}"
                rmtree(partial, ignore_errors=True)
                partial.mkdir(mode=0o700)
                for name in ("environment", "script"):
                    with suppress(FileNotFoundError):
                        os.link(path / name, partial / name)
                partial.replace(kept)
        # After an earlier start, `submit_again` may not have come to its end.
        since = min(saved - MARGIN, (_read_window() or (saved, 0))[0])
        partial = KEPT / f".{WINDOW}"
        partial.write_text(json.dumps([since, time.time()]))
        partial.replace(KEPT / WINDOW)


def _change_time(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def submit_again() -> None:
    """Submit the jobs again that slurmctld has lost, and name each. This runs after each start of slurmctld."""
    with as_slurm():
        window, paths = _read_window(), list(KEPT.glob("job.*"))
        kept = sorted((job for path in paths if (job := _read(path))), key=lambda job: job.number)
    if window is None:
        return
    wait("slurmctld's answer", lambda: succeeds("scontrol", "ping"), seconds=600, interval=0.2, unit="slurmctld")
    lines = _log_lines(window[0])
    completed = records.ended(records.TAIL)
    ended = {key for key, job in completed.items() if not job["job_state"] & records.REQUEUED}
    for number in _interactive(lines, window, {number for number, at in ended if window[0] <= at <= window[1]}):
        _record({"job": number, "why": "a job of srun or salloc: its user has to start it again"})
    lost = [
        job
        for job in kept
        if not _exists(job) and not any(n == job.number and abs(at - job.submitted) <= 1 for n, at in ended)
    ]
    begun = {int(match[2]) for line in lines if (match := BEGUN.match(line))}
    numbers: dict[int, int] = {}
    with _reserved([job.number for job in lost]):
        for job in in_order(lost, begun):
            if number := _submit_again(job, numbers, other=job.number in begun):
                numbers[job.number] = number
            with as_slurm():
                _delete_kept(job.name)
    with as_slurm():
        # slurmctld may have been killed again meanwhile, and more jobs been kept.
        for name in [path.name for path in paths] + [WINDOW] * (window == _read_window()):
            _delete_kept(name)


def in_order(lost: list[KeptJob], begun: set[int]) -> list[KeptJob]:
    """Return the jobs that keep their numbers first, by number, since slurmctld counts up. A pure function.

    Jobs that had begun get other numbers, and jobs that depend on these follow, as they have to name them.
    """
    late = set(begun)
    for job in lost:
        if late & {int(number) for number in re.findall(r"\d+", job.field("dependency"))}:
            late.add(job.number)
    return sorted(lost, key=lambda job: (job.number in late, job.number))


def _read_window() -> tuple[float, float] | None:
    try:
        with open_regular(KEPT / WINDOW) as file:
            since, until = json.load(file)
            return float(since), float(until)
    except (OSError, ValueError, TypeError):
        return None


def _read(path: Path) -> KeptJob | None:
    """Return a kept job; None for one that slurmctld had not written completely, so that sbatch had no answer."""
    match = re.fullmatch(r"job\.(\d{1,10})\.(\d+\.\d+)", path.name)
    try:
        with open_regular(path / "environment") as file:
            environment = file.read()[4:]  # after the number of variables
        with open_regular(path / "script") as file:
            script = file.read()
    except OSError:
        return None
    if not match or not script.endswith(b"\0"):
        return None
    record = parse_qs(_variable(environment, RECORD), keep_blank_values=True)
    return KeptJob(path.name, int(match[1]), float(match[2]), record, script[:-1], environment)


def _variable(environment: bytes, name: str) -> str:
    start = f"{name}=".encode()
    entries = (entry for entry in environment.split(b"\0") if entry.startswith(start))
    return next(entries, start)[len(start) :].decode(errors="replace")


def _files(number: int) -> Path:
    return STATE / f"hash.{number % 10}" / f"job.{number}"


def _exists(job: KeptJob) -> bool:
    """Return whether slurmctld has the job: the files of its number are the kept ones, not those of a later job."""
    with as_slurm():
        try:
            kept = (KEPT / job.name / "environment").lstat()
            return os.path.samestat(kept, (_files(job.number) / "environment").lstat())
        except OSError:
            return False


def _new_number(job: KeptJob) -> int | None:
    """Return the number of the job of slurmctld that has the kept job's identity; None where there is none."""
    with as_slurm():
        for path in STATE.glob("hash.*/job.*"):
            at = _change_time(path)
            if at >= job.submitted and job.field("id") in _identity(path, at):
                return int(path.name.partition(".")[2])
    return None


@functools.cache
def _identity(path: Path, _at: float) -> list[str]:
    """Return the identity in a job's record. Each is read once, as many jobs may have been lost."""
    try:
        with open_regular(path / "environment") as file:
            return parse_qs(_variable(file.read()[4:], RECORD)).get("id", [])
    except OSError:
        return []


def _submit_again(job: KeptJob, numbers: dict[int, int], *, other: bool) -> int | None:
    """Submit a job again and name it. Return its number now, or None where it can't be submitted.

    It gets its old number if no other job has that. With `other` it gets another one: processes of the job may still be
    on a node, and slurmctld ends those when the node registers.
    """
    note: dict[str, Any] = {"job": job.number, "user": job.field("uid"), "name": job.field("name")}
    why = ""
    try:
        account = pwd.getpwuid(int(job.field("uid") or -1))
        note["user"] = account.pw_name
    except (KeyError, ValueError, OverflowError):
        why, account = "it is not noted whose it is", None
    # slurm can write the kept files. With a system account's rights, sbatch could read files that slurm may not.
    if account and account.pw_uid < MIN_USER_UID:
        why = f"a job of {account.pw_name}, which is no user's account"
    if job.field("kind"):
        why = f"a {job.field('kind')} job: its user has to submit it again"
    if not why and account:
        # An earlier run may have been killed after it had submitted the job.
        number = _new_number(job)
        while number is None:
            why = _submit(job, account, numbers, other=other)
            number = _new_number(job)
            if number is None:
                if not succeeds("scontrol", "ping") or _associations_end() < time.monotonic():
                    break
                time.sleep(RETRY_SECONDS)
        if number is not None:
            note["again"], why = number, ""
        elif not succeeds("scontrol", "ping"):
            raise SetupError(f"job {job.number} of {account.pw_name} is not submitted again: slurmctld does not answer")
    _record({**note, **({"why": why} if why else {})})
    if account and int(job.field("mail_type") or 0):
        subject = f"Slurm Job_id={note['job']} Name={note['name']} Lost, {'not ' if why else ''}submitted again"
        with suppress(SetupError):
            address = job.field("mail_user") or account.pw_name
            run(MAIL, "-s", subject + (f" as Job_id={note['again']}" if not why else ""), address)
    return note.get("again")


@functools.cache
def _associations_end() -> float:
    """Return the time (of time.monotonic()) until which a job that sbatch refuses is tried again.

    A slurmctld that starts before slurmdbd answers has the users, accounts and QOS that it last saved, up to five
    minutes before it was killed, and refuses the jobs of newer ones.
    """
    with suppress(SetupError):
        show = ("sacctmgr", "--noheader", "show", "cluster")
        wait("slurmdbd's answer", lambda: succeeds(*show), seconds=SLURMDBD_SECONDS, interval=1, unit="slurmdbd")
    return time.monotonic() + ASSOCIATIONS_SECONDS


def _submit(job: KeptJob, account: pwd.struct_passwd, numbers: dict[int, int], *, other: bool) -> str:
    """Submit the kept job as its user. Return the reason if sbatch refuses it.

    sbatch reads the options in the script again. Options of the command line, and changes by the site's rules, are in
    the record, which submissions.lua applies.
    """
    work = RUN / job.name
    rmtree(RUN, ignore_errors=True)
    folder(RUN.parent)
    RUN.mkdir(mode=0o711)
    work.mkdir(mode=0o700)
    for name, content in (("job.sh", job.script), ("environment", job.environment)):
        (work / name).write_bytes(content)
        os.chown(work / name, account.pw_uid, account.pw_gid)
    os.chown(work, account.pw_uid, account.pw_gid)
    changed = ",".join(f"{old}={new}" for old, new in numbers.items() if old != new)
    command = [
        *("sbatch", "--parsable", f"--export-file={work}/environment", f"--comment=hpc-again:{job.name}:{changed}"),
        *(f"{work}/job.sh", *job.record.get("argument", ())),
    ]
    try:
        with nullcontext() if other else _next_number(job.number):
            # If the script has `#SBATCH --wait`, sbatch stays until the job's end.
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
    errors = done.stderr.decode(errors="replace").strip().splitlines()
    return " / ".join(line.removeprefix("sbatch: error: ") for line in errors[-2:]) or "sbatch says no reason"


@contextmanager
def _reserved(numbers: list[int]) -> Generator[None]:
    """Keep slurmctld from giving any of these numbers to a job: it skips numbers with files (_dup_job_file_test)."""
    match = re.search(r"^NEXT_JOB_ID\s*=\s*(\d+)", run("scontrol", "show", "config"), re.MULTILINE) if numbers else None
    block = range(int(match[1]), max(numbers) + 1)[:MAX_RESERVED] if match else range(0)
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
def _next_number(number: int) -> Generator[None]:
    """Let slurmctld give the next job this number, as the lowest one that is not reserved."""
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
        _files(number).rmdir()  # the folder of a job is not empty, and stays


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
    """Yield the numbers of the jobs of srun and salloc that slurmctld's log has, and slurmctld does not have."""
    until = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(window[1]))
    accepted = {int(match[2]) for line in lines if (match := INTERACTIVE.match(line)) and match[1] <= until}
    if accepted:
        rows = run("squeue", "--all", "--noheader", "--states=all", "--format=%A %V").splitlines()
        # A job with the same number may have been submitted since.
        present = {int(number) for number, _, submitted in (row.partition(" ") for row in rows) if submitted <= until}
        yield from sorted(accepted - present - ended)


def _delete_kept(name: str) -> None:
    rmtree(KEPT / name, ignore_errors=True)
    with suppress(OSError):
        (KEPT / name).unlink()


def _record(note: dict[str, Any]) -> None:
    """Write a lost job into the log of the unit, and into NOTES for `status`."""
    folder(NOTES.parent)
    with NOTES.open("a") as file:
        file.write(json.dumps({"time": int(time.time()), **note}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    log(sentence(note))


def sentence(note: dict[str, Any]) -> str:
    """Return the message about a lost job. A pure function."""
    whose = f" of {note['user']}" if note.get("user") else ""
    what = f"submitted again as job {note['again']}" if "again" in note else f"not submitted again: {note['why']}"
    return printable(f"slurmctld was killed and lost job {note['job']}{whose}: {what}")


def observe() -> list[dict[str, Any]]:
    """Return the jobs that were lost within the last day."""
    try:
        with NOTES.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    notes: list[dict[str, Any]] = []
    for line in lines:
        with suppress(ValueError):
            note = json.loads(line)
            if note["time"] > time.time() - SHOWN_SECONDS:
                notes.append(note)
    return notes
