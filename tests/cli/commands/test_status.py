"""`status` and `drift`: which machines are asked, what is printed, and the exit codes."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.cluster.observation import timeout
from cli.commands import drift
from cli.display import status_screen
from cli.stack import project
from cluster.observe.observation import ClusterObservation, MachineObservation
from components.slurm import payload
from tests.cli.conftest import KEY, Hpc, Tool, patch_outputs
from tests.cluster.observe.observations import facts, findings, healthy, judged

STACK = {
    "platform": "local",
    "name": "hc",
    "network": {"cidr": "10.83.0.0/22"},
    "nodesets": {"cpu": {"count": 2}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}
# Prints the stored answer of the address; without one, the machine does not answer.
FAKE_SSH = """\
for word; do name=$line; line=$word; done
address=$(sed -n "/^Host $name\\$/,/HostName/s/.*HostName //p" "$2")
printf '%s %s\\n' "$address" "$line" >>"$ASKED"
[ -e "$ANSWERS/$address" ] || { echo "ssh: connect to host $address port 22: No route to host" >&2; exit 255; }
cat "$ANSWERS/$address"
"""


def write_facts(seen: ClusterObservation, folder: Path) -> dict[str, Any]:
    """Write the facts of each machine to a file with its address as name. Returns the outputs of the stack."""
    targets: dict[str, Any] = {}
    for number, machine in enumerate(judged(seen).machines):
        row = {"method": "ssh", "address": f"10.83.0.{number + 2}", "host_key": f"ssh-ed25519 A{number}"}
        targets[machine.name] = {**row, "roles": list(machine.roles)}
        if machine.reached:
            (folder / row["address"]).write_text(json.dumps(machine.facts))
    return {"cluster": "hc", "targets": targets, "admin_key": KEY, "login": "hc-login-0", "users": ["alice"]}


Report = Callable[[ClusterObservation], None]


@pytest.fixture
def report(root: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Stack `dev` is up. Lets its machines report an observation."""
    answers = tmp_path / "answers"
    answers.mkdir()
    tool("ssh", FAKE_SSH)
    monkeypatch.setenv("ANSWERS", str(answers))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))

    def write_answers(seen: ClusterObservation) -> None:
        mounts = {machine.name: [] for machine in seen.machines}
        place = {"addresses": {}, "mounts": mounts, "state": None, "exports": None}
        patch_outputs(monkeypatch, {**write_facts(seen, answers), "config": STACK, "place": place})
        file = project.workspace().stack("dev").file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")

    return write_answers


def command_line(factor: int) -> str:
    return f"echo; HPC_TIMEOUT_FACTOR={factor} exec python3 {payload.SETUP} look"


