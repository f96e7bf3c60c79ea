"""`python -m lab.soperator`: runs the operator until a signal ends it, and prints its steps."""

import argparse
import signal
import sys
import threading
from pathlib import Path

from lab.soperator.kube import Kube
from lab.soperator.local_machines import LocalMachines
from lab.soperator.nodes import Cloud
from lab.soperator.operator import Operator
from lab.soperator.pods import now
from lab.soperator.spec import NoMachines


def main() -> None:
    """Run the operator until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m lab.soperator")
    parser.add_argument("--server", required=True, help="URL of the Kubernetes API")
    parser.add_argument("--authority", type=Path, required=True, help="its certificate authority, a PEM file")
    parser.add_argument("--token-file", type=Path, required=True, help="holds the token of both APIs")
    parser.add_argument("--nebius", default="", metavar="HOST:PORT", help="the Nebius API's stand-in")
    parser.add_argument("--nebius-state", type=Path, help="the file that it writes with each change")
    parser.add_argument("--project", default="", help="whose node groups become nodes")
    parser.add_argument("--kubelet", type=int, default=10250, metavar="PORT", help="where the kubelet of all nodes is")
    parser.add_argument("--no-machines", action="store_true", help="only statuses: nothing can be run in pods")
    parser.add_argument("--folder", type=Path, required=True, help="what is known of the machines")
    given = parser.parse_args()
    given.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    machines = NoMachines() if given.no_machines else LocalMachines(given.folder, _report)
    token = given.token_file.read_text().strip()
    operator = Operator(
        Kube(given.server, given.authority, token),
        cloud=Cloud(f"{token}@{given.nebius}", given.project, given.nebius_state) if given.nebius else None,
        machines=machines, kubelet=given.kubelet, report=_report,
    )  # fmt: skip
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    operator.run(ended.is_set)


def _report(text: str) -> None:
    sys.stdout.write(f"{now()} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
