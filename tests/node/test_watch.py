"""A node joins again when its orders are old or gone, and restarts slurmd when that missed a new slurm.conf."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from system import munge

WATCH = Path(__file__).parents[2] / "scripts" / "node" / "watch.sh"
JOIN, RESTART = "restart hpc-node.service", "try-restart slurmd.service"


@pytest.fixture
def watch(tmp_path):
    """Runs the watcher for so many rounds on a machine made of a folder; what it asked of systemd."""
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
    (tmp_path / "bin/systemctl").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n')
    (tmp_path / "bin/munge").write_text("#!/bin/sh\necho credential\n")
    (tmp_path / "bin/unmunge").write_text(f"#!/bin/sh\n[ ! -e {tmp_path}/deaf ]\n")
    (tmp_path / "bin/sleep").write_text(
        f'#!/bin/sh\necho >> {tmp_path}/rounds\n[ $(wc -l < {tmp_path}/rounds) -le "$ROUNDS" ]\n'
    )
    for program in (tmp_path / "bin").iterdir():
        program.chmod(0o755)

    def rounds(count: int) -> list[str]:
        env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "ROUNDS": str(count)}
        subprocess.run(["sh", str(tmp_path / "watch.sh")], env=env, check=True, timeout=300, capture_output=True)
        asked = tmp_path / "asked"
        return asked.read_text().splitlines() if asked.exists() else []

    return rounds


def test_nothing_happens_while_all_is_the_same(watch):
    assert watch(20) == []


def test_files_that_are_as_they_were_are_read_once_a_minute(watch, tmp_path):
    (tmp_path / "bin/cmp").write_text(f'#!/bin/sh\necho >> {tmp_path}/read\nexec /usr/bin/cmp "$@"\n')
    (tmp_path / "bin/cmp").chmod(0o755)
    assert watch(29) == []
    assert len((tmp_path / "read").read_text().splitlines()) == 3
    assert watch(60) == []
    assert len((tmp_path / "read").read_text().splitlines()) == 6
    (tmp_path / "board/cluster.json").write_text("ORDERS\n")
    assert watch(62) == [JOIN]


def test_a_munged_that_does_not_authenticate_makes_it_join_once_a_minute(watch, tmp_path):
    (tmp_path / "deaf").touch()
    assert watch(15 + 30 + 14) == [JOIN] * 2


@pytest.mark.parametrize(
    ("path", "text", "rounds", "asked"),
    [
        ("node/orders.json", "older orders\n", 1, [JOIN]),
        ("board/cluster.json", None, 1, [JOIN]),  # the shared file system went away
        ("fetched/slurm.conf", "old\n", 4, []),  # new files are given time to arrive
        ("fetched/slurm.conf", "old\n", 30, [RESTART]),  # once for each difference
        ("fetched/slurm.conf", None, 20, []),
    ],
)
def test_what_differs_is_followed(watch, tmp_path, path, text, rounds, *, asked):
    (tmp_path / path).unlink() if text is None else (tmp_path / path).write_text(text)
    assert watch(rounds) == asked


class TestRegister:
    """slurmd registers as after a boot when the reconcile loop asks for it, once, and while slurmctld waits alone."""

    @pytest.fixture
    def asked(self, watch, tmp_path):
        (tmp_path / "bin/hostname").write_text("#!/bin/sh\necho gpu-1\n")
        (tmp_path / "bin/systemctl").write_text(
            f'#!/bin/sh\necho "$*" $(cat {tmp_path}/run/slurmd-once) >> {tmp_path}/asked\n'
        )
        (tmp_path / "node/slurmd").write_text('SLURMD_OPTIONS="--conf-server a:6817"\n')

        def ask(state: str, *, names: str = "gpu-1 7\n") -> list[str]:
            (tmp_path / "board/register").write_text(names)
            (tmp_path / "bin/scontrol").write_text(f"#!/bin/sh\necho NodeName=gpu-1 State={state} Weight=1\n")
            for name in ("hostname", "scontrol"):
                (tmp_path / "bin" / name).chmod(0o755)
            return watch(5)

        return ask

    def test_it_does(self, asked, tmp_path):
        assert asked("ALLOCATED+CLOUD+POWERING_UP") == [f'{RESTART} SLURMD_OPTIONS="--conf-server a:6817 -b"']
        assert list((tmp_path / "run").glob("slurmd*")) == []

    def test_not_when_it_is_up(self, asked):
        assert asked("ALLOCATED+CLOUD") == []

    def test_not_for_another(self, asked):
        assert asked("ALLOCATED+CLOUD+POWERING_UP", names="gpu-11 7\n") == []


class TestAnotherKey:
    """Another MUNGE key is taken up when the controller has changed to it, in whatever order the two are heard of."""

    def deliver(self, tmp_path, *, ordered: str) -> None:
        (tmp_path / "node/delivered.key").write_text("newer\n")
        for path in ("board/cluster.json", "node/orders.json"):
            (tmp_path / path).write_text(json.dumps({"munge": munge.fingerprint(ordered.encode())}, indent=1))

    def test_not_before_the_controller(self, watch, tmp_path):
        self.deliver(tmp_path, ordered="key\n")
        assert watch(20) == []

    def test_when_it_comes_after_the_controllers_word(self, watch, tmp_path):
        self.deliver(tmp_path, ordered="newer\n")
        assert watch(1) == [JOIN]

    def test_one_that_was_put_there_by_hand_is_for_people_to_see(self, watch, tmp_path):
        self.deliver(tmp_path, ordered="newer\n")
        os.utime(tmp_path / "node/munge.key", (9e9, 9e9))
        assert watch(20) == []


class TestNews:
    """On Google Cloud: what the stack tells a machine that runs."""

    @pytest.fixture
    def refresh(self, tmp_path):
        """Has the machine look for news, with this exit code."""

        def code(number: int) -> None:
            (tmp_path / "bin/refresh").write_text(f"#!/bin/sh\necho >> {tmp_path}/looked\nexit {number}\n")
            (tmp_path / "bin/refresh").chmod(0o755)

        return code

    def test_it_joins_again_when_something_was_new(self, watch, refresh):
        refresh(10)
        assert watch(60) == [JOIN, JOIN]

    @pytest.mark.parametrize("code", [0, 1])
    def test_it_does_not_when_nothing_was_or_nobody_answered(self, watch, refresh, tmp_path, code):
        refresh(code)
        assert watch(60) == []
        assert len((tmp_path / "looked").read_text().splitlines()) == 2
