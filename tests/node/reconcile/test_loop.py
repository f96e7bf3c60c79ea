"""The reconcile loop in simulated time: it reaches its goal after any fault, and stays within its limits."""

import errno
import json
import os

import pytest
from health.acceptance import NO_PARTNER, UNDER_WAY
from reconcile import journal, loop, service
from reconcile.compute_engine import CloudError, ComputeOperation, ErrorKind, Listing
from reconcile.refusals import plain
from reconcile.world import HOST_SECONDS, LOOP_REASONS, NEW, BadHost, Health, Pending
from system import cluster_state
from system.host import SetupError, write

from components.local.compute_engine.http import Call, RefusalError
from tests.node.reconcile.simulated import FLEX, SPOT, SUSPEND_TIMEOUT, Cluster, states


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    return Cluster(tmp_path)


def fill(monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOSPC) -> None:
    """Let every write of the loop's files fail."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(loop, "write", fails)
    monkeypatch.setattr(journal.Journal, "_append", fails)


def test_machines_get_another_image_after_their_jobs_a_part_at_a_time(tmp_path):
    cluster = Cluster(tmp_path, max_unavailable=0.25)
    for number in range(8):
        cluster.slurm.submit(str(number), 1, 300 + 60 * (number % 3))
    cluster.run(200)
    began = {number: job.began for number, job in cluster.slurm.jobs.items()}
    assert len(cluster.instances) == 8
    assert all(began.values())
    for number in range(8, 24):
        cluster.slurm.submit(str(number), 1, 200)
    # The set-up of a new controller: the templates are those of its image, whose slurmd is no newer than its slurmctld.
    cluster.settings["nodesets"]["gpu"]["templates"] = [{"way": "spot", "template": "global/instanceTemplates/t-new"}]
    cluster.slurm.started = cluster.now
    cluster.restart()
    old = {row["id"] for row in cluster.resources()}
    while not all(job.done for job in cluster.slurm.jobs.values()):
        cluster.run(30)
        machines = cluster.resources()
        assert {row["labels"]["hpc-template"] for row in machines if row["id"] not in old} <= {"t-new"}
        leaving = [node for node in cluster.slurm.nodes_.values() if node.states & {"POWER_DOWN", "POWERING_DOWN"}]
        waiting = [job for job in cluster.slurm.jobs.values() if not job.nodes and not job.done]
        assert len(leaving) <= 2 or not waiting
        assert cluster.now < 1_800_010_000
    assert {number: cluster.slurm.jobs[number].began for number in began} == began, "none was requeued"
    assert {row["labels"]["hpc-template"] for row in cluster.resources()} == {"t-new"}


class TestMachines:
    def test_machines_of_a_job_are_created_together_and_deleted_when_idle(self, cluster):
        cluster.slurm.submit("1", 4, 60)
        cluster.run(180)
        assert cluster.slurm.jobs["1"].done
        assert len(cluster.instances) == 4
        assert [row["nodes"] for row in cluster.journal() if row["rule"] == "create"] == [
            [f"c-gpu-{number}" for number in range(4)]
        ]
        cluster.run(900)
        assert cluster.instances == {}
        assert all(states(cluster, name) == {"IDLE", "POWERED_DOWN"} for name in cluster.slurm.nodes_)

    def test_a_machine_that_is_missing_only_in_the_list_stays_in_service(self, cluster):
        cluster.slurm.submit("1", 1, 600)
        cluster.run(120)
        # As one whose label somebody has removed.
        next(iter(cluster.fake.world.machines.values())).resource["labels"].pop("hpc-cluster")
        cluster.run(60)
        assert states(cluster) == {"ALLOCATED"}
        assert cluster.loop.record.actions == []

    @pytest.mark.parametrize(("status", "why"), [("TERMINATED", "its machine stops"), ("", "its machine is gone")])
    def test_the_job_of_a_lost_machine_begins_on_a_free_node_within_90_s(self, cluster, status, why):
        """The loop makes a pass every 10 s, and slurmctld holds requeued jobs back for 121 s."""
        cluster.slurm.submit("1", 1, 600)
        cluster.slurm.submit("2", 1, 5)
        cluster.run(120)
        cluster.end("c-gpu-0", status)
        cluster.run(90, step=service.IDLE_SECONDS)
        assert cluster.slurm.jobs["1"].nodes == ["c-gpu-1"]
        assert cluster.slurm.jobs["1"].began
        assert cluster.slurm.jobs["1"].comment.endswith(f" from c-gpu-0: {why}")
        assert "TERMINATED" not in cluster.instances.values()

    def test_an_instance_without_a_node_that_needs_it_is_deleted(self, cluster):
        cluster.loop.cloud.insert(["c-gpu-5"], template="x/t-spot", nodeset="gpu", request="lost")
        cluster.loop.cloud.insert(["c-old-1"], template="x/t-spot", nodeset="old", request="older")
        cluster.run(200)
        assert cluster.instances == {}

    def test_an_instance_that_the_loop_has_not_made_is_not_deleted(self, cluster):
        cluster.loop.cloud.insert(["c-old-1"], template="x/t-spot", nodeset="old", request="r")
        next(iter(cluster.fake.world.machines.values())).resource["labels"].pop("hpc-made-by")
        cluster.run(400)
        assert list(cluster.instances) == ["c-old-1"]

    def test_a_machine_that_does_not_boot_is_replaced_and_its_serial_log_kept(self, cluster, tmp_path):
        cluster.boot_seconds = lambda: 10_000
        cluster.fake.consoles["c-gpu-0"] = "no root file system"
        cluster.slurm.submit("1", 1, 60)
        cluster.run(90)
        cluster.fake.guest["c-gpu-0"] = "failed: no key"
        cluster.boot_seconds = lambda: 20
        cluster.run(60)
        assert (tmp_path / "serial" / "c-gpu-0.log").read_text() == "no root file system"
        del cluster.fake.guest["c-gpu-0"]
        cluster.run(600)
        assert cluster.slurm.jobs["1"].done


class TestMeasurement:
    @pytest.mark.parametrize(
        ("mode", "resumed"), [("", True), (UNDER_WAY, False), (NO_PARTNER, False), ("refused", False)]
    )
    def test_a_repaired_node_is_resumed_at_once_or_by_its_measurement(self, cluster, monkeypatch, mode, resumed):
        cluster.slurm.submit("1", 1, 60)
        cluster.run(150)
        node = cluster.slurm.nodes_["c-gpu-0"]
        cluster.take_out("c-gpu-0", "DRAIN", NEW)
        measured = set()

        def measure(name: str) -> str:
            measured.add(name)
            if mode == "refused":
                raise SetupError("slurmctld does not answer")
            return mode

        monkeypatch.setattr(cluster.slurm, "measure", measure)
        monkeypatch.setattr(loop, "last_checks", lambda _: {"c-gpu-0": Health(cluster.now, failed=False, passes=2)})
        cluster.run(6)
        assert measured == {"c-gpu-0"}
        assert ("DRAIN" not in node.states) == resumed
        assert ("new-sound" in {row["rule"] for row in cluster.journal()}) == resumed
        assert set(cluster.status()["waits"]) == ({"c-gpu-0"} if mode == NO_PARTNER else set())


class TestRegister:
    def test_a_machine_that_booted_before_the_request_registers_again(self, cluster, tmp_path, monkeypatch):
        monkeypatch.setattr(cluster_state, "REPORTS", tmp_path / "nodes")
        monkeypatch.setattr(cluster_state, "REGISTER", tmp_path / "register")
        cluster.deaf = {"c-gpu-1"}
        cluster.slurm.submit("1", 2, 60)
        cluster.run(90)
        for name in cluster.instances:
            write(tmp_path / "nodes" / f"{name}.json", "{}\n")
            os.utime(tmp_path / "nodes" / f"{name}.json", (cluster.now, cluster.now))
        cluster.run(12)
        assert not cluster_state.REGISTER.exists()
        cluster.slurm.started = cluster.now  # as after a restart, and nothing else is done that counts
        cluster.run(12)
        (first,) = cluster_state.REGISTER.read_text().splitlines()
        assert first.startswith("c-gpu-1 ")
        cluster.run(120)
        (second,) = cluster_state.REGISTER.read_text().splitlines()
        assert second > first
        cluster.deaf.clear()
        cluster.run(90)
        assert cluster.slurm.jobs["1"].done
        assert not cluster_state.REGISTER.exists()
        assert [rule for rule, _ in cluster.acted()].count("unheard") <= 4


class TestCapacity:
    def test_without_capacity_the_next_way_is_tried_at_once(self, cluster):
        cluster.fake.capacity["t-spot"] = 0
        cluster.slurm.submit("1", 2, 60)
        cluster.run(200)
        assert cluster.slurm.jobs["1"].done
        assert {machine.resource["labels"]["hpc-template"] for machine in cluster.fake.world.machines.values()} == {
            "t-demand"
        }

    def test_a_job_without_capacity_has_the_reason_in_its_comment_and_runs_later(self, cluster):
        cluster.fake.capacity |= {"t-spot": 0, "t-demand": 1}
        cluster.slurm.submit("1", 2, 60)
        cluster.run(120)
        job = cluster.slurm.jobs["1"]
        assert job.nodes == []
        assert job.comment.startswith("hpc: no capacity for 2 machines of gpu as spot in us-central1-a until ")
        # None of the two is left, and no node asks in vain.
        assert cluster.instances == {}
        cluster.run(200)
        assert [name for name in cluster.slurm.nodes_ if "DOWN" not in states(cluster, name)] == ["c-gpu-0"]
        status = cluster.status()
        assert set(status["cooling"]) == {"gpu/spot", "gpu/on_demand"}
        assert status["jobs"]["1"] == job.comment
        cluster.fake.capacity.clear()
        cluster.run(1200)
        assert job.done
        assert cluster.status()["jobs"] == {}

    def test_a_refusal_of_four_machines_says_nothing_of_three_and_no_node_is_offered_in_vain(self, cluster):
        cluster.fake.capacity |= {"t-spot": 3, "t-demand": 0}
        cluster.slurm.submit("1", 4, 60)
        cluster.run(150)
        assert {cooling.size for cooling in cluster.loop.record.cooling.values()} == {4}
        assert [name for name in cluster.slurm.nodes_ if "DOWN" not in states(cluster, name)] == [
            "c-gpu-0", "c-gpu-1", "c-gpu-2",
        ]  # fmt: skip
        for number in "234":
            cluster.slurm.submit(number, 1, 10_000)
            cluster.run(100)
            assert cluster.slurm.jobs[number].began
        assert not cluster.slurm.jobs["1"].nodes
        # Then one is refused, and from then on none is offered.
        cluster.slurm.submit("5", 1, 60)
        cluster.run(100)
        assert {cooling.size for cooling in cluster.loop.record.cooling.values()} == {1}
        assert all("DOWN" in states(cluster, name) for name in list(cluster.slurm.nodes_)[3:])
        # Each node that slept was set down or offered a few times only.
        assert len([rule for rule, _ in cluster.acted() if rule in ("no-capacity", "capacity-again")]) < 20

    def test_a_success_ends_the_doubling_of_cool_downs(self, cluster):
        minutes = []
        for number in range(4):
            cluster.fake.capacity |= {"t-spot": 0, "t-demand": 0}
            cluster.slurm.submit(str(number), 1, 60)
            cluster.run(120)
            minutes.append(cluster.loop.record.cooling["gpu/spot"].minutes)
            cluster.fake.capacity.clear()
            cluster.run(1500)
            assert cluster.slurm.jobs[str(number)].done
        assert minutes == [10] * 4

    def test_the_success_of_one_machine_says_nothing_of_four(self, cluster):
        cluster.settings["nodesets"]["gpu"]["templates"] = [SPOT]
        cluster.restart()
        cluster.fake.capacity["t-spot"] = 3
        cluster.slurm.submit("1", 4, 60)
        cluster.run(60)
        cluster.slurm.submit("2", 1, 10_000)
        cluster.run(700)
        assert cluster.slurm.jobs["2"].began
        (cooling,) = cluster.loop.record.cooling.values()
        assert (cooling.size, cooling.minutes) == (4, 20)

    def test_a_node_whose_name_another_instance_has_is_given_up_and_its_job_runs_elsewhere(self, cluster):
        cluster.loop.cloud.insert(["c-gpu-1"], template="x/t-spot", nodeset="gpu", request="somebody's")
        cluster.machine("c-gpu-1")["labels"].clear()
        cluster.slurm.submit("1", 3, 60)
        cluster.run(90)
        assert "the name belongs to an instance that the reconcile loop has not made" in cluster.slurm.jobs["1"].comment
        assert set(cluster.loop.record.cooling) == {"c-gpu-1"}
        cluster.run(400)
        assert cluster.slurm.jobs["1"].done
        assert "DOWN" in states(cluster, "c-gpu-1")
        inserts = cluster.requests("POST", "/bulkInsert")
        assert len(inserts) <= 3
        cluster.end("c-gpu-1")
        cluster.run(3600)
        assert "DOWN" not in states(cluster, "c-gpu-1")

    def test_an_instance_that_only_the_list_lacks_is_waited_for(self, cluster, monkeypatch):
        listed = cluster.loop.cloud.instances
        cluster.loop.cloud.insert(["c-gpu-0"], template="x/t-spot", nodeset="gpu", request="lost")
        monkeypatch.setattr(cluster.loop.cloud, "instances", lambda: Listing(()))
        cluster.slurm.submit("1", 1, 60)
        cluster.run(120)
        assert len(cluster.requests("POST", "/instances")) <= 5, "tried again ever more slowly"
        assert cluster.loop.record.cooling == {}
        monkeypatch.setattr(cluster.loop.cloud, "instances", listed)
        cluster.run(200)
        assert cluster.slurm.jobs["1"].done

    def test_the_cool_down_grows_to_an_hour(self, cluster):
        cluster.fake.capacity |= {"t-spot": 0, "t-demand": 0}
        cluster.slurm.submit("1", 1, 60)
        minutes = set()
        for _ in range(200):
            cluster.run(60, step=20)
            minutes |= {cooling.minutes for cooling in cluster.loop.record.cooling.values()}
        assert minutes == {10, 20, 40, 60}

    def test_a_missing_permission_is_tried_again_after_ten_minutes(self, cluster):
        def refuse(_number, call):
            if call.method == "POST":
                raise RefusalError(403, "forbidden", "Required 'compute.instances.create' permission")

        cluster.fake.before = refuse
        cluster.slurm.submit("1", 1, 60)
        cluster.run(120)
        assert {cooling.minutes for cooling in cluster.loop.record.cooling.values()} == {10}
        cluster.fake.before = lambda _number, _call: None
        cluster.run(1200)
        assert cluster.slurm.jobs["1"].done

    def test_scontrol_takes_the_loops_reasons_unchanged(self):
        assert [reason for reason in LOOP_REASONS if plain(reason) != reason] == []


class TestBrakes:
    def test_mode_off_and_advise_change_nothing(self, tmp_path):
        for mode in ("off", "advise"):
            cluster = Cluster(tmp_path / mode, mode=mode)
            cluster.slurm.submit("1", 1, 60)
            cluster.run(60)
            assert cluster.instances == {}
            assert [row["mode"] for row in cluster.journal()] == (["advise"] if mode == "advise" else [])

    def test_a_pause_stops_actions_and_is_in_the_status(self, cluster):
        cluster.folder.mkdir(exist_ok=True)
        (cluster.folder / "paused").touch()
        cluster.slurm.submit("1", 1, 60)
        cluster.run(60)
        assert cluster.instances == {}
        (brake,) = cluster.status()["brakes"]
        assert brake["todo"] == "hpc-reconcile unpause"

    def test_actions_per_hour_are_limited_except_those_that_slurm_requests(self, tmp_path):
        cluster = Cluster(tmp_path, actions_per_hour=2)
        cluster.slurm.submit("1", 8, 10_000)
        cluster.run(150)
        assert len(cluster.instances) == 8
        for number in range(8):
            cluster.end(f"c-gpu-{number}")
        cluster.run(30)
        assert sum(rule == "gone" for rule, _ in cluster.acted()) <= 2
        (brake,) = cluster.status()["brakes"]
        assert (brake["brake"], brake["todo"]) == ("actions_per_hour", "hpc-reconcile lift")

    def test_a_locked_pass_does_nothing(self, cluster):
        cluster.slurm.submit("1", 1, 60)
        cluster.slurm.step()
        cluster.loop.run_pass(locked=True)
        assert cluster.instances == {}

    def test_no_node_is_set_down_after_a_start_of_slurmctld(self, cluster):
        cluster.slurm.submit("1", 1, 600)
        cluster.run(120)
        cluster.slurm.started = cluster.now
        cluster.end("c-gpu-0")
        cluster.run(50)
        assert "ALLOCATED" in states(cluster)


class TestOthers:
    def test_nodes_that_a_person_holds_are_not_changed(self, cluster):
        cluster.slurm.submit("1", 3, 10_000)
        cluster.run(150)
        for name, more in (("c-gpu-0", "DRAIN"), ("c-gpu-1", "REBOOT_ISSUED"), ("c-gpu-2", "MAINTENANCE")):
            cluster.take_out(name, more, "mine", "bob")
        cluster.slurm.untouchable = {"c-gpu-0", "c-gpu-1", "c-gpu-2"}
        for number in range(3):
            cluster.end(f"c-gpu-{number}", "TERMINATED")
        cluster.run(200)
        assert not [name for _, name in cluster.acted() if name in cluster.slurm.untouchable and _ != "create"]

    def test_a_job_in_a_maintenance_reservation_gets_its_machine_and_slurm_has_it_deleted(self, cluster):
        for node in cluster.slurm.nodes_.values():
            node.states |= {"MAINTENANCE", "RESERVED"}
        cluster.slurm.submit("1", 1, 60)
        cluster.run(180)
        assert cluster.slurm.jobs["1"].done
        cluster.run(900)
        assert cluster.instances == {}

    @pytest.mark.parametrize("flags", [{"DRAIN"}, {"MAINTENANCE", "RESERVED"}])
    def test_a_machine_whose_node_slurm_powers_down_is_deleted_whoever_holds_the_node(self, cluster, flags):
        cluster.slurm.submit("1", 1, 60)
        cluster.run(150)
        cluster.slurm.update(["c-gpu-0"], "POWER_DOWN", "")
        cluster.slurm.step()
        node = cluster.slurm.nodes_["c-gpu-0"]
        node.states, node.reason, node.by = node.states | flags, "mine", "bob"
        cluster.run(30)
        assert cluster.instances == {}
        assert flags <= node.states

    @pytest.mark.parametrize("flags", [{"DRAIN"}, {"MAINTENANCE", "RESERVED"}])
    def test_so_it_is_where_the_loop_could_delete_nothing_until_the_node_was_off(self, cluster, flags):
        cluster.slurm.submit("1", 1, 60)
        cluster.run(150)
        cluster.slurm.update(["c-gpu-0"], "POWER_DOWN", "")
        cluster.slurm.step()
        node = cluster.slurm.nodes_["c-gpu-0"]
        node.states, node.reason, node.by = node.states | flags, "mine", "bob"
        # slurmctld starts again and again meanwhile.
        cluster.slurm.started = cluster.now + SUSPEND_TIMEOUT
        cluster.run(SUSPEND_TIMEOUT + 50)
        assert list(cluster.instances) == ["c-gpu-0"]
        assert {*flags, "POWERED_DOWN"} <= node.states
        cluster.run(30)
        assert cluster.instances == {}
        assert flags <= node.states

    @pytest.mark.parametrize("flags", [{"DRAIN"}, {"MAINTENANCE", "RESERVED"}])
    def test_a_machine_that_runs_for_a_held_node_that_is_off_is_an_alert_whose_command_ends_it(self, cluster, flags):
        cluster.loop.cloud.insert(["c-gpu-5"], template="x/t-spot", nodeset="gpu", request="lost")
        node = cluster.slurm.nodes_["c-gpu-5"]
        node.states, node.reason, node.by = node.states | flags, "mine", "bob"
        cluster.run(150)
        assert list(cluster.instances) == ["c-gpu-5"]
        (alert,) = cluster.status()["alerts"]
        assert (alert["rule"], alert["node"]) == ("held-asleep", "c-gpu-5")
        assert alert["what"].startswith("c-gpu-5: its machine runs in us-central1-a and costs")
        assert alert["todo"] == (
            "./hpc ssh STACK controller -- scontrol update NodeName=c-gpu-5 State=POWER_DOWN"
        )  # fmt: skip
        cluster.slurm.update(["c-gpu-5"], "POWER_DOWN", "")
        cluster.run(30)
        assert cluster.instances == {}
        assert cluster.status()["alerts"] == []

    def test_a_machine_with_the_clusters_label_alone_is_an_alert_after_half_an_hour(self, cluster):
        for name in ("c-gpu-5", "c-old-1", "c-login-0"):
            cluster.loop.cloud.insert([name], template="x/t-spot", nodeset="gpu", request=name)
            cluster.machine(name)["labels"].pop("hpc-made-by")
        cluster.machine("c-login-0")["labels"]["hpc-part"] = "login"
        cluster.run(1700)
        assert cluster.status()["alerts"] == []
        cluster.run(300)
        assert {(row["rule"], row["node"], row["todo"]) for row in cluster.status()["alerts"]} == {
            (rule, name, f"gcloud compute instances delete {name} --zone=us-central1-a --project=p")
            for rule, name in (("stray-asleep", "c-gpu-5"), ("stray", "c-old-1"))
        }
        assert len(cluster.instances) == 3


class TestCost:
    def test_a_pass_without_changes_sends_one_request_and_writes_nothing(self, tmp_path):
        cluster = Cluster(tmp_path, count=200)
        cluster.slurm.submit("1", 200, 10_000)
        cluster.run(120)
        assert len(cluster.slurm.registered) == 200
        cluster.run(60)
        before, asked = (tmp_path / "record.json").stat(), len(cluster.fake.calls)
        assert not cluster.loop.run_pass()
        assert len(cluster.fake.calls) - asked == 1
        assert (tmp_path / "record.json").stat().st_ino == before.st_ino

    @pytest.mark.parametrize("used", [0.01, 0.2, 1.0])
    def test_an_idle_loop_uses_less_than_two_percent_of_a_core(self, used):
        assert used / service.pause_seconds(used, busy=False) < 0.02

    @pytest.mark.parametrize(("used", "pause"), [(0.01, 3), (1.0, 10)])
    def test_a_busy_loop_pauses_for_three_to_ten_seconds(self, used, pause):
        assert service.pause_seconds(used, busy=True) == pause


class TestOutages:
    """Faults after which no machine may be deleted."""

    @pytest.fixture
    def busy(self, cluster) -> Cluster:
        """A cluster whose machines all run a job."""
        cluster.slurm.submit("1", 8, 1e6)
        cluster.run(120)
        assert cluster.slurm.jobs["1"].began
        return cluster

    def cut(self, cluster: Cluster) -> None:
        """Cut the network between slurmctld and its nodes."""
        cluster.deaf = set(cluster.instances)
        cluster.slurm.registered.clear()

    @pytest.mark.parametrize("heard", [True, False])
    def test_an_empty_list_deletes_no_machine(self, busy, monkeypatch, heard):
        if not heard:  # the network between the controller and its nodes is cut as well
            self.cut(busy)
            busy.run(700)
            assert states(busy) >= {"DOWN"}
        there = [row["id"] for row in busy.resources()]
        monkeypatch.setattr(busy.loop.cloud, "instances", lambda: Listing(()))
        busy.run(120)
        monkeypatch.undo()
        busy.run(300)
        assert [row["id"] for row in busy.resources()] == there
        assert bool(busy.slurm.jobs["1"].began) is heard

    def test_a_network_partition_deletes_no_machine(self, busy):
        self.cut(busy)
        busy.run(3600)
        assert len(busy.instances) == 8
        assert "down-many" in {row["rule"] for row in busy.status()["alerts"]}
        busy.deaf.clear()
        for node in busy.slurm.nodes_.values():  # ReturnToService=2
            node.states, node.reason, node.by = {"IDLE", "CLOUD"}, "", ""
        busy.run(300)
        assert busy.slurm.jobs["1"].began

    def test_the_boot_timeout_begins_again_after_the_controller_was_off(self, cluster):
        cluster.boot_seconds = lambda: 200
        cluster.slurm.submit("1", 8, 60)
        cluster.run(60)
        cluster.now += 3600
        cluster.slurm.started = cluster.now  # it asks for the boots again
        for node in cluster.slurm.nodes_.values():
            node.since = cluster.now
        cluster.boots = dict.fromkeys(cluster.boots, cluster.now + 120)
        cluster.restart()
        cluster.run(300)
        assert cluster.slurm.jobs["1"].done
        assert "boot-failed" not in {rule for rule, _ in cluster.acted()}

    def test_the_loop_goes_on_after_the_clock_was_set_back(self, cluster):
        cluster.loop.cloud.insert(["c-gpu-5"], template="x/t-spot", nodeset="gpu", request="lost")
        cluster.run(60)
        cluster.now -= 30 * 86400
        cluster.run(30)
        assert cluster.instances
        cluster.run(150)
        assert cluster.instances == {}

    def test_no_machine_is_deleted_while_the_clock_differs_from_the_clouds(self, busy):
        busy.loop.cloud.skew = 300.0
        busy.slurm.jobs["1"].seconds = 0
        busy.run(900)
        assert len(busy.instances) == 8
        assert "300 s ahead" in busy.status()["why"]

    def test_a_refused_deletion_is_retried_less_and_less_often(self, cluster, monkeypatch):
        cluster.loop.cloud.insert(["c-gpu-5"], template="x/t-spot", nodeset="gpu", request="lost")
        refused = CloudError(ErrorKind.PERMISSION, "forbidden", "")

        def delete(*_: object, **__: object) -> None:
            raise refused

        monkeypatch.setattr(cluster.loop.cloud, "delete", delete)
        monkeypatch.setattr(cluster, "_check", lambda: None)  # the instance is an orphan for all of that hour
        cluster.run(3600)
        assert 8 < len([row for row in cluster.journal() if row.get("result") == str(refused)]) < 20
        monkeypatch.undo()
        cluster.run(300)
        assert cluster.instances == {}

    def test_a_slurmctld_without_nodes_deletes_no_machine(self, busy, monkeypatch):
        monkeypatch.setattr(busy.slurm, "nodes", lambda: ({}, {}))
        busy.run(300)
        assert len(busy.instances) == 8

    def test_the_failed_request_of_a_removed_node_is_forgotten(self, cluster):
        cluster.loop.record.pending["c-gpu-9"] = Pending("create", "op-1", cluster.now, "spot")
        failed = CloudError(ErrorKind.STOCK_OUT, "STOCKOUT", "")
        cluster.loop.cloud.operation = lambda name: ComputeOperation(name, done=True, error=failed)
        cluster.run(10)
        assert cluster.loop.record.pending == {}

    def test_a_controller_that_lost_its_state_disk_does_nothing(self, busy, monkeypatch):
        """Another one has it now, and other jobs on the machines."""
        fill(monkeypatch, errno.EIO)
        for node in busy.slurm.nodes_.values():
            node.states, node.job = {"IDLE", "CLOUD", "POWERED_DOWN"}, ""
        for _ in range(3):
            busy.restart()
            with pytest.raises(OSError, match="Input/output error"):
                busy.run(300)
        assert len(busy.instances) == 8

    def test_machines_are_created_for_jobs_though_the_disk_is_full(self, cluster, monkeypatch):
        fill(monkeypatch)
        cluster.slurm.submit("1", 4, 60)
        cluster.run(180)
        assert cluster.slurm.jobs["1"].done
        cluster.run(1500)
        assert cluster.instances == {}


class TestFaults:
    @pytest.mark.parametrize("seed", range(2))
    def test_after_a_thousand_faults_all_jobs_end_and_no_machine_remains(self, tmp_path, seed):
        cluster = Cluster(tmp_path, seed=seed, count=6)
        if seed:  # with requests of flex start for what spot has not
            cluster.settings["nodesets"]["gpu"]["templates"] = [SPOT, FLEX]
            cluster.slurm.resume_timeout, cluster.fake.queue_seconds = 65533, 600
            cluster.restart()
        cluster.faults = 0.25
        number = 0
        while cluster.injected < 500:  # a thousand in both
            number += 1
            cluster.slurm.submit(str(number), cluster.random.randint(1, 4), cluster.random.uniform(60, 600))
            cluster.run(cluster.random.uniform(60, 600), step=5)
            if cluster.instances and cluster.random.random() < 0.3:
                cluster.end(cluster.random.choice(list(cluster.instances)), cluster.random.choice(("", "TERMINATED")))
        cluster.faults = 0.0
        cluster.run(4 * 3600, step=10)
        assert [name for name, job in cluster.slurm.jobs.items() if not job.done] == []
        assert {name: node.states for name, node in cluster.slurm.nodes_.items() if "DOWN" in node.states} == {}
        assert (cluster.instances, cluster.fake.groups) == ({}, {})
        assert cluster.loop.record.pending == {}


class TestMaintenance:
    @pytest.fixture
    def static(self, cluster) -> Cluster:
        """Two static nodes."""
        names = ["c-gpu-0", "c-gpu-1"]
        cluster.settings["nodesets"]["gpu"] |= {"nodes": [], "static": names}
        cluster.restart()
        for name in names:
            query = {"sourceInstanceTemplate": "t-demand"}
            body = {"name": name, "labels": {"hpc-cluster": "c"}}
            cluster.fake.answer(Call("POST", "/compute/v1/projects/p/zones/us-central1-a/instances", query, body, {}))
            cluster.slurm.nodes_[name].states = {"IDLE"}
            cluster.slurm.nodes_[name].since = cluster.now + 1e9  # it is not suspended
        for name in set(cluster.slurm.nodes_) - set(names):
            del cluster.slurm.nodes_[name]
        cluster.run(90)
        return cluster

    def maintained(self, cluster: Cluster) -> list[str]:
        return [path.split("/")[-2] for path in cluster.requests("POST", "/performMaintenance")]

    def test_hosts_of_static_nodes_are_maintained_one_by_one_while_idle(self, static):
        static.slurm.submit("1", 1, 300)
        static.run(30)
        assert states(static) == {"ALLOCATED"}
        for name in static.instances:
            static.fake.maintain(name)
        static.run(15)
        assert self.maintained(static) == ["c-gpu-1"]
        assert "DRAIN" in states(static, "c-gpu-1")
        static.run(600)
        assert self.maintained(static) == ["c-gpu-1", "c-gpu-0"]
        assert all(states(static, name) == {"IDLE"} for name in static.instances)
        assert static.slurm.jobs["1"].done

    def test_a_node_is_resumed_if_the_maintenance_can_not_begin(self, static, monkeypatch):
        def refuse(*_: object) -> None:
            raise RefusalError(400, "invalid", "not now")

        monkeypatch.setattr(static.fake, "_perform_maintenance", refuse)
        static.fake.maintain("c-gpu-1")
        static.run(30)
        assert "DRAIN" in states(static, "c-gpu-1")
        static.run(700)
        assert len(self.maintained(static)) == 1
        assert states(static, "c-gpu-1") == {"IDLE"}

    def test_a_node_whose_host_has_a_fault_takes_no_more_jobs(self, static):
        static.slurm.submit("1", 2, 300)
        static.run(30)
        static.fake.maintain("c-gpu-0", reasons=("FAILURE_GPU_XID",))
        static.run(15)
        assert states(static) == {"ALLOCATED", "DRAIN"}
        assert self.maintained(static) == []
        static.run(400)
        assert static.slurm.jobs["1"].done
        assert self.maintained(static) == ["c-gpu-0"]
        assert states(static) == {"IDLE"}

    def test_an_idle_elastic_node_is_powered_down(self, cluster):
        cluster.slurm.submit("1", 2, 60)
        cluster.run(240)
        assert cluster.slurm.jobs["1"].done
        cluster.fake.maintain("c-gpu-0")
        cluster.run(200)
        assert set(cluster.instances) == {"c-gpu-1"}
        assert states(cluster) == {"IDLE", "POWERED_DOWN"}
        assert self.maintained(cluster) == []


class TestRepair:
    @pytest.fixture
    def sick(self, cluster, tmp_path, monkeypatch) -> Cluster:
        """A node on which a check has found a certain fault, among others that are well."""
        monkeypatch.setattr(cluster_state, "HEALTH", tmp_path / "health")
        (tmp_path / "health").mkdir()
        cluster.slurm.submit("1", 8, 60)
        cluster.run(150)
        cluster.take_out("c-gpu-0", "DRAIN", "hpc-health: gpu-lost: GPU 3 is lost")
        self.check(cluster, failed=True)
        return cluster

    def check(self, cluster: Cluster, *, failed: bool) -> None:
        checks = {"gpu-lost": {"state": "failed" if failed else "ok", "text": ""}}
        record = {"time": cluster.now, "checks": checks, "passes": 0 if failed else 2}
        path = cluster_state.HEALTH / "c-gpu-0.json"
        path.write_text(json.dumps({**record, "repair": ["gpu-lost"] if failed else []}))
        os.utime(path, (cluster.now, cluster.now))

    def test_the_journal_keeps_lines_of_repairs_when_it_is_rotated(self, sick, monkeypatch):
        sick.run(60)
        monkeypatch.setattr(journal, "BYTES", 2000)
        for _ in range(100):
            sick.loop.journal_request("resume", "c-gpu-[1-7]", sick.now)
        files = [sick.folder / name for name in ("journal.jsonl.1", "journal.jsonl")]
        lines = "".join(file.read_text() for file in files)
        assert len(lines) < 5000
        assert '"action": "reset"' in lines

    def test_a_reboot_that_can_not_be_recorded_is_postponed(self, sick):
        with pytest.MonkeyPatch.context() as patch:
            fill(patch)
            sick.run(60)
            assert sick.requests("POST", "/reset") == []
        sick.run(60)
        assert len(sick.requests("POST", "/reset")) == 1

    def test_a_node_whose_checks_pass_after_the_reboot_is_resumed(self, sick):
        sick.run(60)
        assert [rule for rule, name in sick.acted() if name == "c-gpu-0"][-1] == "sick-reboot"
        self.check(sick, failed=False)
        sick.run(30)
        assert "DRAIN" not in states(sick)

    def test_a_machine_that_stays_faulty_is_replaced_and_the_next_one_checked_first(self, sick, tmp_path):
        first = sick.machine("c-gpu-0")["id"]
        sick.run(60)
        self.check(sick, failed=True)
        sick.run(30)
        assert sick.slurm.nodes_["c-gpu-0"].reason == "hpc: new machine, being checked (gpu-lost: GPU 3 is lost)"
        sick.run(200)
        assert sick.machine("c-gpu-0")["id"] != first
        assert "DRAIN" in states(sick)
        assert (tmp_path / "serial" / "c-gpu-0.log").exists()
        self.check(sick, failed=False)
        sick.run(30)
        assert "DRAIN" not in states(sick)

    def test_a_host_is_reported_where_the_machine_type_can_move(self, sick):
        sick.machine("c-gpu-0")["machineType"] = "a4-highgpu-8g"
        sick.run(60)
        self.check(sick, failed=True)
        sick.fake.reportable = False
        sick.run(30)
        self.check(sick, failed=True)
        sick.run(30)
        steps = [rule for rule, name in sick.acted() if name == "c-gpu-0" and rule.startswith("sick")]
        # Refused once, it is not asked again.
        assert steps == ["sick-reboot", "sick-report", "sick-replace"]

    def test_a_machine_created_on_a_host_that_was_given_up_gets_no_job(self, sick):
        bad = sick.fake.host = sick.machine("c-gpu-0")["resourceStatus"]["physicalHost"]
        sick.run(60)
        self.check(sick, failed=True)
        sick.run(30)
        sick.restart()
        sick.run(400)
        deleted = [name for rule, name in sick.acted() if rule == "host-again"]
        # Three of each way; no check had to find the fault again, and other nodes' new machines are not spared.
        assert deleted == ["c-gpu-0"] * 6
        assert "c-gpu-0" not in sick.instances
        assert {cooling.minutes for cooling in sick.loop.record.cooling.values()} == {60}
        (why, *_) = (cooling.reason for cooling in sick.loop.record.cooling.values())
        assert why.endswith(
            f"(its machines come back on {bad}, which was given up. c-gpu-0: hpc-health: gpu-lost: GPU 3 is lost)"
        )
        assert states(sick) >= {"DRAIN"}
        sick.fake.host = ""
        sick.loop.record.cooling.clear()
        sick.run(120)
        self.check(sick, failed=False)
        sick.run(30)
        assert "DRAIN" not in states(sick)

    def test_a_host_that_was_given_up_is_avoided_for_a_week(self, sick):
        sick.loop.record.hosts["/b/s/h"] = BadHost(sick.now, "c-gpu-9: lost")
        sick.run(1200)
        sick.fake.host = "/b/s/h"
        sick.slurm.submit("2", 1, 60)
        sick.run(100)
        assert [rule for rule, _ in sick.acted()].count("host-again") == 6
        assert not sick.slurm.jobs["2"].began
        assert "which was given up. c-gpu-9: lost" in sick.slurm.jobs["2"].comment
        sick.now += HOST_SECONDS
        sick.run(400)
        assert sick.loop.record.hosts == {}
        assert sick.slurm.jobs["2"].done

    def test_the_figures_of_a_repair_are_in_the_journal(self, sick):
        path = cluster_state.HEALTH / "c-gpu-0.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "faults": {"gpu-lost": sick.now - 20}}))
        os.utime(path, (sick.now, sick.now))
        node = sick.slurm.nodes_["c-gpu-0"]
        node.states = (node.states - {"IDLE"}) | {"ALLOCATED"}
        sick.run(60)
        node.states = (node.states - {"ALLOCATED"}) | {"IDLE"}
        sick.run(60)
        sick.restart()
        self.check(sick, failed=False)
        sick.run(30)
        (row,) = (row for row in sick.journal() if row["rule"] == "repaired")
        assert (row["nodes"], row["reason"], row["steps"]) == (
            ["c-gpu-0"], "hpc-health: gpu-lost: GPU 3 is lost", ["reset"]
        )  # fmt: skip
        assert row["seconds"] == {"detect": 23, "drain": 60, "mend": 60, "return": 3}

    def test_a_sick_node_is_repaired_after_its_jobs(self, sick):
        sick.slurm.submit("2", 1, 10_000)
        node = sick.slurm.nodes_["c-gpu-0"]
        node.states = (node.states - {"IDLE"}) | {"ALLOCATED"}
        sick.run(300)
        assert not [rule for rule, name in sick.acted() if name == "c-gpu-0" and rule.startswith("sick")]
