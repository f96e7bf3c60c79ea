"""Downloads what the first job on a node would wait minutes for: container images, and what A3 Mega's prolog pulls.

It runs as a phase of the set-up on the controller, after `ready`, and as root of any machine with Slurm's commands:

    python3 warm_up.py JSON        JSON: as cluster/jobs/warm_up.py writes it; ends with its standard input

It submits one small job for each node that takes jobs, with the lowest priority. One node downloads an image, and sends
it to the others of its partition in a job over all of them (sbcast). If that fails twice, each node downloads it. After
a minute, a busy node is reported as not warm. A failure does not fail an `up`: the node's first job only starts later.
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
"""Longest wait for a busy node."""
AT_ONCE = 32
"""Jobs at a time: each has an srun on this machine."""
GROUP = 8
"""Nodes of one job that runs rxdm's prolog: if it fails, it fails for all of them."""
NICE = 100_000
"""Places the jobs behind every job of a user's (srun --nice)."""
LACKS, RXDM, MISSED = "lacks", "rxdm", "missed"
"""Work that remains for a node: images, or rxdm; or nothing, as its job failed."""
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
_OFF = ("~", "#", "%", "!")
"""sinfo's marks of elastic nodes whose machine is off, or starts or stops."""
_SCRIPT = Path(__file__).with_name("warm_up.sh")


class Run:
    """One run of the warm-up, with its progress."""

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
        """Warm all nodes. Return by node why it is not warm."""
        nodes: dict[str, dict[str, Any]] = {}
        for part in self.payload["partitions"]:
            for node in part["nodes"]:
                nodes.setdefault(node, part)
        self.states = node_states()
        off = len([node for node in nodes if self.is_off(node)])
        if off:
            say(f"{off} nodes are off until a job needs them, and are not warmed")
        reachable: list[tuple[str, dict[str, Any]]] = []
        for node, part in nodes.items():
            if self.takes_jobs(node):
                reachable.append((node, part))
            elif self.is_off(node):
                self.wanted.discard(node)
            else:
                self.miss(node, self.states.get(node, "unknown to slurmctld"))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            look = bool(self.payload["images"])
            work = dict(pool.map(lambda row: (row[0], self.warm_node(*row, look=look)), reachable))
            for part in self.payload["partitions"]:
                self.share_images(part, [node for node, of in reachable if of is part], work)
            lacking = [row for row in reachable if work[row[0]] == LACKS]
            work.update(pool.map(lambda row: (row[0], self.warm_node(*row)), lacking))
            groups: list[tuple[dict[str, Any], list[str]]] = []
            for part in self.payload["partitions"]:
                without_rxdm = [node for node, of in reachable if of is part and work[node] == RXDM]
                groups += [(part, group) for group in grouped(without_rxdm, self.partners(part))]
            list(pool.map(lambda row: self.run_rxdm(*row), groups))
        return self.missed

    def warm_node(self, node: str, part: dict[str, Any], *, look: bool = False) -> str:
        """Download the images of one node, or with `look` only check them. Return the work that remains."""
        code, out, err = self.job(part, [node], [*(["--look"] if look else []), *self.image_files()])
        if code:
            self.miss(node, why(code, err))
            return MISSED
        if "warm-up: lacks" in out:
            return LACKS
        if part["rxdm"] and "warm-up: rxdm" not in out:
            return RXDM
        self.complete(node)
        return ""

    def share_images(self, part: dict[str, Any], nodes: list[str], work: dict[str, str]) -> None:
        """Send the images from a node that has them to those that lack some. If no node has them, one downloads them
        first."""
        lacking = [node for node in nodes if work[node] == LACKS]
        complete = [node for node in nodes if work[node] in ("", RXDM)]
        if len(lacking) > 1 and not complete:
            first = lacking.pop(0)
            work[first] = self.warm_node(first, part)
            complete = [first] if work[first] != MISSED else []
        if lacking and complete:
            say(f"sending images from {complete[0]} to {len(lacking)} nodes")
            # A second try avoids a download on each node because one was too busy to answer.
            for then in ("it is tried once more", "each node downloads them"):
                code, _, err = self.job(part, [complete[0], *lacking], ["--send", complete[0], *self.image_files()])
                if not code:
                    break
                say(f"sending images failed, {then}: {why(code, err)}")

    def image_files(self) -> list[str]:
        """Return FILE=IMAGE for each image."""
        return [f"{file_name(image)}={image}" for image in self.payload["images"]]

    def run_rxdm(self, part: dict[str, Any], group: list[str]) -> None:
        """Run a job on several nodes: before it, rxdm's prolog pulls its images."""
        if len(group) < 2:
            self.miss(group[0], "rxdm runs for jobs on two or more nodes, and no other node is free")
            return
        code, out, err = self.job(part, group, ["--rxdm"])
        for node in group:
            if code or out.count("warm-up: ready") < len(group):
                self.miss(node, why(code, err))
            else:
                self.complete(node)

    def partners(self, part: dict[str, Any]) -> list[str]:
        """Return nodes of a partition that can join the job of a single node: warm ones, and those that are not to be
        warmed."""
        return [*(node for node in part["nodes"] if node in self.ready), *filter(self.takes_jobs, part["others"])]

    def takes_jobs(self, node: str) -> bool:
        """Return whether slurmctld has the node in service."""
        state = self.states.get(node, "")
        return state.startswith(_WORKING) and not state.endswith(("*", *_OFF))

    def is_off(self, node: str) -> bool:
        """Return whether the node's machine is off, or starts or stops. It is not started for the warm-up."""
        return self.states.get(node, "").endswith(_OFF)

    def job(self, part: dict[str, Any], nodes: list[str], arguments: list[str]) -> tuple[int, str, str]:
        """Run srun over these nodes, a task on each; return exit code (124 if it took too long), output and errors."""
        seconds = self.end - time.monotonic()
        if seconds < 1:
            return 124, "", ""
        # A job with a longer time limit than its partition allows never starts.
        minutes = min(int(seconds / 60) + 2, part["minutes"] or sys.maxsize)
        command = ["srun", "--quiet", f"--job-name={self.name}", "--chdir=/", f"--nice={NICE}", "--mpi=none"]
        command += [f"--partition={part['name']}", f"--nodelist={','.join(nodes)}"]
        command += [f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}"]
        command += [f"--cpus-per-task={part['cpus']}", f"--mem={part['memory']}M", f"--time={minutes}"]
        command += [f"--immediate={BUSY_SECONDS}", "--export=NONE"]
        command += ["/bin/bash", "-c", _SCRIPT.read_text(), "warm-up", *arguments]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, errors="replace", **streams)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # srun cancels its job
            try:
                out, err = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            return 124, out, err
        return process.returncode, out, err

    def complete(self, node: str) -> None:
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


