"""The program that installs machines of Google Cloud, run by a machine: in order, told of, killed, restarted, changed.

Its steps here are small ones; the machine has a metadata server of the tests' own, which keeps what it is told.
"""

import base64
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from cluster.platforms.gcp.image import LOG, ROOT, ImageStep, program, step_of_text
from tests.local.real import RealStack
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

SERVER = """\
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        allowed = self.headers.get("Metadata-Flavor") == "Google"
        with open("/root/told", "a") as file:
            file.write(f"{self.path} {body}\\n" if allowed else "refused\\n")
        self.send_response(200 if allowed else 403)
        self.end_headers()

    def log_message(self, *_):
        pass

http.server.HTTPServer(("", 80), Handler).serve_forever()
"""
UNIT = """\
[Unit]
Description={0}
After=network.target
[Service]
Type={1}
ExecStart={2}
KillMode=process
[Install]
WantedBy=multi-user.target
"""


class WithMetadata(RealStack):
    """Its first machine is also known by the name that Compute Engine's metadata server has."""

    def network(self, machines: int = 1) -> dict[str, Any]:
        """Inputs of the network."""
        found = super().network(machines)
        return {**found, "hosts": {**found["hosts"], "metadata.google.internal": self.address("m0")}}


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., RealStack]) -> Iterator[RealStack]:
    """One machine with a metadata server, which runs /root/install at every boot, as Compute Engine does."""
    made = new_stack("ti", WithMetadata)
    units = {
        "hpc-test-metadata": UNIT.format("A metadata server", "simple", "/usr/bin/python3 /root/server.py"),
        "hpc-test-startup": UNIT.format("The start-up script", "exec", "/bin/bash /root/install"),
    }
    files = {f"/etc/systemd/system/{name}.service": text for name, text in units.items()} | {"/root/server.py": SERVER}
    made.up(made.machine("m0", files={path: {"content": text, "mode": "0644"} for path, text in files.items()}))
    made.ssh(
        "m0", "systemctl daemon-reload; systemctl enable --now hpc-test-metadata; systemctl enable hpc-test-startup"
    )
    yield made
    made.down()


@pytest.fixture
def machine(stack: RealStack) -> RealStack:
    """The machine, as if nothing had been installed."""
    stack.ssh("m0", f"systemctl stop hpc-test-startup; rm -rf {ROOT} {LOG} /root/ran /root/told /root/go /root/install")
    return stack


def step(name: str, body: str, parameters: Mapping[str, str] | None = None) -> ImageStep:
    """A step that notes that it ran, then does `body`."""
    return step_of_text(name, f'#!/bin/bash\n. "$HPC_LIBRARY"\necho {name} >>/root/ran\n{body}\n', parameters or {})


def give(stack: RealStack, *steps: ImageStep, parameters: Mapping[str, str] | None = None) -> None:
    """Put the program on the machine."""
    text = program("test", list(steps), parameters or {})
    stack.ssh("m0", f"echo {base64.b64encode(text.encode()).decode()} | base64 -d >/root/install")


def run(stack: RealStack) -> tuple[int, str]:
    """Run it to its end: exit code and what it says."""
    *said, status = stack.ssh("m0", "bash /root/install 2>&1; echo $?").splitlines()
    return int(status), "\n".join(said)


def ran(stack: RealStack) -> list[str]:
    """Return which steps ran, in order."""
    return stack.ssh("m0", "cat /root/ran 2>/dev/null || true").split()


def state(stack: RealStack) -> str:
    """Return what others read."""
    return stack.ssh("m0", f"cat {ROOT}/state 2>/dev/null || true")


