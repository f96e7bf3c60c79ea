"""Downloads what the first job on a node would wait minutes for: container images, and what A3 Mega's prolog pulls.

As a phase of the set-up on the controller, after `ready`, and by itself as root of any machine with Slurm's commands:

    python3 warm_up.py JSON        JSON: as cluster/jobs/warm_up.py writes it; ends with its standard input

One small job on each node that takes jobs, with the lowest priority. One node downloads an image, and sends it to the
others of its partition in a job over all of them (sbcast); where that fails twice, each node downloads it itself. A
node that is busy is waited for a minute and then reported. Nothing here fails an `up`: a node that is not warm is only
slower for its first job.
"""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BUSY_SECONDS = 60
"""Time for a busy node to have room."""
AT_ONCE = 32
"""Jobs side by side: each costs an srun here."""
GROUP = 8
"""Nodes of one job that lets rxdm's prolog run: one that fails does so for all of its nodes."""
NICE = 100_000
"""Behind every job of a user's (srun --nice)."""
LACKS, RXDM, MISSED = "lacks", "rxdm", "missed"
"""Work that is left on a node: get images, run rxdm; or nothing, as it could not be reached."""
_GOOD = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
_OFF = ("~", "#", "%", "!")
"""sinfo's marks of elastic nodes whose machine is off, or starts or stops."""
_BODY = Path(__file__).with_name("warm_up.sh")


class Run:
    """A run: what is asked for, and how far it has come."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self.payload = payload
        self.name = f"hpc-warm-up-{os.getpid()}"
        self.began = time.monotonic()
        self.end = self.began + payload["seconds"]
        self.ready: set[str] = set()
        self.missed: dict[str, str] = {}
        self.wanted = {node for part in payload["partitions"] for node in part["nodes"]}
        self.states: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Warm all nodes; return why each of the others is not warm."""
        nodes: dict[str, dict[str, Any]] = {}
        for part in self.payload["partitions"]:
            for node in part["nodes"]:
                nodes.setdefault(node, part)
        self.states = node_states()
        off = len([node for node in nodes if self.is_off(node)])
        if off:
            say(f"{off} nodes are off until a job needs them, and are not warmed")
        going: list[tuple[str, dict[str, Any]]] = []
        for node, part in nodes.items():
            if self.takes_jobs(node):
                going.append((node, part))
            elif self.is_off(node):
                self.wanted.discard(node)
            else:
                self.miss(node, self.states.get(node, "unknown to slurmctld"))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            look = bool(self.payload["images"])
            found = dict(pool.map(lambda row: (row[0], self.warm_node(*row, look=look)), going))
            for part in self.payload["partitions"]:
                self.share_images(part, [node for node, its in going if its is part], found)
            lacking = [row for row in going if found[row[0]] == LACKS]
            found.update(pool.map(lambda row: (row[0], self.warm_node(*row)), lacking))
            groups: list[tuple[dict[str, Any], list[str]]] = []
            for part in self.payload["partitions"]:
                needing = [node for node, its in going if its is part and found[node] == RXDM]
                groups += [(part, group) for group in grouped(needing, self.partners(part))]
            list(pool.map(lambda row: self.run_rxdm(*row), groups))
        return self.missed

    def warm_node(self, node: str, part: dict[str, Any], *, look: bool = False) -> str:
        """Download the images of one node, or with `look` only list them; returns the work that is left there."""
        code, out, err = self.job(part, [node], [*(["--look"] if look else []), *self.image_files()])
        if code:
            self.miss(node, why(code, err))
            return MISSED
        if "warm-up: lacks" in out:
            return LACKS
        if part["rxdm"] and "warm-up: rxdm" not in out:
            return RXDM
        self.done(node)
        return ""

    def share_images(self, part: dict[str, Any], nodes: list[str], found: dict[str, str]) -> None:
        """Send the images from a node that has them to those that lack some; if there is none, one downloads them."""
        lacking = [node for node in nodes if found[node] == LACKS]
        having = [node for node in nodes if found[node] in ("", RXDM)]
        if len(lacking) > 1 and not having:
            first = lacking.pop(0)
            found[first] = self.warm_node(first, part)
            having = [first] if found[first] != MISSED else []
        if lacking and having:
            say(f"sending images from {having[0]} to {len(lacking)} nodes")
            # Once more where it fails: one node that was too busy to answer would cost a download on each.
            for then in ("it is tried once more", "each node downloads them"):
                code, _, err = self.job(part, [having[0], *lacking], ["--send", having[0], *self.image_files()])
                if not code:
                    break
                say(f"sending images failed, {then}: {why(code, err)}")

    def image_files(self) -> list[str]:
        """Return FILE=IMAGE for each image."""
        return [f"{file_name(image)}={image}" for image in self.payload["images"]]

    def run_rxdm(self, part: dict[str, Any], group: list[str]) -> None:
        """Run a job on several nodes, before which rxdm's prolog pulls its images."""
        if len(group) < 2:
            self.miss(group[0], "rxdm runs for jobs on two or more nodes, and no other node is free")
            return
        code, out, err = self.job(part, group, ["--rxdm"])
        for node in group:
            if code or out.count("warm-up: ready") < len(group):
                self.miss(node, why(code, err))
            else:
                self.done(node)

    def partners(self, part: dict[str, Any]) -> list[str]:
        """Return nodes of a partition that can join a job of a node that is alone: warm ones, and those that nobody
        asked to warm."""
        return [*(node for node in part["nodes"] if node in self.ready), *filter(self.takes_jobs, part["others"])]

    def takes_jobs(self, node: str) -> bool:
        """Return whether slurmctld has the node in service."""
        state = self.states.get(node, "")
        return state.startswith(_GOOD) and not state.endswith(("*", *_OFF))

    def is_off(self, node: str) -> bool:
        """Return whether the node's machine is off, or starts or stops: it is not started for this."""
        return self.states.get(node, "").endswith(_OFF)

    def job(self, part: dict[str, Any], nodes: list[str], arguments: list[str]) -> tuple[int, str, str]:
        """Run srun over these nodes, a task on each; return exit code (124 if it took too long), output and errors."""
        left = self.end - time.monotonic()
        if left < 1:
            return 124, "", ""
        # A job that asks for longer than its partition allows never starts.
        minutes = min(int(left / 60) + 2, part["minutes"] or sys.maxsize)
        count = len(nodes)
        line = ["srun", "--quiet", f"--job-name={self.name}", "--chdir=/", f"--nice={NICE}", "--mpi=none"]
        line += [
            f"--partition={part['name']}",
            f"--nodelist={','.join(nodes)}",
            f"--nodes={count}",
            f"--ntasks={count}",
        ]
        line += [f"--cpus-per-task={part['cpus']}", f"--mem={part['memory']}M", f"--time={minutes}"]
        line += [f"--immediate={BUSY_SECONDS}", "--export=NONE"]
        line += ["/bin/bash", "-c", _BODY.read_text(), "warm-up", *arguments]
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        try:
            out, err = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            process.terminate()  # srun cancels its job
            try:
                out, err = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            return 124, out, err
        return process.returncode, out, err

    def done(self, node: str) -> None:
        if node in self.wanted - self.ready:
            self.ready.add(node)
            took = time.monotonic() - self.began
            say(f"node {node}: ready after {took:.0f} s ({len(self.ready)} of {len(self.wanted)})")

    def miss(self, node: str, reason: str) -> None:
        if node in self.wanted - self.ready:
            self.missed[node] = reason
            say(f"node {node}: not warm: {reason}")


