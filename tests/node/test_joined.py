"""A node counts as there exactly when it follows the newest orders and can take jobs; else the reason is in words."""

import joined
import pytest

CONFIGURED = {"state": "configured", "digest": "new", "message": "", "boot": "b"}
SCONTROL = (
    "NodeName=dev-cpu-0 Arch=x86_64 CPUAlloc=0 State=IDLE ThreadsPerCore=1 Partitions=cpu Comment=a b\n"
    "NodeName=dev-cpu-1 State=DOWN*+DRAIN Gres=gpu:2 "
    "Reason=Not responding = dead [slurm@2026-01-02T03:04:05]\n\n"
)


class TestParse:
    def test_reads_states_and_reason(self):
        assert joined.parse(SCONTROL) == {
            "dev-cpu-0": {"states": {"IDLE"}, "reason": ""},
            "dev-cpu-1": {"states": {"DOWN", "NOT_RESPONDING", "DRAIN"}, "reason": "Not responding = dead"},
        }


class TestMissing:
    @pytest.mark.parametrize(
        "state", ["IDLE", "MIXED", "ALLOCATED", "IDLE+DRAIN", "ALLOCATED+DRAIN", "ALLOCATED+COMPLETING"]
    )
    def test_a_working_or_deliberately_drained_node_is_there(self, state):
        found = joined.parse(f"NodeName=n State={state}")
        assert joined.missing(["n"], found, {"n": CONFIGURED}, "new") == {}

    @pytest.mark.parametrize(
        ("state", "report", "why"),
        [
            ("IDLE", None, "its set-up has not finished"),
            ("IDLE", {**CONFIGURED, "digest": "old"}, "its set-up has not finished"),
            ("IDLE", {**CONFIGURED, "state": "failed", "message": "no key"}, "its set-up failed: no key"),
            ("IDLE*", CONFIGURED, "slurmd has not registered (IDLE+NOT_RESPONDING)"),
            ("UNKNOWN", CONFIGURED, "slurmd has not registered (UNKNOWN)"),
            ("DOWN*", CONFIGURED, "slurmd has not registered (DOWN+NOT_RESPONDING)"),
            ("DOWN", CONFIGURED, "down: no reason given"),
            ("DOWN+DRAIN Reason=Low memory [root@2026]", CONFIGURED, "down: Low memory"),
        ],
    )
    def test_any_other_is_not_and_it_says_why(self, state, report, why):
        found = joined.parse(f"NodeName=n State={state}")
        assert joined.missing(["n"], found, {"n": report} if report else {}, "new") == {"n": why}

    def test_a_node_that_slurmctld_does_not_know(self):
        assert joined.missing(["n"], {}, {}, "new") == {"n": "slurmctld does not know it"}
