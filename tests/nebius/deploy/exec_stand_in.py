"""Stands for `kubectl exec`: Slurm's part is a stand-in's.

The stand-in operator without machines has no containers to run anything in. What is asked of Slurm is answered from the
pods of the API server, so nodes are there when their pods are; `slurm.json` holds what tests and scontrol changed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

COMPONENT = "app.kubernetes.io/component"
REAL, STATE = os.environ["HPC_TEST_KUBECTL"], Path(os.environ["HPC_TEST_SLURM"])


def main() -> int:
    arguments = sys.argv[1:]
    command = arguments[arguments.index("--") + 1 :]
    config = next(argument for argument in arguments if argument.startswith("--kubeconfig"))
    pods = running(config)
    target = arguments[arguments.index("exec") + 1 :]
    if not any(name in target for name in pods):
        sys.stderr.write('Error from server (NotFound): pods "login-0" not found\n')
        return 1
    return answer(" ".join(command), command, pods)


def running(config: str) -> dict[str, dict]:
    done = subprocess.run(
        [REAL, config, "get", "pods", "--output=json"], capture_output=True, check=True, close_fds=False
    )
    fds = json.loads(done.stdout)["items"]
    return {item["metadata"]["name"]: item for item in fds if item["status"].get("phase") == "Running"}


def answer(text: str, command: list[str], pods: dict[str, dict]) -> int:
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    nodes = state.setdefault("nodes", {})
    if "test -e" in text:
        sys.stdout.write("yes\n")
    elif "show node" in text:
        sys.stdout.write("".join(rows(pods, nodes)))
    elif marked := re.search(r"(?s)squeue.*%i(\|[0-9a-f]+\|)", text):
        mark = marked[1]
        for job in state.get("jobs", []):
            sys.stdout.write(mark.join(job) + mark + "\n")
    elif found := re.search(r"scontrol update NodeName=(\S+) State=(\w+)(?: Reason=(.*))?", text):
        nodes[found[1]] = {
            "drained": found[2] == "DRAIN", "reason": found[3] or "", "asleep": found[2] == "POWER_DOWN",
        }  # fmt: skip
    elif found := re.search(r"scontrol delete NodeName=(\S+)", text):
        nodes.pop(found[1], None)
        state["known"] = [item for item in state.get("known", []) if item != found[1]]
        state.setdefault("deleted", []).append(found[1])
    elif "python3 -c" in text:
        state["people"] = json.load(sys.stdin)["payload"]
        sys.stdout.write("made user alice (2001)\n{}\n")
    else:
        sys.stderr.write(f"no stand-in for {text}\n")
        return 127
    part = STATE.with_name(f".{STATE.name}.{os.getpid()}")
    state["known"] = sorted({*state.get("known", []), *workers(pods)})
    part.write_text(json.dumps(state))
    part.replace(STATE)
    return 0


def workers(pods: dict[str, dict]) -> list[str]:
    return [name for name, pod in pods.items() if pod["metadata"].get("labels", {}).get(COMPONENT) == "worker"]


def rows(pods: dict[str, dict], nodes: dict[str, dict]) -> list[str]:
    """slurmctld keeps nodes that have registered once."""
    known = json.loads(STATE.read_text()).get("known", []) if STATE.exists() else []
    found = []
    for name in sorted({*workers(pods), *known}):
        asleep = nodes.get(name, {}).get("asleep") and name not in pods
        base = "IDLE" if name in pods else "IDLE+POWERED_DOWN" if asleep else "DOWN*"
        state = base + ("+DRAIN" if nodes.get(name, {}).get("drained") else "") + "+DYNAMIC_NORM"
        reason = (
            f" Reason={nodes[name]['reason']} [root@2026-01-01T00:00:00]" if nodes.get(name, {}).get("reason") else ""
        )
        found.append(f"NodeName={name} Gres={gres(pods.get(name))} State={state}{reason}\n")
    return found


def gres(pod: dict | None) -> str:
    for container in (pod or {}).get("spec", {}).get("containers", ()):
        if count := container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu"):
            return f"gpu:h100:{count}"
    return "(null)"


if __name__ == "__main__":
    sys.exit(main())
