"""`logs` of pods: which containers, from when, and in the order of their times."""

import datetime as dt
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.observe.moment import parse_moment
from cluster.platforms.nebius.observer import LOGS, SoperatorObserver, sources_of_log, sources_of_pod
from tests import programs
from tests.nebius.access.cluster_objects import PODS, World, pod
from tests.nebius.access.conftest import Hpc, calls
from tests.waiting import PATIENCE, lives, wait_for

Made = Callable[[str], Path]
NOW = dt.datetime(2026, 11, 22, 12, 30, tzinfo=dt.timezone.utc)


class TestChosen:
    @pytest.mark.parametrize(
        ("kind", "pods"),
        [
            ("slurmctld", ["controller-0"]), ("slurmd", ["worker-0", "worker-1"]), ("sshd", ["login-0", "login-1"]),
            ("slurmdbd", ["accounting-7d9f-abcde"]), ("populate-jail", ["soperator-populate-jail-x7k2p"]),
            ("operator", ["soperator-manager-abc"]), ("mariadb", []),
        ],
    )  # fmt: skip
    def test_a_log_is_that_of_a_container(self, kind: str, pods: list[str]) -> None:
        found = sources_of_log(kind, PODS, "soperator")
        assert [item.pod for item in found] == pods
        assert {item.container for item in found} <= {LOGS[kind][0]}

    def test_placeholders_of_the_controller_have_none(self) -> None:
        labels = {"slurm.nebius.ai/controller-type": "placeholder"}
        pods = [*PODS, pod("controller-x7k2p", container="slurmctld", labels=labels)]
        assert [item.pod for item in sources_of_log("slurmctld", pods, "soperator")] == ["controller-0"]

    def test_slurmdbd_is_found_by_both_names(self) -> None:
        pods = [pod("accounting-0", container="slurmdbd")]
        assert [item.container for item in sources_of_log("slurmdbd", pods, "soperator")] == ["slurmdbd"]

    def test_a_name_is_a_pods_or_a_jobs(self) -> None:
        pods = [*PODS, pod("gpu-fryer-29000001-abcde", job="gpu-fryer-29000001"), pod("gpu-fryer-x", namespace="other")]
        assert [item.pod for item in sources_of_pod("worker-1", pods, "soperator")] == ["worker-1"]
        assert [item.pod for item in sources_of_pod("gpu-fryer", pods, "soperator")] == ["gpu-fryer-29000001-abcde"]
        assert [item.namespace for item in sources_of_pod("other/gpu-fryer-x", pods, "soperator")] == ["other"]
        assert sources_of_pod("worker", pods, "soperator") == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("15m", "2026-11-22T12:15:00"), ("2h", "2026-11-22T10:30:00"), ("now", "2026-11-22T12:30:00"),
        ("now+60", "2026-11-22T12:31:00"), ("today", "2026-11-22T00:00:00"), ("yesterday", "2026-11-21T00:00:00"),
        ("noon", "2026-11-22T12:00:00"), ("05:30", "2026-11-22T05:30:00"), ("2026-11-20", "2026-11-20T00:00:00"),
        ("2026-11-20T05:30:10", "2026-11-20T05:30:10"),
    ],
)  # fmt: skip
def test_moments_are_the_same_as_dates_of_machines(given: str, expected: str) -> None:
    assert parse_moment(given, NOW).strftime("%Y-%m-%dT%H:%M:%S") == expected
    # What `date` makes of the same words, for those that do not depend on the clock.
    if given.startswith("2026"):
        words = ["date", "-u", f"--date={given}", "+%Y-%m-%dT%H:%M:%S"]
        assert programs.run(words, check=True).stdout.strip() == expected


def test_a_line_has_one_time() -> None:
    time_ = "2026-11-22T05:00:00.123456789Z"
    slurmctld = "[2026-11-22T05:00:00.123] slurmctld: x"
    assert SoperatorObserver.shown(f"{time_} {slurmctld}") == slurmctld
    assert (
        SoperatorObserver.shown(f"{time_} Server listening on 0.0.0.0 port 22.")
        == f"{time_} Server listening on 0.0.0.0 port 22."
    )


def world(**logs: str) -> str:
    """A kubectl that knows these logs, by the name of the pod with _ for -."""
    made = World()
    made.logs = {name.replace("_", "-"): text for name, text in logs.items()}
    return made.script()