def until(stack: RealStack, test: str) -> None:
    """Wait until a command succeeds on the machine, also over a restart of it."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if stack.ssh("m0", f"{test} && echo yes || true") == "yes":
                return
        except AssertionError:  # no SSH while it restarts
            pass
        assert time.monotonic() < end, f"{test} did not come about: {state(stack)}\n{stack.ssh('m0', f'cat {LOG}')}"
        time.sleep(0.2)


def test_steps_run_in_order_and_are_logged(machine: RealStack) -> None:
    give(
        machine, step("10-first", "echo of the first"), step("20-second", "echo $KERNEL"), parameters={"KERNEL": "k 1"}
    )
    assert run(machine)[0] == 0
    assert ran(machine) == ["10-first", "20-second"]
    assert state(machine) == "done"
    path = "/computeMetadata/v1/instance/guest-attributes/hpc/bake"
    told = machine.ssh("m0", "cat /root/told").splitlines()
    assert told == [f"{path} step 1 of 2: first", f"{path} step 2 of 2: second", f"{path} done"]
    log = machine.ssh("m0", f"cat {LOG}")
    assert "step 1 of 2: first\nof the first\n" in log
    assert "\nk 1\n" in log


def test_a_second_run_runs_no_step(machine: RealStack) -> None:
    give(machine, step("10-first", ""), step("20-second", ""))
    run(machine)
    run(machine)
    assert ran(machine) == ["10-first", "20-second"]


def test_a_changed_step_and_a_changed_parameter_run_again_and_nothing_else(machine: RealStack) -> None:
    def install(body: str, kernel: str) -> None:
        known = {"KERNEL": kernel, "ENROOT_VERSION": "1"}
        steps = (("10-a", body), ("20-b", 'echo "$ENROOT_VERSION"'), ("30-c", "true"))
        give(machine, *(step(name, text, known) for name, text in steps), parameters=known)
        assert run(machine) == (0, "")

    install("true", "1")
    install("echo changed", "1")
    assert ran(machine) == ["10-a", "20-b", "30-c", "10-a"]
    # The library asks for the kernel, so every step may.
    install("echo changed", "2")
    assert ran(machine)[4:] == ["10-a", "20-b", "30-c"]


def test_a_failed_step_ends_it_with_the_end_of_its_log(machine: RealStack) -> None:
    give(machine, step("10-first", "echo early"), step("20-bad", "seq 100\ndie 'no disk'"), step("30-last", ""))
    status, said = run(machine)
    assert status == 1
    assert said.splitlines()[0] == "step 20-bad failed: exit code 1; the end of its log:"
    assert said.splitlines()[1:] == [*map(str, range(62, 101)), "error: no disk"]
    assert ran(machine) == ["10-first", "20-bad"]
    assert state(machine) == "failed 20-bad"
    assert machine.ssh("m0", "tail -n 1 /root/told").endswith(" failed: 20-bad")
    give(machine, step("10-first", "echo early"), step("20-bad", "echo mended"), step("30-last", ""))
    assert run(machine) == (0, "")
    assert ran(machine)[2:] == ["20-bad", "30-last"]


def test_after_a_killed_run_the_next_waits_for_its_processes(machine: RealStack) -> None:
    body = textwrap.dedent("""\
        ! [[ -e /root/within ]] || die "two at once"
        touch /root/within
        while [[ ! -e /root/go ]]; do sleep 0.05; done
        rm /root/within""")
    give(machine, step("10-first", ""), step("20-slow", body), step("30-last", ""))
    machine.ssh("m0", "systemctl start hpc-test-startup")
    until(machine, "test -e /root/within")
    assert state(machine) == "running 20-slow"
    # Only the runner: its step goes on, as apt would.
    machine.ssh("m0", "kill -9 $(systemctl show -P MainPID hpc-test-startup)")
    until(machine, "! systemctl is-active -q hpc-test-startup")
    machine.ssh("m0", "systemctl reset-failed hpc-test-startup; systemctl start hpc-test-startup")
    assert ran(machine) == ["10-first", "20-slow"]
    machine.ssh("m0", "touch /root/go")
    until(machine, f"grep -qx done {ROOT}/state")
    assert ran(machine) == ["10-first", "20-slow", "20-slow", "30-last"]


def test_a_step_may_restart_the_machine_once(machine: RealStack) -> None:
    body = '[[ -e /root/went ]] || { touch /root/went; exit "$REBOOT"; }'
    give(machine, step("10-first", ""), step("20-driver", body), step("30-last", ""))
    boot = machine.ssh("m0", "rm -f /root/went; cat /proc/sys/kernel/random/boot_id; systemctl start hpc-test-startup")
    until(machine, f"grep -qx done {ROOT}/state")
    assert machine.ssh("m0", "cat /proc/sys/kernel/random/boot_id") != boot
    assert ran(machine) == ["10-first", "20-driver", "20-driver", "30-last"]


def test_a_step_that_requests_a_second_restart_fails(machine: RealStack) -> None:
    give(machine, step("10-driver", 'exit "$REBOOT"'))
    machine.ssh("m0", "systemctl start hpc-test-startup")
    until(machine, f"grep -q failed {ROOT}/state")
    assert state(machine) == "failed 10-driver"
    assert "it asks for a second restart of the machine" in machine.ssh("m0", f"cat {LOG}")
