"""Known problems, recognized in the texts that the programs really print, and in nothing that they print otherwise."""

import pytest

from cluster.platforms.nebius.health import PROBLEMS, Gate, blocking, recognized, vanished
from tests.nebius.access.test_reasons import DISK

TEXTS = {
    7: [
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure",
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object",
    ],
    9: ["slurmctld: fatal: Switch configuration a1b2 has invalid child (0f12345678901234567890)"],
    14: [DISK],
}
HARMLESS = [
    "[2026-03-10T10:00:00.000] error: Node worker-0 has low real_memory size",
    "slurmctld: fatal: Switch configuration root has invalid child (leaf-7)",
    "mount: /dev/sda1 mounted on /mnt",
    "[user_problem] alloc_gpus_busy: Allocated GPUs are used by processes not managed by Slurm",
    "Jail directory is already populated (sentinel exists), exiting",
    "topology/tree: init: topology tree plugin loaded",
    "",
]


@pytest.mark.parametrize(("number", "text"), [(number, text) for number, texts in TEXTS.items() for text in texts])
def test_each_is_recognized_in_its_own_text_alone(number: int, text: str) -> None:
    assert [one.number for one in recognized(["before", text, "after"])] == [number]


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_reveal_none(text: str) -> None:
    assert list(recognized([text])) == []


def test_every_problem_has_a_text_here() -> None:
    assert {one.number for one in PROBLEMS} == set(TEXTS)


def test_one_is_reported_once() -> None:
    assert [one.number for one in recognized(TEXTS[9] * 3)] == [9]


class TestBringUp:
    def test_a_failed_check_that_only_comments_holds_up_what_depends_on_it(self) -> None:
        gates = [
            Gate(name="ib-gpu-perf", failed=True, drains=False, done=False),
            Gate(
                name="ensure-healthy-nodes", failed=False, drains=False, done=False, needs=("ib-gpu-perf", "ssh-check")
            ),
            Gate(name="ssh-check", failed=False, drains=False, done=True),
        ]
        assert blocking(gates) == {"ib-gpu-perf": ("ensure-healthy-nodes",)}

    def test_neither_a_check_that_drains_nor_one_whose_dependants_ran(self) -> None:
        gates = [
            Gate(name="all-reduce", failed=True, drains=True, done=False),
            Gate(name="late", failed=False, drains=False, done=False, needs=("all-reduce",)),
            Gate(name="comments", failed=True, drains=False, done=True),
            Gate(name="ran", failed=False, drains=False, done=True, needs=("comments",)),
        ]
        assert blocking(gates) == {}


def test_nodes_without_a_pod_have_vanished() -> None:
    assert vanished(["worker-0", "worker-1", "worker-2"], ["login-0", "worker-0", "worker-2"]) == ["worker-1"]
    assert vanished([], ["worker-0"]) == []