@pytest.mark.usefixtures("up")
class TestCommand:
    def test_lines_of_several_pods_are_in_the_order_of_their_times(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl(
            world(
                worker_0="2026-11-22T05:00:01.5Z [2026-11-22T05:00:01.500] one\n2026-11-22T05:00:03Z three",
                worker_1="2026-11-22T05:00:02Z two\n  and more of it",
            )
        )
        ended = hpc("logs", "nebius", "slurmd")
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.splitlines() == [
            "worker-0 | [2026-11-22T05:00:01.500] one",
            "worker-1 | 2026-11-22T05:00:02Z two",
            "worker-1 |   and more of it",
            "worker-0 | 2026-11-22T05:00:03Z three",
        ]

    def test_options_become_kubectls(self, hpc: Hpc, kubectl: Made) -> None:
        log = kubectl(world(controller_0="2026-11-22T05:00:01Z x"))
        assert hpc("logs", "nebius", "slurmctld", "-n", "7", "--since", "2026-11-22T05:00").code == 0
        words = calls(log)[-1]
        assert words[:2] == ["logs", "controller-0"]
        assert sorted(words[2:]) == [
            "--container=slurmctld", "--namespace=soperator", "--since-time=2026-11-22T05:00:00Z", "--tail=7",
            "--timestamps",
        ]  # fmt: skip
        log.unlink()
        hpc("logs", "nebius", "slurmctld")
        assert "--tail=50" in calls(log)[-1]
        log.unlink()
        hpc("logs", "nebius", "slurmctld", "--since", "2h")
        assert "--tail=-1" in calls(log)[-1]

    def test_a_pod_is_all_that_it_says(self, hpc: Hpc, kubectl: Made) -> None:
        log = kubectl(world(login_0="2026-11-22T05:00:01Z x"))
        assert hpc("logs", "nebius", "login").out == "2026-11-22T05:00:01Z x\n"
        assert "--all-containers" in calls(log)[-1]

    def test_on_narrows_it(self, hpc: Hpc, kubectl: Made) -> None:
        log = kubectl(world(worker_0="2026-11-22T05:00:01Z x", worker_1="y"))
        assert hpc("logs", "nebius", "slurmd", "--on", "worker-1").out == "y\n"
        assert [call[:2] for call in calls(log)[1:]] == [["logs", "worker-1"]]
        ended = hpc("logs", "nebius", "slurmd", "--on", "login-0")
        assert ended.err == "error: login-0: no slurmd there. Pods with one: worker-0, worker-1.\n"

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (["nothing"], "no pod, check or job of the cluster is called 'nothing'. Or one of: slurmctld, slurmd,"),
            (["slurmd", "--since", "soon"], "--since: 'soon' is no point in time."),
            (["mariadb"], "no pod of the cluster has mariadb."),
            (["login-0", "--on", "login-1"], "--on narrows slurmctld, slurmd,"),
        ],
    )
    def test_missing_references_are_named(self, hpc: Hpc, kubectl: Made, words: list[str], error: str) -> None:
        kubectl(World().script())
        ended = hpc("logs", "nebius", *words)
        assert ended.code == 1
        assert error in ended.err

    def test_one_that_can_not_be_read_is_named_beside_the_others(self, hpc: Hpc, kubectl: Made) -> None:
        failing = "echo 'Error from server (BadRequest): container \"slurmd\" is waiting to start' >&2; exit 1"
        script = world(worker_0="2026-11-22T05:00:01Z x")
        kubectl(f'[ "$1 $2" != "logs worker-1" ] || {{ {failing}; }}\n{script}')
        ended = hpc("logs", "nebius", "slurmd")
        assert ended.code == 0
        assert ended.out == "worker-0 | 2026-11-22T05:00:01Z x\n"
        assert "worker-1: can't be read: Error from server (BadRequest): container" in ended.err

    def test_a_followed_log_ends_with_ctrl_c(
        self, kubectl: Made, tool: Callable[[str, str], Path], up: dict[str, Any], tmp_path: Path
    ) -> None:
        seen = tmp_path / "seen"
        followed = f"echo 2026-11-22T05:00:01Z x; echo $$ >>{seen}; exec sleep 100"
        kubectl(f'case "$*" in logs*--follow) {followed};; esac\n{World().script()}')
        program = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from cli.observers import print_logs; from cluster.platforms.observer import LogRequest\n"
            "from cluster.platforms.observers import observer_of\n"
            "from cli.cluster.cluster import from_outputs; from tests.nebius.access.conftest import OUTPUTS\n"
            "asked = LogRequest(what='slurmd', lines=5, follow=True)\n"
            "sys.exit(print_logs(observer_of(OUTPUTS), from_outputs('nebius', OUTPUTS), asked))\n"
        )
        words = [sys.executable, "-c", program, str(Path(__file__).parents[3])]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stdout.readline().endswith("| 2026-11-22T05:00:01Z x\n")
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
        for number in seen.read_text().split():
            wait_for(lambda number=number: not lives(int(number)))


def test_no_log_has_two_names() -> None:
    containers = [name for names in LOGS.values() for name in names]
    assert len(containers) == len(set(containers))