class TestStatus:
    def test_a_sound_cluster_has_exit_code_0(self, hpc: Hpc, report: Report, tmp_path: Path) -> None:
        report(healthy())
        ended = hpc("status", "dev")
        assert ended.code == 0, ended.err
        assert ended.out.splitlines()[0].startswith("dev: all is well: 2 nodes ")
        assert "hc-cpu-[0-1]" in ended.out
        asked = (tmp_path / "asked").read_text().splitlines()
        assert sorted(asked) == [f"10.83.0.{n} {command_line(1)}" for n in (2, 3, 4, 5)]

    def test_findings_are_first_with_a_command(self, hpc: Hpc, report: Report) -> None:
        seen = healthy()
        row = facts(seen, "controller")["slurm"]["nodes"]["hc-cpu-1"]
        row.update(State="IDLE+DRAIN", Reason="disk errors [root@2026-11-21T06:20:00]")
        report(seen)
        ended = hpc("status", "dev")
        assert ended.code == 1
        lines = ended.out.splitlines()
        assert lines[0].startswith("dev: 1 thing to look at: ")
        assert lines[2].startswith("hc-cpu-1: node-drained, for ")
        assert "    > ./hpc nodes dev resume hc-cpu-1" in lines

    def test_a_late_machine_is_asked_again_with_a_longer_deadline(
        self, hpc: Hpc, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = healthy()
        facts(seen, "cpu-1")["munge"].update(works=False, why="`munge` did not end within 2 s")
        report(seen)
        assert "munge-down" in hpc("status", "dev").out
        asked = (tmp_path / "asked").read_text().splitlines()
        assert asked[4:] == [f"10.83.0.5 {command_line(3)}"]
        (tmp_path / "asked").unlink()
        hpc("status", "dev", "--timeout", "16")
        asked = (tmp_path / "asked").read_text().splitlines()
        assert [line.partition(" ")[2] for line in asked] == [command_line(2)] * 4

    def test_a_machine_that_does_not_answer_is_a_finding(self, hpc: Hpc, report: Report) -> None:
        seen = healthy()
        lost = MachineObservation(name="hc-cpu-1", roles=("node",), reached=False)
        report(ClusterObservation(stack="dev", machines=(*seen.machines[:-1], lost)))
        ended = hpc("status", "dev", "--json")
        assert ended.code == 1
        document = json.loads(ended.out)
        (finding,) = document["findings"]
        assert (finding["id"], finding["where"]) == ("node-down", ["hc-cpu-1"])
        assert "No route to host" in finding["what"]
        assert document["machines"]["hc-cpu-1"]["reached"] is False

    def test_json_has_the_facts_and_no_secret(self, hpc: Hpc, report: Report) -> None:
        report(healthy())
        ended = hpc("status", "dev", "--json")
        document = json.loads(ended.out)
        assert (ended.code, document["ok"], document["findings"]) == (0, True, [])
        assert document["machines"]["hc-controller"]["facts"]["slurm"]["ping"]["up"] is True
        assert "PRIVATE KEY" not in ended.out

    def test_a_set_up_of_an_earlier_version_is_a_finding(self, hpc: Hpc, report: Report, tool: Tool) -> None:
        report(healthy())
        tool("ssh", "echo 'Sets up one machine of the cluster.' >&2; exit 2")
        ended = hpc("status", "dev")
        assert ended.code == 1
        assert "its set-up is of an earlier version" in ended.out
        assert "> ./hpc up dev" in ended.out


def test_the_time_limit_grows_with_the_number_of_machines() -> None:
    assert [timeout(n) for n in (1, 40, 200)] == [8, 8, 40]


class TestScreen:
    def test_64_nodes_take_few_lines(self, capsys: pytest.CaptureFixture[str]) -> None:
        seen = healthy(64)
        rows = facts(seen, "controller")["slurm"]["nodes"]
        for n in range(64):
            rows[f"hc-cpu-{n}"].update(State="IDLE", CPUAlloc="0")
        rows["hc-cpu-7"].update(State="MIXED", CPUAlloc="1")
        status_screen.show(seen, findings(seen))
        printed = capsys.readouterr().out
        assert "hc-cpu-[0-6,8-63]  63     idle   0/126" in printed
        assert max(map(len, printed.splitlines())) <= 100
        assert len(printed.splitlines()) < 45

    def test_a_long_queue_is_cut_with_a_count(self) -> None:
        seen = healthy()
        job = dict.fromkeys(("id", "user", "partition", "seconds", "count", "nodes", "name"), "")
        job |= {"state": "PENDING", "reason": "Priority"}
        facts(seen, "controller")["slurm"]["jobs"] = {"states": {"PENDING": 400, "RUNNING": 3}, "first": [job] * 50}
        table = status_screen.queue(seen)
        assert table[-1][:2] == ("...", "and 391 more")
        assert "(Priority)" in table[1]
        assert status_screen.jobs(seen) == "3 jobs running, 400 pending"

    def test_actions_and_reasons_of_the_reconcile_loop_are_shown(self) -> None:
        seen = healthy()
        controller = facts(seen, "controller")
        job = dict.fromkeys("id number user partition state seconds count nodes reason name".split(), "7")
        controller["slurm"]["jobs"] = {"states": {"PENDING": 1}, "first": [{**job, "nodes": ""}]}
        why = "hpc: no capacity for gpu as spot until 12:10"
        action = {"time": 100.0, "rule": "create", "action": "create", "nodes": ["hc-gpu-1", "hc-gpu-2"], "way": "spot"}
        asked = {"time": 99.0, "rule": "asked-resume", "nodes": ["hc-gpu-[1-2]"]}
        controller["reconcile"] = {"jobs": {"7": why}, "actions": [asked, {**action, "slurm": "IDLE+POWERING_UP"}]}
        assert status_screen.queue(seen)[1][6] == f"({why})"
        for why, shown in (
            ("hpc: waits for 2 machines of flex start", "(hpc: waits for 2 machines of flex start)"),
            ("hpc: requeued at 12:10 from hc-gpu-1: its machine is gone", "hc-gpu-[1-2]"),
        ):
            row = {**job, "nodes": "hc-gpu-[1-2]", "state": "CONFIGURING"}
            controller["slurm"]["jobs"] = {"states": {"CONFIGURING": 1}, "first": [row]}
            controller["reconcile"]["jobs"] = {"7": why}
            assert status_screen.queue(seen)[1][6] == shown
        assert status_screen.actions(seen, 160.0)[1:] == [
            ("1 min", "create", "hc-gpu-[1-2]", "idle+powering_up", "spot"),
        ]

    def test_firing_alerts_are_shown_and_a_lost_prometheus_is_a_finding(self) -> None:
        seen = healthy()
        assert status_screen.alerts(seen) == []
        alert = {"name": "NodeDown", "severity": "critical", "actor": "administrator", "todo": "./hpc status STACK"}
        facts(seen, "controller")["alerts"] = [{**alert, "since": "2026-11-23T14:29:19.4Z", "summary": "It is down"}]
        row = ("NodeDown", "critical", "2026-11-23T14:29:19", "administrator", "It is down")
        assert status_screen.alerts(seen)[1:] == [row]
        later = {**alert, "since": "2026-11-23T15:00:00Z", "summary": "It is down too"}
        facts(seen, "controller")["alerts"] += [later, {**later, "severity": "warning"}]
        first = (*row[:-1], "It is down, and 1 more")
        other = (row[0], "warning", "2026-11-23T15:00:00", row[3], later["summary"])
        assert status_screen.alerts(seen)[1:] == [first, other]
        facts(seen, "controller")["alerts"] = {"error": "Connection refused"}
        assert [finding.id for finding in findings(seen)] == ["monitoring-down"]

    def test_alerts_of_a_monitoring_machine_are_shown_and_its_loss_is_a_finding(self) -> None:
        seen = healthy()
        row = {"name": "NodeDown", "severity": "critical", "actor": "you", "since": "2026-11-23T14:29:19Z"}
        apart = MachineObservation(
            name="dev-monitoring", roles=("monitoring",), reached=True, facts={"alerts": [{**row, "summary": "down"}]}
        )
        seen = replace(seen, machines=(*seen.machines, apart))
        assert [shown[0] for shown in status_screen.alerts(seen)[1:]] == ["NodeDown"]
        lost = replace(seen, machines=(*seen.machines[:-1], replace(apart, reached=False, why="no route", facts={})))
        (finding,) = findings(lost)
        assert (finding.id, finding.where) == ("machine-unreachable", ("dev-monitoring",))
        assert "nothing collects metrics" in finding.what

    def test_unknown_states_are_named(self) -> None:
        lost = MachineObservation(name="c", roles=("controller",), reached=False)
        seen = ClusterObservation(stack="dev", machines=(lost,))
        assert status_screen.sentence(seen, findings(seen)) == (
            "dev: 1 thing to look at: the nodes' states are not known, the queue is not known."
        )

    def test_times_texts_and_sizes_are_shortened(self) -> None:
        spans = {-3: "0 s", 59: "59 s", 60: "1 min", 3700: "1 h 1 min", 90000: "1 d 1 h"}
        assert {seconds: status_screen.ago(seconds) for seconds in spans} == spans
        assert (status_screen.cut("a" * 48), status_screen.cut("b " * 40)) == ("a" * 48, "b " * 22 + "b...")
        assert [status_screen.size(n) for n in (0, 999, 5 << 20, 3 << 40)] == ["0 B", "999 B", "5.0 MiB", "3.0 TiB"]


class TestDrift:
    @pytest.fixture
    def seen(self, monkeypatch: pytest.MonkeyPatch) -> ClusterObservation:
        """A cluster without differences from its stack."""
        seen = healthy()
        controller = facts(seen, "controller")
        monkeypatch.setattr(payload, "slurm_files", lambda *_: dict(controller["files"]["texts"]))
        monkeypatch.setattr(payload, "setup_version", lambda: controller["setup"])
        for machine in seen.machines:
            machine.part("unix")["managed"].update(users=[], groups=[])
        return seen

    def test_no_difference_is_exit_code_0(self, hpc: Hpc, report: Report, seen: ClusterObservation) -> None:
        report(seen)
        ended = hpc("drift", "dev")
        assert (ended.code, ended.out) == (0, "dev: nothing differs from the stack.\n"), ended.err

    def test_a_difference_has_a_command_to_mend_it(self, hpc: Hpc, report: Report, seen: ClusterObservation) -> None:
        facts(seen, "controller")["slurm"]["config"]["KillWait"] = "31 sec"
        report(seen)
        ended = hpc("drift", "dev")
        assert ended.code == 1
        assert "hc-controller: running value of KillWait\n    stack: 30\n    there: 31 sec\n" in ended.out
        assert "./hpc drift dev --mend" in ended.out
        document = json.loads(hpc("drift", "dev", "--json").out)
        assert [(row["id"], row["mends"]) for row in document["differences"]] == [("value-changed", "mend")]

    def test_what_could_not_be_compared_is_named(self, hpc: Hpc, report: Report, seen: ClusterObservation) -> None:
        facts(seen, "controller")["accounting"] = {"qos": {"error": "nothing listens on slurmdbd's port 6819"}}
        report(seen)
        ended = hpc("drift", "dev")
        assert ended.code == 1
        assert "Not compared:\n    hc-controller: accounting qos: nothing listens" in ended.out

    def test_mend_runs_the_set_up_of_differing_machines_again(
        self, hpc: Hpc, report: Report, seen: ClusterObservation, tmp_path: Path
    ) -> None:
        facts(seen, "controller")["slurm"]["config"]["KillWait"] = "31 sec"
        facts(seen, "cpu-1")["daemons"]["slurmd"].update(state="inactive", sub="dead")
        report(seen)
        ended = hpc("drift", "dev", "--mend")
        assert ended.code == 1, "the stand-ins mend nothing"
        asked = [line.partition(" ")[::2] for line in (tmp_path / "asked").read_text().splitlines()]
        (controller, configure), (node, restart) = [(at, line) for at, line in asked if not line.endswith(" look")]
        assert (controller, node) == ("10.83.0.2", "10.83.0.5")
        assert configure.endswith(f"python3 {payload.SETUP} configure")
        assert restart.endswith("systemctl restart hpc-node")

    def test_mend_waits_for_starting_daemons(
        self, hpc: Hpc, report: Report, seen: ClusterObservation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        facts(seen, "cpu-1")["daemons"]["slurmd"].update(state="activating", sub="start")
        report(seen)

        def pause(_seconds: float) -> None:
            facts(seen, "cpu-1")["daemons"]["slurmd"].update(state="active", sub="running")
            report(seen)

        monkeypatch.setattr(drift, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
        ended = hpc("drift", "dev", "--mend")
        assert ended.code == 0, ended.out
        assert "hc-cpu-1: waiting for what starts there" in ended.err

    def test_mend_is_refused_while_an_up_runs(self, hpc: Hpc, report: Report, seen: ClusterObservation) -> None:
        report(seen)
        with project.held("dev"):
            assert hpc("drift", "dev").code == 0
            assert "dev" in hpc("drift", "dev", "--mend").error
        assert hpc("drift", "dev", "--mend").code == 0

    def test_mend_refuses_another_versions_set_up(self, hpc: Hpc, report: Report, seen: ClusterObservation) -> None:
        facts(seen, "controller")["cluster_state"]["newest"]["setup"] = "0123456789abcdef"
        report(seen)
        assert "Bring this one first: ./hpc up dev" in hpc("drift", "dev", "--mend").error
