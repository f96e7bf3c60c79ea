"""Findings of one machine, from its own document: daemons, MUNGE, set-up, file systems, image. Pure functions."""

import time
from calendar import timegm
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from interface import ALERTMANAGER_PORT, FIREWALL
from judge.document import bytes_used, error, inodes_used, is_busy, last_words, part, setup_failure, unit
from judge.kinds import FREE_SHARE, OLDEST_KERNEL, OLDEST_PACKAGES
from slurm.findings import MachineFinding

Document = Mapping[str, Any]
RESTARTS = 3
"""Automatic restarts, since somebody last started the unit, from which on they are a finding if the last is recent."""
RECENT_SECONDS = 600
"""Seconds after a start in which the daemon may end again."""
FULL = 0.99
"""Share of a file system's space or inodes in use from which on it is called full, not nearly full."""
DAY = 86400
_LONGEST = 160
"""Characters of a text that somebody gave to a silence."""
_RETRIES = {"hpc-node"}
"""Units that are restarted until the machine has joined; the finding about the set-up reports them."""
_REPORTED = {"slurmctld", "slurmdbd", "mariadb", "slurmrestd"}
"""Units that judge/controller.py reports when they do not run, with the number of starts."""


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no answer"


def is_active(row: Mapping[str, Any]) -> bool:
    """Return whether a unit runs. One that was not reported counts as active: nothing is known against it."""
    return row.get("state", "active") in ("active", "reloading")


def state_of(row: Mapping[str, Any]) -> str:
    """Return the state of a stopped unit in words, with the end of its journal."""
    states = {"failed": "has failed", "activating": "is starting", "deactivating": "is stopping"}
    text = states.get(row["state"], f"does not run ({row['state']})")
    if row.get("sub") == "auto-restart":
        text = f"ends again and again (started {row['restarts']} times)"
    words = last_words(row.get("journal") or ())
    return f"{text}: {words}" if words and row["state"] != "inactive" else text


def munged(document: Document) -> Iterator[MachineFinding]:
    """Yield a munged that does not run or does not authenticate."""
    name, row, check = document["name"], unit(document, "munge"), part(document, "munge")
    if is_active(row) and (check is None or check["works"] or is_busy(document)):
        return
    state = (
        state_of(row)
        if not is_active(row)
        else f"is running but does not authenticate: {last_line((check or {}).get('why', ''))}"
    )
    yield MachineFinding(
        id="munge-down",
        where=name,
        what=f"munged {state}. No message of Slurm's is accepted there",
        todo=f"./hpc ssh STACK {name} -- systemctl restart munge",
        since=None if is_active(row) else row.get("since") or None,
    )


def restarting(document: Document) -> Iterator[MachineFinding]:
    """Yield daemons that systemd restarts again and again."""
    for name, row in (part(document, "daemons") or {}).items():
        if row["restarts"] < RESTARTS or name in _RETRIES or (name in _REPORTED and not is_active(row)):
            continue
        if row["sub"] != "auto-restart" and document["time"] - row["started"] > RECENT_SECONDS:
            continue
        words = last_words(row.get("journal") or ())
        yield MachineFinding(
            id="daemon-restarting",
            where=document["name"],
            what=f"{name} ends again and again: systemd restarted it {row['restarts']} times, "
            f"and its state is {row['sub']}{f'. Its last messages: {words}' if words else ''}",
            todo=f"./hpc ssh STACK {document['name']} -- journalctl -u {name} -n 50",
            since=row["since"] or None,
        )


def prometheus(document: Document) -> Iterator[MachineFinding]:
    """Yield a Prometheus that does not answer: nobody gets an alert then."""
    if (why := error(document, "alerts")) and not is_busy(document):
        role = "controller" if "controller" in document["roles"] else document["roles"][0]
        yield MachineFinding(
            id="monitoring-down",
            where=document["name"],
            what=f"Prometheus does not answer, so no alert fires: {why}",
            todo=f"./hpc ssh STACK {role} -- systemctl restart prometheus",
            note="Its log on that machine: journalctl -u prometheus",
        )


def silenced(document: Document) -> Iterator[MachineFinding]:
    """Yield silences of Alertmanager: nobody gets these alerts until they end."""
    for row in part(document, "silences") or ():
        of, comment = (" ".join(row[name].split())[:_LONGEST] for name in ("alerts", "comment"))
        yield MachineFinding(
            id="alerts-silenced",
            where=document["name"],
            what=f"alerts with {of} are silenced by {row['by']} until {row['until']}: {comment or 'no comment'}",
            todo=f"./hpc ssh STACK {document['name']} -- "
            f"amtool --alertmanager.url=http://localhost:{ALERTMANAGER_PORT} silence expire {row['id']}",
            note="That sends them again at once; by itself the silence ends at the time given.",
        )


def firewall(document: Document) -> Iterator[MachineFinding]:
    """Yield a firewall of monitoring that does not run: users of the machine can silence alerts then."""
    if not is_active(row := unit(document, FIREWALL)):
        yield MachineFinding(
            id="monitoring-open",
            where=document["name"],
            what=f"users of the machine reach Alertmanager and the exporters, as {FIREWALL} {state_of(row)}",
            todo=f"./hpc ssh STACK {document['name']} -- systemctl restart {FIREWALL}",
        )


