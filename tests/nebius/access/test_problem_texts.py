"""Known problems, recognized in the texts that the programs really print, and in nothing that they print otherwise."""

import pytest

from cluster.platforms.nebius.health import PROBLEMS, blocking, recognized
from cluster.platforms.nebius.observation import Check
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


@pytest.mark.parametrize(
    ("checks", "blocked"),
    [
        (
            [
                Check(name="ib-gpu-perf", result="Failed"),
                Check(name="ensure-healthy-nodes", result="", needs=("ib-gpu-perf", "ssh-check")),
                Check(name="ssh-check", result="Complete"),
            ],
            {"ib-gpu-perf": ("ensure-healthy-nodes",)},
        ),
        ([Check(name="drains", result="Failed", drains=True), Check(name="x", result="", needs=("drains",))], {}),
        ([Check(name="comments", result="Failed"), Check(name="x", result="Complete", needs=("comments",))], {}),
    ],
)
def test_a_failed_check_that_only_comments_holds_up_what_depends_on_it(checks: list[Check], blocked: object) -> None:
    """Neither a check that drains, nor one whose dependants ran."""
    assert {name: waiting for name, waiting in blocking(checks).items() if waiting} == blocked
