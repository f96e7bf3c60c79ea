"""Downloads what the first job on a node would wait minutes for: container images, and what A3 Mega's prolog pulls.

It runs as a phase of the set-up on the controller, and with its input as argument, until its standard input ends.
Small jobs of the lowest priority look which nodes lack an image; on several nodes, as rxdm's prolog then runs before
them. One node downloads the images and sends them to the others (sbcast). If that fails, each node downloads them.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

AT_ONCE = 32
"""Jobs at a time: each has an srun on this machine."""
GROUP = 8
"""Nodes of a job for rxdm's prolog: if it fails, it fails for all of them."""
_WORKING = re.compile(r"(idle|mixed|allocated|completing|planned|reserved)[-+]?")
_SCRIPT = Path(__file__).with_name("warm_up.sh")


class WarmUpRun:
    """A run of the warm-up."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self.payload, self.end = payload, time.monotonic() + payload["seconds"]
        self.name = f"hpc-warm-up-{os.getpid()}"
        self.results: dict[str, str] = {}
        """By node: ready, lacks, or the reason why it is not warm."""

    def run(self) -> int:
        """Warm all nodes, print the result, and return the number of nodes that are not warm."""
        states = dict(line.split() for line in capture("sinfo", "--noheader", "--Node", "--all", "--format=%N %T"))
        parts, seen, groups = self.payload["partitions"], set[str](), []
        for part in parts:
            own = [node for node in part["nodes"] if node not in seen]
            seen.update(own)
            self.results |= {node: states.get(node, "unknown to slurmctld") for node in own}
            free = {node for node in part["nodes"] + part["others"] if _WORKING.fullmatch(states.get(node, ""))}
            part["free"], part["partners"] = [node for node in own if node in free], sorted(free)
            size = GROUP if part["rxdm"] else 1
            groups += [(part, part["free"][at : at + size]) for at in range(0, len(part["free"]), size)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda row: self.job(*row, source=""), groups))
            for part in parts:
                lacking = [node for node in part["free"] if self.results[node] == "lacks"]
                ready = [node for node in part["free"] if self.results[node] == "ready"]
                source = next(iter(ready + lacking), "")
                if lacking:
                    say(f"sending images from {source} to {len({*lacking} - {source})} nodes")
                if lacking and not self.job(part, list({source: 0} | dict.fromkeys(lacking)), source=source):
                    list(pool.map(lambda node, part=part: self.job(part, [node], source=node), lacking))
        # A machine that is off (~) or starts or stops (# %) is not started for the warm-up.
        off = [node for node, text in self.results.items() if text.endswith(("~", "#", "%", "!"))]
        missed = {node: text for node, text in self.results.items() if text != "ready" and node not in off}
        for node, text in missed.items():
            say(f"node {node}: not warm: {text}")
        count = len(self.results) - len(off)
        say(f"warm-up: {count - len(missed)} of {count} nodes are warm" + (f", {len(off)} are off" if off else ""))
        return len(missed)

    def job(self, part: dict[str, Any], nodes: list[str], *, source: str) -> bool:
        """Run a task on each node, and store the results. `source` downloads and sends images; empty: look only."""
        if part["rxdm"] and not source and len(nodes) == 1:  # its prolog runs for jobs on several nodes
            nodes = [*nodes, *[node for node in part["partners"] if node not in nodes][:1]]
            if len(nodes) == 1:
                self.results[nodes[0]] = "rxdm runs for jobs on two or more nodes, and no other is free"
                return False
        seconds = max(0.0, self.end - time.monotonic())
        # nvidia+pytorch+24.04-py3 is the file of nvidia/pytorch:24.04-py3.
        images = [f"{re.sub('[/:@#]', '+', image)}={image}" for image in self.payload["images"]]
        line = [
            "srun",
            "--quiet",
            f"--job-name={self.name}",
            *"--chdir=/ --nice=100000 --mpi=none --export=NONE".split(),
        ]
        line += [f"--nodelist={','.join(nodes)}", f"--ntasks={len(nodes)}", f"--nodes={len(nodes)}", "--immediate=60"]
        line += [*part["options"], "/bin/bash", "-c", _SCRIPT.read_text(), "warm-up", source, *images]
        # srun cancels its job when it is terminated.
        done = subprocess.run(
            ["timeout", "--kill-after=15", f"{seconds:.0f}.1", *line],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        why = "no end in time" if done.returncode == 124 else " ".join(done.stderr.split())[-300:]
        answers = dict(words[1:3] for text in done.stdout.splitlines() if (words := text.split())[:1] == ["warm-up:"])
        for node in set(nodes) & set(self.results):
            self.results[node] = answers.get(node) or why or f"exit code {done.returncode}"
            if self.results[node] == "ready":
                say(f"node {node}: ready")
        return all(answers.get(node) == "ready" for node in nodes)


def capture(*command: str) -> list[str]:
    """Return the lines that a command prints."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.splitlines()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def warm(payload: dict[str, Any], *, while_read: bool = False) -> int:
    """Warm nodes, and return the number of those that are not warm. A failure does not fail an `up`. With `while_read`
    the end of standard input ends it and cancels its jobs."""
    run = WarmUpRun(payload)

    def cancel() -> None:
        while os.read(0, 4096):
            pass
        capture("scancel", f"--name={run.name}")
        os._exit(130)

    if while_read:
        threading.Thread(target=cancel, daemon=True).start()
    return run.run()


if __name__ == "__main__":
    sys.exit(1 if warm(json.loads(sys.argv[1]), while_read=True) else 0)
