"""Why a job failed: exit codes and signals in words, its failed steps, and the end of its output. Pure functions."""

import re
import shlex
import signal
from contextlib import suppress
from typing import Any

from .jobs import ENDED

LINES, BYTES = 10, 20_000
"""The end of an output that is shown, and that is searched for errors of NCCL."""
_FAILED = ENDED - {"COMPLETED", "CANCELLED", "PREEMPTED", "REVOKED"}
_STATES = {
    "BOOT_FAIL": "the machine of a node did not boot",
    "DEADLINE": "it could not end before its --deadline",
    "NODE_FAIL": "slurmctld lost a node of it",
    "PREEMPTED": "its nodes were given to a job with a higher priority",
    "TIMEOUT": "it reached its time limit",
}
# slurmstepd reports an error of its own as the status of the job (`batch_finish` of src/slurmd/slurmstepd/mgr.c), and
# sacct prints the low seven bits of a status as the signal (src/sacct/print.c). Errors: slurm/slurm_errno.h, and for
# OUT_OF_MEMORY SIG_OOM of src/common/slurm_protocol_defs.h; the same from slurm-22-05-8-1 to slurm-26-05-3-1.
_SLURM = {
    4010 & 0x7F: "slurmd could not create the folder of its batch script (its spool directory may be full)",
    4014 & 0x7F: "slurmd could not set up its environment",
    4016 & 0x7F: "slurmd could not change to its user or group",
    4020 & 0x7F: "its program could not be started: it is missing, not executable, or of another architecture",
    4021 & 0x7F: "slurmd could not open its output or input file: the folder of --output must exist on the nodes, and "
    "its user must be able to write there",
    4022 & 0x7F: "a prolog failed on one of its nodes",
    253 & 0x7F: "the kernel ended a process, as it used more memory than the job asked for (--mem)",
}
# signal(7), of Linux.
_SIGNALS = {
    "SIGHUP": "its terminal or its parent ended",
    "SIGINT": "it was interrupted, as by Ctrl-C",
    "SIGILL": "a program has an instruction that this CPU does not have",
    "SIGABRT": "a program aborted itself, as after a failed assertion or an uncaught C++ exception",
    "SIGBUS": "a program used memory that is not there: a full /dev/shm, or a file that was cut while it was mapped",
    "SIGFPE": "a program divided by zero",
    "SIGKILL": "it was killed: for its memory, by scancel, at a time limit, or by a program of its own",
    "SIGSEGV": "a program used memory that is not its own (segmentation fault)",
    "SIGPIPE": "a program wrote into a pipe that nobody reads",
    "SIGTERM": "it was asked to end: by scancel, preemption, a time limit, or a program of its own",
}
# A shell's own exit codes: POSIX.1-2024, XCU 2.8.2.
_CODES = {
    126: "the shell found a command that it could not run: it is not executable, or of another architecture",
    127: "the shell did not find a command: a typing error, PATH, or a module that is not loaded",
}
_ABOVE = 128
"""A shell's exit code for a command that a signal ended is the signal's number and this."""
# NCCL (src/debug.cc and src/nccl.h.in at v2.30.7-1), and PyTorch (ProcessGroupNCCL.cpp).
_NCCL = re.compile(
    r"NCCL WARN |ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError|"
    r"Watchdog caught collective operation timeout"
)


def end_in_words(state: str, exit_code: str) -> str:
    """Return why a job ended in a state; empty where only its program has the answer."""
    return _STATES.get(state.partition(" ")[0]) or exit_in_words(exit_code)


def exit_in_words(exit_code: str) -> str:
    """Return the meaning of CODE:SIGNAL as sacct prints it; empty where it has none but the program's own."""
    match = re.fullmatch(r"([0-9]+):([0-9]+)", exit_code)
    if not match:
        return ""
    code, number = int(match[1]), int(match[2])
    if number:
        return _SLURM.get(number) or _signal_in_words(number)
    if code > _ABOVE:
        return _signal_in_words(code - _ABOVE)
    # Before Slurm 25.11 sacct subtracts 128 from exit codes of 128 and more (src/sacct/print.c).
    if code in (signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        return f"or {code + _ABOVE}, which sacct prints as {code} before Slurm 25.11: {_signal_in_words(code)}"
    return _CODES.get(code, "")


def _signal_in_words(number: int) -> str:
    with suppress(ValueError):
        name = signal.Signals(number).name
        return f"{name}: {_SIGNALS[name]}" if name in _SIGNALS else name
    return ""


def has_failed(job: dict[str, Any]) -> bool:
    """Return whether a job, or a step of a job that completed, has failed."""
    return is_failure(job["state"]) or bool(failed_steps(job))


def is_failure(state: str) -> bool:
    return state.partition(" ")[0] in _FAILED


def failed_steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of the last run that failed. slurmd ends the step `extern`, and the script of a job that failed
    has its exit code."""
    own = ("extern",) if job["state"] == "COMPLETED" else ("extern", "batch")
    return [
        {key: step[key] for key in ("step", "name", "state", "exit_code")} | {"text": exit_in_words(step["exit_code"])}
        for step in job["steps"]
        if step["step"] not in own and is_failure(step["state"])
    ]


def output_script(job: dict[str, Any]) -> str:
    """Return the commands that print the path of a job's output in one line, and the end of the file.

    slurmctld has the path for some minutes after the job's end (MinJobAge), the database from Slurm 24.05 on. Root
    reads the file as the job's user, who has chosen the path.
    """
    number, user = shlex.quote(job["id"]), shlex.quote(job["user"])
    record = f"timeout 20 sacct --allocations --noheader --parsable2 --expand-patterns --jobs={number}"
    end = f"""'[ -f "$1" ] && tail -c {BYTES} -- "$1"' sh "$path" 2>/dev/null"""
    return f"""\
path=$(timeout 20 scontrol show job {number} 2>/dev/null | sed -n 's/^ *StdOut=\\(\\/.*\\)/\\1/p' | tail -n 1)
[ -n "$path" ] || path=$({record} --format=StdOut 2>/dev/null | head -n 1)
case $path in /*|"") ;; *) path=$({record} --format=WorkDir 2>/dev/null | head -n 1)/$path ;; esac
echo "$path"
if [ -n "$path" ] && [ "$(id -u)" = 0 ]; then timeout 10 runuser -u {user} -- sh -c {end}
elif [ -n "$path" ]; then timeout 10 sh -c {end}; fi
"""


def parse_output(text: str) -> dict[str, Any]:
    """Return the path of a job's output, its last lines, and its first line about an error of NCCL, from the output of
    `output_script`."""
    path, _, end = text.partition("\n")
    rows = [line for line in end.splitlines() if line.strip()]
    return {"path": path, "lines": rows[-LINES:], "nccl": next((line for line in rows if _NCCL.search(line)), "")}
