"""Slurm has the nodes that the stack describes, with their GPUs, and no others."""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cluster.observe.nodes import NODES, Node, parse_nodes
from cluster.platforms.nebius.names import SENTINEL
from components.dynamic import report
from components.nebius.drain import resume
from components.nebius.kubernetes.kubectl import Kubectl, KubectlError
from components.nebius.kubernetes.pods import LOGIN, pod_of
from components.nebius.waits.poll import Look, wait_for
from scripts.node.slurm.output import rows

_SHOWN = 8
_PARALLEL = 16
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)")


def wait(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until `nodes` (GPUs of each, by name) take jobs; nodes of `nodesets` that have left are deleted from Slurm.

    A node that was drained counts as there, with a warning: its reason says who acts. `count_gpus`: whether GPUs are
    counted inside the jail too. Raises WaitError.
    """
    wanted = {name: int(gpus) for name, gpus in spec["nodes"].items()}
    facts = wait_for(
        f"{len(wanted)} Slurm nodes",
        lambda: _look(kubectl, wanted, spec["nodesets"]),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit="nebius.timeouts.available",
        todo="`scontrol show node NAME` and the log of its pod (container slurmd) show why; then run `up` again",
    )
    for line in facts.pop("drained"):
        report(line)
    if spec.get("count_gpus"):
        _count_gpus(kubectl, {name: gpus for name, gpus in wanted.items() if gpus}, limits)
    return {}


def _look(kubectl: Kubectl, wanted: Mapping[str, int], nodesets: Sequence[str]) -> Look:
    if not _populated(kubectl):
        return Look(text=f"the jail has no {SENTINEL}: it is not populated")
    text = LOGIN.run(kubectl, *NODES.split())
    found = parse_nodes(text)
    left = sorted(name for name, node in found.items() if _has_left(node, wanted, nodesets))
    for name in left:
        report(f"{name} has left the cluster: deleting it from Slurm")
        LOGIN.run(kubectl, "scontrol", "delete", f"NodeName={name}")
    resume(kubectl, (found[name] for name in wanted if name in found))
    return compare(wanted, found, {row["NodeName"]: row.get("Gres", "") for row in rows(text) if "NodeName" in row})


def compare(wanted: Mapping[str, int], found: Mapping[str, Node], gres: Mapping[str, str]) -> Look:
    """Which of the nodes are missing, do not take jobs, or have other GPUs. A pure function."""
    why: list[str] = []
    drained: list[str] = []
    for name, gpus in wanted.items():
        node = found.get(name)
        if node is None:
            why.append(f"{name} has not registered")
        elif node.drained and not node.down:
            drained.append(f"{name} is {node.word}: {node.reason} ({node.by}). `./hpc nodes STACK` says who must act")
        elif not node.fine:
            why.append(f"{name} is {node.word}" + (f": {node.reason}" if node.reason else ""))
        elif _gpus(gres.get(name, "")) != gpus:
            why.append(f"{name} has {_gpus(gres.get(name, ''))} GPUs in Slurm, not {gpus}")
    more = f" and {len(why) - _SHOWN} more" if len(why) > _SHOWN else ""
    return Look(done=not why, text="; ".join(why[:_SHOWN]) + more, facts={"drained": drained})


def _gpus(gres: str) -> int:
    """GPUs in `gpu:nvidia_h100_80gb_hbm3:8(S:0-1),...`."""
    return sum(int(count) for count in _GPUS.findall(gres.replace("(null)", "")))


def _has_left(node: Node, wanted: Mapping[str, int], nodesets: Sequence[str]) -> bool:
    """Whether a node of ours has no pod any more: slurmctld keeps dynamic nodes that never come back."""
    nodeset, _, index = node.name.rpartition("-")
    return nodeset in nodesets and index.isdigit() and node.name not in wanted and (node.down or node.silent)


def _populated(kubectl: Kubectl) -> bool:
    return LOGIN.run(kubectl, "sh", "-c", f"test -e {SENTINEL} && echo yes || echo no").strip() == "yes"


def _count_gpus(kubectl: Kubectl, wanted: Mapping[str, int], limits: Mapping[str, Any]) -> None:
    """Compare what `nvidia-smi` lists in each node's jail: a library that a race has truncated shows here."""

    def count(name: str) -> str:
        try:
            listed = pod_of(name, ("node",)).run(kubectl, "nvidia-smi", "--list-gpus")
        except KubectlError as error:
            return f"{name}: {error}"
        found = sum(line.startswith("GPU ") for line in listed.splitlines())
        return "" if found == wanted[name] else f"{name} has {found} of {wanted[name]} GPUs in its jail"

    def look() -> Look:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            wrong = [text for text in pool.map(count, wanted) if text]
        return Look(done=not wrong, text="; ".join(wrong[:_SHOWN]))

    if wanted:
        wait_for(
            "GPUs in the jail",
            look,
            seconds=min(limits["seconds"], 600),
            pace=limits["pace"],
            todo="delete the worker pods that are named (kubectl delete pod), which Soperator creates again; Soperator "
            "before 4.1.4 needs a newer nebius.soperator.version; if libnvidia-ml.so is not found, run ldconfig in the "
            "jail; then run `up` again",
        )
