"""The rxdm prolog of A3 Mega nodes: checked by its text, and patched for Ubuntu 22.04 if it is for Debian 12 only.

It appends exports to NCCL's profile if its check of the operating system holds. Without them, jobs on two or more nodes
use plain TCP, without an error. A staged version runs nowhere before it is checked here.
"""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from jobs import prologs
from jobs.prologs import digest, file_digest
from system.host import SetupError, log, write

OK, PATCH, UNKNOWN = "ok", "patch", "unknown"

DEBIAN = '(grep -q "ID=debian" /etc/os-release && lsb_release -rs | grep -q "12")'
UBUNTU = '(grep -q "ID=ubuntu" /etc/os-release && lsb_release -rs | grep -q "22.04")'
PATCHED = f"( {DEBIAN} || {UBUNTU} )"

# No $, ` or \ within quotes: a check that is tried can run nothing but these programs. Each word can be parsed in one
# way only, so that a line that does not match fails at once, without backtracking.
_WORD = r'(?:\(|\)|&&|\|\||\|(?!\|)|!|grep -q[xEFw]* "[-\w.=^ ]*"(?: /etc/os-release)?|lsb_release -rs)'
_CHECK = re.compile(rf"^[ \t]*if[ \t]+(?P<check>{_WORD}(?:[ \t]*{_WORD})*)[ \t]*;[ \t]*then[ \t]*$", re.MULTILINE)
_OS_QUERY = re.compile(r"os-release|lsb_release")
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)

