"""watch.sh: a node joins again if its config version is old or missing, and restarts slurmd if it missed a slurm.conf.
quick_acks.sh: routes to the machine's own addresses get `quickack`."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from system import munge

from tests import programs

WATCH, QUICK_ACKS = (Path(__file__).parents[2] / "scripts" / "node" / name for name in ("watch.sh", "quick_acks.sh"))
JOIN, RESTART = "restart hpc-node.service", "try-restart slurmd.service"


@pytest.fixture
def watch(tmp_path):
    """Run watch.sh for some rounds on a machine made of a folder; return its requests to systemd."""
    keys = [tmp_path / "node/munge.key", tmp_path / "node/delivered.key"]
    for name in ("board/etc", "node", "fetched", "bin", "run"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "board/cluster.json").write_text("orders\n")
    (tmp_path / "board/etc/slurm.conf").write_text("new\n")
    (tmp_path / "node/orders.json").write_text("orders\n")
    (tmp_path / "fetched/slurm.conf").write_text("new\n")
    for place, key in enumerate(keys):
        key.write_text("key\n")
        os.utime(key, (place, place))
    script = WATCH.read_text()
    for path, there in {
        "/opt/apps/adm/hpc": "board",
        "/etc/hpc/orders.json": "node/orders.json",
        "/run/slurm/conf": "fetched",
        "/usr/local/lib/hpc/refresh": "bin/refresh",
        "/etc/hpc/munge.key": "node/delivered.key",
        "/etc/munge/munge.key": "node/munge.key",
        "/etc/default/slurmd": "node/slurmd",
        "/run/hpc/slurmd-once": "run/slurmd-once",
        "seen=/run/hpc": "run",
    }.items():
        assert path in script
        script = script.replace(path, f"{'seen=' * path.startswith('seen=')}{tmp_path / there}")
    (tmp_path / "watch.sh").write_text(script)
    programs.write(tmp_path / "bin/systemctl", f'echo "$*" >> {tmp_path}/asked')
    programs.write(tmp_path / "bin/munge", "echo credential")
    programs.write(tmp_path / "bin/unmunge", f"[ ! -e {tmp_path}/deaf ]")
    programs.write(tmp_path / "bin/sleep", f'echo >> {tmp_path}/rounds\n[ $(wc -l < {tmp_path}/rounds) -le "$ROUNDS" ]')

    def rounds(count: int) -> list[str]:
        env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "ROUNDS": str(count)}
        subprocess.run(["sh", str(tmp_path / "watch.sh")], env=env, check=True, timeout=300, capture_output=True)
        asked = tmp_path / "asked"
        return asked.read_text().splitlines() if asked.exists() else []

    return rounds


def test_nothing_is_restarted_without_a_difference(watch):
    assert watch(20) == []


def test_unchanged_files_are_read_once_a_minute(watch, tmp_path):
    programs.write(tmp_path / "bin/cmp", f'echo >> {tmp_path}/read\nexec /usr/bin/cmp "$@"')
    assert watch(29) == []
    assert len((tmp_path / "read").read_text().splitlines()) == 3
    assert watch(60) == []
    assert len((tmp_path / "read").read_text().splitlines()) == 6
    (tmp_path / "board/cluster.json").write_text("ORDERS\n")
    assert watch(62) == [JOIN]


def test_a_munged_that_does_not_authenticate_restarts_the_join_once_a_minute(watch, tmp_path):
    (tmp_path / "deaf").touch()
    assert watch(15 + 30 + 14) == [JOIN] * 2


@pytest.mark.parametrize(
    ("path", "text", "rounds", "asked"),
    [
        ("node/orders.json", "older orders\n", 1, [JOIN]),
        ("board/cluster.json", None, 1, [JOIN]),  # the shared file system is gone
        ("fetched/slurm.conf", "old\n", 4, []),  # new files need time to arrive
        ("fetched/slurm.conf", "old\n", 30, [RESTART]),  # once per difference
        ("fetched/slurm.conf", None, 20, []),
    ],
)
def test_a_difference_restarts_its_unit(watch, tmp_path, path, text, rounds, *, asked):
    (tmp_path / path).unlink() if text is None else (tmp_path / path).write_text(text)
    assert watch(rounds) == asked


class TestRegister:
    """The reconcile loop requests that slurmd registers as after a boot, for which slurmctld waits."""

    @pytest.fixture
    def asked(self, watch, tmp_path):
        programs.write(tmp_path / "bin/hostname", "echo gpu-1")
        programs.write(tmp_path / "bin/systemctl", f'echo "$*" $(cat {tmp_path}/run/slurmd-once) >> {tmp_path}/asked')
        (tmp_path / "node/slurmd").write_text('SLURMD_OPTIONS="--conf-server a:6817"\n')

        def ask(state: str, names: str) -> list[str]:
            (tmp_path / "board/register").write_text(names)
            programs.write(tmp_path / "bin/scontrol", f"echo NodeName=gpu-1 State={state} Weight=1")
            return watch(5)

        return ask

    @pytest.mark.parametrize(
        ("state", "names", "restarts"),
        [
            ("ALLOCATED+CLOUD+POWERING_UP", "gpu-1 7\n", [f'{RESTART} SLURMD_OPTIONS="--conf-server a:6817 -b"']),
            ("ALLOCATED+CLOUD", "gpu-1 7\n", []),  # the node is up
            ("ALLOCATED+CLOUD+POWERING_UP", "gpu-11 7\n", []),  # another node
        ],
    )
    def test_slurmd_registers_as_after_a_boot(self, asked, tmp_path, state, names, restarts):
        assert asked(state, names) == restarts
        assert list((tmp_path / "run").glob("slurmd*")) == []


@pytest.mark.parametrize(
    ("published", "changed_here", "asked"),
    [
        ("key\n", False, []),  # the controller has not changed to it
        ("newer\n", False, [JOIN]),  # it was delivered after the config version that names it
        ("newer\n", True, []),  # somebody has put another key there, which drift reports
    ],
)
def test_a_delivered_munge_key_is_used_once_the_controller_uses_it(watch, tmp_path, published, changed_here, asked):
    (tmp_path / "node/delivered.key").write_text("newer\n")
    for path in ("board/cluster.json", "node/orders.json"):
        (tmp_path / path).write_text(json.dumps({"munge": munge.fingerprint(published.encode())}, indent=1))
    if changed_here:
        os.utime(tmp_path / "node/munge.key", (9e9, 9e9))
    assert watch(1 if asked else 20) == asked


@pytest.mark.parametrize(("code", "joins"), [(10, 2), (0, 0), (1, 0)])
def test_changed_metadata_restarts_the_join_on_google_cloud(watch, tmp_path, code, joins):
    """The exit code of the refresh is 10 if the stack has changed the machine's metadata."""
    programs.write(tmp_path / "bin/refresh", f"echo >> {tmp_path}/runs\nexit {code}")
    assert watch(60) == [JOIN] * joins
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


IP = """#!/bin/sh
if [ "$3" = show ]; then
    echo 'local 10.7.0.2 dev host0 proto kernel scope host src 10.7.0.2 '
    echo 'local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 quickack 1 '
else
    echo "$@" >> "$LOG"
fi
"""


def test_each_route_gets_quickack_once(tmp_path):
    programs.write(tmp_path / "ip", IP)
    log = tmp_path / "log"
    subprocess.run(["sh", str(QUICK_ACKS)], env={"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log)}, check=True)
    assert log.read_text().splitlines() == [
        "-4 route change table local local 10.7.0.2 dev host0 proto kernel scope host src 10.7.0.2 quickack 1"
    ]
