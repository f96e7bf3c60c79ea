"""A node has joined if it has applied the config version and can take jobs; otherwise the reason is reported."""

import json

import pytest
from slurm import join, nodes, scheduler
from slurm.nodes import Node
from system import cluster_state, remote_node

from tests import programs

CONFIGURED = {"state": "configured", "digest": "new", "message": "", "boot": "b"}
SCONTROL = (
    "NodeName=dev-cpu-0 Arch=x86_64 CPUAlloc=0 State=IDLE ThreadsPerCore=1 Partitions=cpu Comment=a b\n"
    "NodeName=dev-cpu-1 State=DOWN*+DRAIN Gres=gpu:2 "
    "Reason=Not responding = dead [slurm@2026-01-02T03:04:05]\n\n"
)


class TestParse:
    def test_reads_states_and_reason(self):
        assert nodes.parse(SCONTROL) == {
            "dev-cpu-0": Node("dev-cpu-0", frozenset({"IDLE"}), partitions=("cpu",)),
            "dev-cpu-1": Node(
                "dev-cpu-1",
                frozenset({"DOWN", "NOT_RESPONDING", "DRAIN"}),
                reason="Not responding = dead",
                by="slurm",
                since="2026-01-02T03:04:05",
                gres="gpu:2",
            ),
        }


class TestMissing:
    @pytest.mark.parametrize(
        "state", ["IDLE", "MIXED", "ALLOCATED", "IDLE+DRAIN Reason=bad fan", "ALLOCATED+COMPLETING"]
    )
    def test_a_working_or_deliberately_drained_node_has_joined(self, state):
        found = nodes.parse(f"NodeName=n State={state}")
        assert join.missing(["n"], found, {"n": CONFIGURED}, "new") == {}

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
            # Of a node that was off while its drain began, and is static since (24.11).
            ("IDLE+DRAIN", CONFIGURED, "down: no reason given"),
            *(
                (f"{state} Reason={reason} [root@2026]", CONFIGURED, f"down: {reason}")
                for state in ("IDLE+DRAIN", "DOWN+DRAIN")
                for reason in scheduler.DRAIN_REASONS  # it is resumed as soon as it answers
            ),
            (
                f"DOWN*+DRAIN Reason={scheduler.LEAVES} [root@2026]",
                CONFIGURED,
                "slurmd has not registered (DOWN+DRAIN+NOT_RESPONDING)",
            ),
            ("DOWN+DRAIN+REBOOT_ISSUED Reason=new kernel [root@2026]", CONFIGURED, "it reboots: new kernel"),
        ],
    )
    def test_any_other_node_has_not_joined_with_the_reason(self, state, report, why):
        found = nodes.parse(f"NodeName=n State={state}")
        assert join.missing(["n"], found, {"n": report} if report else {}, "new") == {"n": why}

    def test_a_node_with_another_munge_key_is_waited_for(self):
        found = nodes.parse("NodeName=n State=IDLE")
        why = join.missing(["n"], found, {"n": {**CONFIGURED, "munge": "old"}}, "new", key="now")
        assert why == {"n": "it runs with another MUNGE key than the controller, and changes to it when it gets it"}
        for report in ({**CONFIGURED, "munge": "now"}, CONFIGURED):
            assert join.missing(["n"], found, {"n": report}, "new", key="now") == {}

    def test_a_node_that_slurmctld_does_not_have_is_missing(self):
        assert join.missing(["n"], {}, {}, "new") == {"n": "slurmctld does not know it"}


class TestHostKeys:
    @pytest.fixture
    def cluster_folder(self, tmp_path, monkeypatch):
        """A cluster state of the test, and an `ssh` that prints the host key it gets."""
        for name, path in (("FOLDER", tmp_path), ("REPORTS", tmp_path / "nodes"), ("HOST_KEY", tmp_path / "key.pub")):
            monkeypatch.setattr(cluster_state, name, path)
        key = tmp_path / "cluster"
        key.write_text("")
        monkeypatch.setattr(remote_node, "KEY", key)
        monkeypatch.setattr(cluster_state, "boot_id", lambda: "b")
        tool = tmp_path / "bin/ssh"
        programs.write(tool, 'for word; do case $word in UserKnownHostsFile=*) cat "${word#*=}" ;; esac; done')
        monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
        monkeypatch.setattr(cluster_state.socket, "gethostname", lambda: "dev-cpu-0")
        return tmp_path

    def test_a_node_reports_its_host_key_without_the_comment(self, cluster_folder):
        (cluster_folder / "key.pub").write_text("ssh-ed25519 AAAA root@dev-cpu-0\n")
        cluster_state.report("configured", "new")
        assert cluster_state.host_keys() == {"dev-cpu-0": "ssh-ed25519 AAAA"}

    def test_a_report_without_a_host_key_is_left_out(self, cluster_folder):
        cluster_state.report("configured", "new")
        (cluster_folder / "nodes/dev-cpu-1.json").write_text(json.dumps(CONFIGURED))
        assert cluster_state.host_keys() == {}

    @pytest.mark.parametrize(
        ("pinned", "known"), [("", "ssh-ed25519 REPORTED"), ("ssh-ed25519 MINE", "ssh-ed25519 MINE")]
    )
    def test_the_logs_of_a_node_are_read_with_its_pinned_or_reported_host_key(self, cluster_folder, pinned, known):
        (cluster_folder / "key.pub").write_text("ssh-ed25519 REPORTED\n")
        cluster_state.report("failed", "", "no key")
        assert join.tail({"name": "dev-cpu-0", "address": "10.0.0.9", "host_key": pinned}) == f"10.0.0.9 {known}"

    def test_logs_can_not_be_read_without_ssh(self, cluster_folder, monkeypatch):
        monkeypatch.setenv("PATH", str(cluster_folder))
        assert "there is no ssh" in join.tail({"name": "dev-cpu-0", "address": "a", "host_key": "ssh-ed25519 MINE"})

    def test_logs_can_not_be_read_without_a_host_key(self, cluster_folder):
        assert "its host key is not known" in join.tail({"name": "dev-cpu-0", "address": "a", "host_key": ""})