def node_states() -> dict[str, str]:
    """Return the state of each node, as sinfo prints it."""
    command = ["sinfo", "--noheader", "--Node", "--all", "--format=%N %T"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line.strip())


def grouped(needing: list[str], partners: list[str]) -> list[list[str]]:
    """Return the nodes in groups of two to GROUP + 1; a node that is alone gets one of the partners, if there is
    any."""
    groups = [needing[start : start + GROUP] for start in range(0, len(needing), GROUP)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        last = groups.pop()
        groups[-1] = groups[-1] + last
    if len(groups) == 1 and len(groups[0]) == 1:
        groups[0] = groups[0] + [node for node in partners if node not in groups[0]][:1]
    return groups


def file_name(image: str) -> str:
    """Return the file of an image, without its ending: nvidia+pytorch+24.04-py3 for nvidia/pytorch:24.04-py3."""
    return "".join("+" if letter in "/:@#" else letter for letter in image)


def why(code: int, err: str) -> str:
    """Return why a job did not do its work, on one line."""
    lines = [line for line in err.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("srun: error:")]
    text = " ".join(" ".join(own or lines).split())[-300:]
    if code == 124:
        return "no end in time"
    if "nodes are busy" in err or "Immediate execution impossible" in err:
        return f"busy for {BUSY_SECONDS} s"
    return f"exit code {code}: {text}"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def warm(payload: dict[str, Any], *, while_read: bool = False) -> int:
    """Warm nodes, print how that ended, and return the number of nodes that are not warm. With `while_read`, the end of
    standard input ends it and cancels its jobs."""
    run = Run(payload)
    if while_read:
        threading.Thread(target=_watch, args=(run.name,), daemon=True).start()
    missed = run.run()
    say(f"warm-up: {len(run.ready)} of {len(run.wanted)} nodes are warm")
    if missed:
        say("warm-up: the first job on the others waits longer; ./hpc warm-up STACK tries them again")
    return len(missed)


def _watch(name: str) -> None:
    while os.read(0, 4096):
        pass
    subprocess.run(
        ["scancel", f"--name={name}"], capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )
    os._exit(130)


if __name__ == "__main__":
    sys.exit(1 if warm(json.loads(sys.argv[1]), while_read=True) else 0)