SYSTEMS = {
    "Ubuntu 22.04": ("22.04", 'NAME="Ubuntu"\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\nID=ubuntu\nID_LIKE=debian\n'),
    "Debian 12": ("12", 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'),
    "Rocky Linux 8.10": ("8.10", 'NAME="Rocky Linux"\nVERSION_ID="8.10"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'),
}
"""Systems to try a check on: the output of `lsb_release -rs`, and os-release."""


def classify(text: str) -> tuple[str, str]:
    """Return whether a prolog is right for Ubuntu 22.04 (OK), can be patched (PATCH) or is not understood (UNKNOWN),
    and why."""
    checks, rest = _os_checks(text), text
    for match in reversed(checks):
        rest = rest[: match.start()] + rest[match.end() :]
    if _OS_QUERY.search(_COMMENT.sub("", rest)):
        return UNKNOWN, "it asks for its operating system in a way that is not understood"
    if not checks:
        return UNKNOWN, "it asks for no operating system"
    if len(checks) > 1:
        return UNKNOWN, f"it asks for its operating system {len(checks)} times"
    check = checks[0]["check"]
    if re.findall(_WORD, check) == re.findall(_WORD, DEBIAN):  # blanks between words may differ
        return PATCH, "it checks for Debian 12 only"
    if holds(check, "Ubuntu 22.04"):
        return OK, "its check holds on Ubuntu 22.04"
    return UNKNOWN, f"its check does not hold on Ubuntu 22.04, and is not the one for Debian 12: {check}"


def patch_check(text: str) -> str:
    """Return the text with its one check for Debian 12 replaced by a check for Debian 12 or Ubuntu 22.04."""
    (match,) = _os_checks(text)
    return text[: match.start("check")] + PATCHED + text[match.end("check") :]


def unpatch_check(text: str) -> str:
    """Return the text before `patch_check`, if the check was written as upstream does; other texts unchanged."""
    for match in _os_checks(text):
        if match["check"] == PATCHED:
            return text[: match.start("check")] + DEBIAN + text[match.end("check") :]
    return text


def check_failure(text: str) -> str:
    """Return what is wrong with a patched text; empty if its check holds on the right systems, and on no other."""
    checks = _os_checks(text)
    if len(checks) != 1:
        return f"it has {len(checks)} checks"
    for system, expected in (("Ubuntu 22.04", True), ("Debian 12", True), ("Rocky Linux 8.10", False)):
        if holds(checks[0]["check"], system) != expected:
            return f"its check is {'false' if expected else 'true'} on {system}"
    return ""


def holds(check: str, system: str) -> bool:
    """Return whether a check holds on one of SYSTEMS, by running it with bash."""
    release, text = SYSTEMS[system]
    with tempfile.TemporaryDirectory(prefix="hpc-check-") as folder:
        fixture = Path(folder) / "os-release"
        fixture.write_text(text)
        script = (
            'lsb_release() { echo "$RELEASE"; }\n'
            f"if {check.replace('/etc/os-release', chr(34) + '$FIXTURE' + chr(34))}; then exit 0; fi; exit 1\n"
        )
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "FIXTURE": str(fixture), "RELEASE": release}
        command = ["bash", "-c", script]
        done = subprocess.run(command, env=env, capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    return done.returncode == 0


def _os_checks(text: str) -> list[re.Match[str]]:
    return [match for match in _CHECK.finditer(text) if _OS_QUERY.search(match["check"])]


STAND_INS = Path(__file__).parents[1] / "stand_ins.sh"
TRIAL_SECONDS = 60
"""Enough for a prolog that waits for nothing. One polls every 2 s for a manager, which answers at once here."""
PROFILE = "/var/lib/tcpxo/lib64/nccl-env-profile.sh"
"""NCCL's profile on a node: the plugin's installer writes it, the prolog adds to it, jobs read it."""
DEVICES = "/dev/aperture_devices"
"""The profile's NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY. Without it, jobs use plain TCP."""

# $1 is an empty folder, $2 contains `prolog`, `os-release` and `stand-ins`; $3 is DEVICES, $4 PROFILE. Mounts end with
# the mount namespace, and processes with the process namespace.
_TRIAL = r"""
set -eu
root=$1
mount -t tmpfs -o size=32m,mode=755 tmpfs "$root"
cd "$root"
mkdir -p dev etc host proc root run tmp trial usr/bin usr/local/sbin usr/sbin var/lib var/log var/tmp
mount --bind /usr host && mount -o remount,bind,ro host
for path in /usr/*; do
    name=${path##*/}
    [ -e "usr/$name" ] || ln -s "/host/$name" "usr/$name"
done
for name in bin sbin; do
    (cd "host/$name" && printf "/host/$name/%s\\0" *) | xargs -0 ln -s -t "usr/$name"
done
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then ln -s "usr/$name" "$name"; fi
done
mkdir etc/alternatives && mount --bind /etc/alternatives etc/alternatives
mount -o remount,bind,ro etc/alternatives
cp /etc/passwd /etc/group etc/
cp "$2/os-release" etc/os-release
cp "$2/prolog" trial/prolog
for name in curl docker gcloud lsb_release modprobe nvidia-smi; do
    rm -f "usr/bin/$name" "usr/sbin/$name"
    install -m 0755 "$2/stand-ins" "usr/bin/$name"
done
for name in null zero urandom; do : >"dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
mount -t proc proc proc
ln -s /proc/self/fd dev/fd
code=0
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
    SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2 SLURM_JOB_PARTITION=trial SLURM_JOB_USER=root SLURM_JOB_UID=0 \
    SLURM_SCRIPT_CONTEXT=prolog_slurmd SLURMD_NODENAME=trial-0 \
    chroot . /bin/bash /trial/prolog </dev/null >said 2>&1 || code=$?
if [ "$code" != 0 ]; then
    echo "it ends with exit code $code"
    tail -n 5 said
elif ! chroot . /bin/bash -c '. "$1" &&
        [ "${NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY-}" = "$2" ]' trial "$4" "$3" 2>/dev/null; then
    echo "it leaves NCCL's profile without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=$3"
elif [ -z "$(ls run/hpc-stand-ins 2>/dev/null)" ] && ! ls run/hpc-rxdm-*.pid >/dev/null 2>&1; then
    echo "it starts no receive data path manager"
fi
"""


def trial_failure(text: str) -> str:
    """Run a prolog as for a job on two nodes, and return what is wrong with it; empty if it does its work."""
    with tempfile.TemporaryDirectory(prefix="hpc-trial-") as folder:
        files, root = Path(folder) / "files", Path(folder) / "root"
        files.mkdir()
        root.mkdir()
        (files / "prolog").write_bytes(text.encode(errors="surrogateescape"))
        (files / "os-release").write_text(SYSTEMS["Ubuntu 22.04"][1])
        (files / "stand-ins").write_bytes(STAND_INS.read_bytes())
        spaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
        command = ["unshare", *spaces, "sh", "-c", _TRIAL, "trial", str(root), str(files), DEVICES, PROFILE]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "errors": "replace"}
        try:
            done = subprocess.run(command, text=True, timeout=TRIAL_SECONDS, check=False, **streams)
        except subprocess.TimeoutExpired:
            return f"a run of it as if on Ubuntu 22.04 did not end within {TRIAL_SECONDS} s"
    output = "\n  ".join((done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip().splitlines()[-6:])
    if done.returncode:
        return f"it could not be tried (exit code {done.returncode}):\n  {output}\n"
    return f"run as if on Ubuntu 22.04, {output}" if output else ""


REFUSE = "refuse"


def converge(payload: dict[str, Any]) -> None:
    """Install the prolog with the hash `sha256`, patched if necessary, and link it to its partitions.

    `known` has the actions for known versions, by hash. Other versions are checked by their text, then tried. Nothing
    is written before all checks have passed, and files of an interrupted run are recognized by their hashes, so it may
    be killed at any point. Raises SetupError, with nothing changed, for a version that is not understood.
    """
    live, staged, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    before = payload["sha256"]
    data = _original(before)
    text = data.decode(errors="surrogateescape")
    known = payload["known"].get(before)
    outcome, why = _outcome(known, text)
    if outcome not in {OK, PATCH}:
        raise SetupError(
            f"the rxdm prolog is not one that this program can make right for Ubuntu 22.04: {why}.\n"
            f"  file:   {staged if staged.exists() else live}, left as it is; no job runs it\n  sha256: {before}\n"
            "  Leave `url`, `sha256` and `file` of slurm.rxdm out for the newest version that is known to be right; "
            "docs/guides/prologs.md lists all"
        )
    if outcome == PATCH:
        text = patch_check(text)
    failure = (outcome == PATCH and check_failure(text)) or _syntax_error(text) or (not known and trial_failure(text))
    if failure:
        raise SetupError(f"the rxdm prolog (sha256 {before}) can't be used: {failure}; it was left as it is")
    if outcome == PATCH:
        write(orig, data, mode=0o755, quiet=True)
    after = replace(live, text.encode(errors="surrogateescape"))
    _write_record(before=before, after=after, outcome=outcome)
    if outcome != PATCH:
        orig.unlink(missing_ok=True)
    staged.unlink(missing_ok=True)
    prologs.make_links(payload["links"])
    log(f"rxdm: {'patched' if outcome == PATCH else 'already right'} for Ubuntu 22.04 ({why})")
    log(f"rxdm: sha256 {before}" + (f" before, {after} after" if after != before else ""))


def undo() -> None:
    """Restore the original of a patched prolog. A file that somebody else has changed is not touched."""
    live, _, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    record = prologs.rxdm_record()
    if record["outcome"] != PATCH or file_digest(live) != record["after"]:
        log("rxdm: nothing to put back")
        return
    replace(live, _original(record["before"]))
    _write_record(before=record["before"], after=record["before"], outcome="original")
    orig.unlink(missing_ok=True)
    log(f"rxdm: the original is back, sha256 {record['before']}")


def _original(sha256: str) -> bytes:
    """Return the version with this hash: the staged or kept one, or the one that runs, with or without the patch.

    Only the hash counts, because a run that failed may have left another version in any of these places.
    """
    live, staged, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    for path in (staged, orig, live):
        if file_digest(path) == sha256:
            return path.read_bytes()
    if live.is_file():
        data = unpatch_check(live.read_bytes().decode(errors="surrogateescape")).encode(errors="surrogateescape")
        if digest(data) == sha256:
            return data
    raise SetupError(
        f"none of the files {live}* is the version of the rxdm prolog with sha256 {sha256}; "
        "`./hpc drift STACK --mend` stages it again"
    )


def _outcome(known: str | None, text: str) -> tuple[str, str]:
    """Return the action for a version, and why."""
    if known == REFUSE:
        return REFUSE, "this version writes no exports for NCCL, on any system"
    if known == OK:
        return OK, "this version is known"
    outcome, why = classify(text)
    if known == PATCH and outcome == PATCH:
        return PATCH, "this version is known, and checks for Debian 12 only"
    return outcome, why


def _syntax_error(text: str) -> str:
    """Return bash's error for a script; empty if it has none."""
    check = subprocess.run(
        ["bash", "-n"], input=text.encode(errors="surrogateescape"), capture_output=True, timeout=30, check=False
    )
    return f"bash cannot read it: {check.stderr.decode(errors='replace').strip()}" if check.returncode else ""


def replace(path: Path, data: bytes) -> str:
    """Replace a script by `data` atomically, with the same mode, and return its hash.

    If `path` is a link, the file that it leads to is replaced. A mode without execute permission becomes 0755.
    """
    real = path.resolve()
    mode = real.stat().st_mode & 0o7777 if real.exists() else 0
    write(real, data, mode=mode if mode & 0o100 else 0o755)
    return digest(data)


def _write_record(*, before: str, after: str, outcome: str) -> None:
    record = {"before": before, "after": after, "outcome": outcome}
    write(prologs.TREE / f"{prologs.RXDM}.json", json.dumps(record, indent=1) + "\n", quiet=True)