def setup(document: Document) -> Iterator[MachineFinding]:
    """Yield a set-up that failed, and a cluster state that can't be read: nodes apply no new config version then."""
    if why := part(document, "cluster_state", "damaged"):
        yield MachineFinding(
            id="cluster-state-damaged",
            where=document["name"],
            what=f"the cluster state, from which nodes read their configuration, is damaged: {why}",
            todo="./hpc drift STACK --mend",
            note="The controller writes it again, and machines report again.",
        )
    if why := setup_failure(document):
        yield MachineFinding(
            id="setup-failed",
            where=document["name"],
            what=f"its set-up failed: {why}",
            todo=f"./hpc ssh STACK {document['name']} -- journalctl -u hpc-node -n 50",
            note="It is tried again by itself, every few seconds.",
            since=unit(document, "hpc-node").get("since"),
        )


def mounts(document: Document) -> Iterator[MachineFinding]:
    """Yield shared file systems that are not mounted or do not answer, and file systems that are read-only."""
    name = document["name"]
    for path, disk in (part(document, "disks") or {}).items():
        what = todo = note = ""
        if disk.get("mounted") is False:
            what = f"the shared file system {path} is not mounted"
            todo = f"./hpc ssh STACK {name} -- mount {path}"
        elif "error" in disk:
            what = f"{path} does not answer ({disk['error']})"
            todo = f"./hpc ssh STACK {name} -- timeout 5 ls {path}"
            note = "Look at its server and at the network between the two."
        elif disk.get("read_only"):
            what = f"{path} is mounted read-only"
            todo = f"./hpc ssh STACK {name} -- 'dmesg | tail'"
            note = "The kernel reports there whether the disk fails."
        if what:
            yield MachineFinding("mount-missing", name, what, todo, note)


def full_disks(document: Document) -> Iterator[MachineFinding]:
    """Yield file systems that are full or nearly full, each by the shortest path on it."""
    disks: dict[int, tuple[str, Mapping[str, Any]]] = {}
    for path, disk in sorted((part(document, "disks") or {}).items(), key=lambda row: len(row[0])):
        if "error" not in disk and disk.get("size"):
            disks.setdefault(disk["device"], (path, disk))
    for path, disk in disks.values():
        space = f"{disk['free'] / 2**30:.1f} GiB are left", f"du -xh --max-depth=2 {path} | sort -h | tail"
        inodes = f"{disk['inodes_free']} are left", f"du -x --inodes {path} | sort -n | tail"
        for kind, used, (left, command) in (
            ("space", bytes_used(disk), space),
            ("inodes", inodes_used(disk), inodes),
        ):
            if 1 - used < FREE_SHARE:
                name = f"the shared file system {path}" if disk.get("shared") else path
                degree = "full" if used >= FULL else "nearly full"
                yield MachineFinding(
                    id="disk-full",
                    where=document["name"],
                    what=f"{name} is {degree}: {used:.0%} of its {kind} used, {left}",
                    todo=f"./hpc ssh STACK {document['name']} -- '{command}'",
                    note="It shows what fills it.",
                )


class _Age(NamedTuple):
    """Words about a part of an image that gets too old."""

    what: str
    missing: str
    oldest: int
    """Days."""
    setting: str
    comes: str


_AGES = {
    "image-old": _Age(
        "packages are",
        "security updates",
        OLDEST_PACKAGES,
        "a later day as image.snapshot",
        "another image is baked then",
    ),
    "kernel-old": _Age(
        "kernel is", "security fixes", OLDEST_KERNEL, "a newer image.recipe", "its kernel comes with another image"
    ),
}


def image(document: Document) -> Iterator[MachineFinding]:
    """Yield packages without automatic security updates, and a held kernel, that are too old."""
    found = part(document, "image") or {}
    times = {
        "image-old": _packages(found) if found.get("baked") else None,
        "kernel-old": timegm(time.strptime(found["kernel"], "%Y-%m-%d")) if found.get("kernel") else None,
    }
    for kind, since in times.items():
        age, days = _AGES[kind], int((document["time"] - (since or document["time"])) // DAY)
        if since and days > age.oldest:
            day = time.strftime("%Y-%m-%d", time.gmtime(since))
            yield MachineFinding(
                id=kind,
                where=document["name"],
                what=f"its {age.what} of {day}, {days} days ago: {age.missing} since then are missing",
                todo="./hpc preview STACK",
                note=f"After writing {age.setting} in the stack file: {age.comes}, and machines are recreated from it, "
                "nodes as their jobs end (docs/guides/google-cloud.md).",
                since=since,
            )


def _packages(found: Mapping[str, Any]) -> float | None:
    """Return the time of an image's packages; that of the image if it has no snapshot of Ubuntu's archive."""
    try:
        return timegm(time.strptime(f"{found.get('snapshot')}", "%Y%m%dT%H%M%SZ"))
    except ValueError:
        return found.get("made")


CHECKS = (munged, setup, mounts, full_disks, prometheus, firewall, silenced, restarting, image)


def findings(document: Document) -> Iterator[MachineFinding]:
    """Yield the findings of a machine."""
    for check in CHECKS:
        yield from check(document)