def grouped(nodes: list[str], partners: list[str]) -> list[list[str]]:
    """Return the nodes in groups of two to GROUP + 1. A single node gets one of the partners, if there is any."""
    groups = [nodes[start : start + GROUP] for start in range(0, len(nodes), GROUP)]
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
    of_script = [line for line in lines if not line.startswith("srun: error:")]
    text = " ".join(" ".join(of_script or lines).split())[-300:]
    if code == 124:
        return "no end in time"
    if "nodes are busy" in err or "Immediate execution impossible" in err:
        return f"busy for {BUSY_SECONDS} s"
    return f"exit code {code}: {text}"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def warm(payload: dict[str, Any], *, while_read: bool = False) -> int:
    """Warm nodes, print the result, and return the number of nodes that are not warm. With `while_read`, the end of
    standard input ends it and cancels its jobs."""
    run = Run(payload)
    if while_read:
        threading.Thread(target=_cancel_at_end_of_input, args=(run.name,), daemon=True).start()
    missed = run.run()
    say(f"warm-up: {len(run.ready)} of {len(run.wanted)} nodes are warm")
    if missed:
        say("warm-up: the first job on the others waits longer; ./hpc warm-up STACK tries them again")
    return len(missed)


def _cancel_at_end_of_input(name: str) -> None:
    while os.read(0, 4096):
        pass
    subprocess.run(
        ["scancel", f"--name={name}"], capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )
    os._exit(130)


if __name__ == "__main__":
    sys.exit(1 if warm(json.loads(sys.argv[1]), while_read=True) else 0)
