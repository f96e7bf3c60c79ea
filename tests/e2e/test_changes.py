"""An edit does what its preview says and no more, while a job runs on."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

Edit = Callable[[dict[str, Any]], object]
RENDERED = "grep -vE '^(#|NodeName|NodeSet|PartitionName|$)' /etc/slurm/slurm.conf"
SHOWN = "scontrol show config"
MARK = "echo -----"


LUA = """\
function slurm_job_submit(job, partitions, uid)
  if job.name == "forbidden" then
    slurm.log_user("not by this name")
    return slurm.ERROR
  end
  job.comment = "seen"
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
"""
FORBIDDEN = "runuser -u alice -- sbatch --job-name=forbidden --chdir=/tmp --output=/dev/null --wrap true 2>&1; true"


@pytest.fixture(scope="module")
def edited(bring_up: Callable[..., Cluster]) -> Cluster:
    """A cluster of three machines."""
    return bring_up(
        "edited",
        login={"on": "controller"},
        nodesets={"cpu": {"count": 2}},
        users=[{"name": "alice", "uid": 2001, "account": "research"}],
        accounting={"accounts": [{"name": "research"}]},
    )


@pytest.fixture(scope="module")
def long(edited: Cluster) -> str:
    """A job on the first node, which outlives every edit."""
    return edited.job("sleep infinity", "--nodelist=edited-cpu-0")


def test_a_limit_is_previewed_line_by_line(edited: Cluster):
    edited.edit(lambda c: c["partitions"]["cpu"].update(max_time="02:00:00"))
    steps = {step["name"]: step["op"] for step in edited.preview()["steps"] if step["op"] != "same"}
    assert set(steps.values()) == {"update"}
    assert set(steps) == {"edited-controller-configure", "edited-nodes", "edited-ready"}
    shown = edited.hpc("preview").stdout
    assert "MaxTime=02:00:00" in shown
    assert "MaxTime=INFINITE" in shown
    assert shown.endswith(
        "Running jobs go on: slurmctld only reads its files again.\n"
        "  reconfigure\n"
        "    partitions.cpu.max_time: INFINITE -> 02:00:00\n"
        "      the partition's line in slurm.conf; jobs that run keep what they were given\n"
    )


@pytest.mark.parametrize(
    "one",
    [
        (
            lambda c: (
                c["partitions"].update(night={"nodesets": ["cpu"], "priority_tier": 2}),
                c["users"].append({"name": "dave", "uid": 2007, "account": "research"}),
            ),
            "reconfigure",
            (
                "scontrol show partition cpu | grep -o MaxTime=02:00:00; "
                "runuser -u dave -- srun -p night --chdir=/ sh -c 'echo $SLURM_JOB_PARTITION; id -un'"
            ),
            "MaxTime=02:00:00\nnight\ndave\n",
        ),
        (
            lambda c: (
                c["accounting"].update(qos=[{"name": "urgent", "priority": 100, "preempt": ["normal"]}]),
                c["users"][0].update(qos=["normal", "urgent"]),
                c["nodesets"]["cpu"].update(count=3),
                c.update(slurm={"timers": {"kill_wait": 45}, "job_submit_lua": LUA}),
            ),
            "restart",
            (
                "runuser -u alice -- srun --qos=urgent --chdir=/ sh -c 'echo $SLURM_JOB_QOS'; "
                f"srun --nodelist=edited-cpu-2 --chdir=/ hostname; {FORBIDDEN}"
            ),
            "urgent\nedited-cpu-2\nsbatch: error: not by this name\n",
        ),
    ],
    ids=["limit, partition and user", "qos, node, timer and lua"],
)
def test_an_edit_takes_effect_beside_a_running_job(edited: Cluster, long: str, one: tuple[Edit, str, str, str]):
    edit, effect, look, found = one
    edited.edit(edit)
    assert up_and_right(edited, long, look, found)["effects"]["worst"] == effect


def test_lua_changes_jobs_and_broken_lua_never_goes_live(edited: Cluster, long: str):
    assert "Comment=seen" in edited.run("srun", "sh", "-c", "scontrol show job $SLURM_JOB_ID", user="alice")
    kept = edited.copy()
    for wrong, told in (("end", "job_submit.lua:13: "), ("error('at start')", "The edit did not take effect")):
        edited.edit(lambda c, wrong=wrong: c["slurm"].update(job_submit_lua=LUA + wrong + "\n"))
        failed = edited.hpc("up", check=False)
        assert failed.returncode == 1
        assert told in failed.stdout
        assert "not by this name" in edited.inside("controller", FORBIDDEN)
    edited.revert(kept)
    edited.up()
    edited.inside("controller", "echo '-- by hand' >>/etc/slurm/job_submit.lua")
    # A machine that does not answer in time on a busy host is named in its place.
    changed = "job_submit.lua, line 13"
    eventually(lambda: changed in edited.call("drift", edited.name).stdout, what="the manual change")
    edited.edit(lambda c: c["slurm"].pop("job_submit_lua"))
    edited.up()
    assert "Submitted batch job" in edited.inside("controller", FORBIDDEN)
    gone = edited.inside("controller", "ls /etc/slurm/job_submit.lua 2>&1; true")
    assert gone.endswith("No such file or directory")
    assert edited.state(long) == "RUNNING"


def test_a_spare_takes_the_place_of_a_drained_node(edited: Cluster, long: str):
    held = "scontrol --oneliner show reservation | grep -o ' Nodes=[^ ]*'; true"
    edited.edit(lambda c: c["nodesets"]["cpu"].update(spare=1))
    assert edited.preview()["effects"]["worst"] == "nothing"
    edited.up()
    eventually(lambda: edited.inside("controller", held) == "Nodes=edited-cpu-2", what="the last node is held")
    # Before Slurm 23.02 a node's row does not name its reservation.
    shown = ("nodes", edited.name)
    eventually(lambda: bool(re.search("cpu-2 .*(spare|reserved)", edited.call(*shown).stdout)), what="it is shown")
    edited.inside("controller", "scontrol update NodeName=edited-cpu-1 State=DRAIN Reason=broken")
    eventually(lambda: edited.inside("controller", held) == "", what="it is given to jobs")
    edited.inside("controller", "scontrol update NodeName=edited-cpu-1 State=RESUME")
    eventually(lambda: "cpu-" in edited.inside("controller", held), what="one is held again")
    edited.edit(lambda c: c["nodesets"]["cpu"].pop("spare"))
    edited.up()
    eventually(lambda: edited.inside("controller", held) == "", what="none is held")
    assert edited.state(long) == "RUNNING"


def test_a_job_of_a_qos_that_preempts_another_takes_its_nodes(edited: Cluster, long: str):
    way = edited.job("sleep infinity", "--nodelist=edited-cpu-1", "--exclusive")
    words = ("--qos=urgent", "--nodelist=edited-cpu-1", "--exclusive", "--immediate=300", "--chdir=/tmp")
    assert edited.run("srun", *words, "hostname", user="alice") == "edited-cpu-1"
    assert edited.state(way) in {"PENDING", "COMPLETING"}, "it begins again later"
    assert edited.state(long) == "RUNNING"
    edited.inside("controller", f"scancel {way}")


def test_a_node_that_leaves_is_drained_and_its_job_finishes(edited: Cluster, long: str):
    leaving = edited.job(until_drained("edited-cpu-2"), "--nodelist=edited-cpu-2")
    edited.edit(lambda c: c["nodesets"]["cpu"].update(count=2))
    preview = edited.preview()
    assert sorted(step["name"] for step in preview["steps"] if step["op"] == "delete") == [
        "edited-cpu-2", "edited-cpu-2-leave",
    ]  # fmt: skip
    assert preview["effects"]["worst"] == "drain"
    assert "edited-cpu-2 leaves" in preview["effects"]["fields"][0]["reason"]
    done = up_and_right(
        edited, long, f"squeue --noheader --states=all --jobs={leaving} --format=%T; sinfo -N", "COMPLETED"
    )
    printed = " ".join(message["message"] for message in done["messages"])
    assert "drained edited-cpu-2 (hpc: leaves the cluster)" in printed
    assert re.search(rf"waiting for 1 job, .* at most: job {leaving} \(.*\) of alice on edited-cpu-2: running", printed)
    assert set(done["outputs"]["machines"]) == {"edited-controller", "edited-cpu-0", "edited-cpu-1"}
    assert "Nothing to do" in edited.up()


def test_a_wait_that_ends_names_the_jobs_and_is_taken_back_with_the_edit(edited: Cluster):
    staying = edited.job("sleep infinity", "--nodelist=edited-cpu-1")
    before = edited.copy()
    edited.edit(lambda c: (c["nodesets"]["cpu"].update(count=1), c.update(slurm={"drain_seconds": 1})))
    failed = edited.hpc("up", check=False)
    said = failed.stdout + failed.stderr
    assert failed.returncode == 1
    assert re.search(rf"job {staying} \(.*\) of alice on edited-cpu-1: running for", said)
    assert f"scancel {staying}" in said
    assert "hpc: leaves the cluster" in edited.inside("controller", "scontrol show node edited-cpu-1")
    assert "NodeName=edited-cpu-[0-1]" in edited.inside("controller", "cat /etc/slurm/slurm.conf")
    edited.revert(before)
    assert "resumed edited-cpu-1" in edited.up()
    assert "drain" not in edited.run("sinfo", "-h", "-o", "%T")
    assert edited.state(staying) == "RUNNING"
    edited.inside("controller", f"scancel {staying}")


def test_a_node_is_emptied_before_its_machine_is_recreated(edited: Cluster, long: str):
    """Other GPUs are other device files, which a machine has from its start."""
    edited.edit(lambda c: c["nodesets"].update(gpu={"machine_type": "local-2c-2gpu"}))
    edited.edit(lambda c: c["partitions"].update(gpu={"nodesets": ["gpu"]}))
    edited.up()
    again = edited.job("sleep infinity", "--partition=gpu", "--requeue")
    edited.inside("controller", f"scontrol requeuehold {again}")
    eventually(lambda: edited.state(again) == "PENDING", what="the job's return to the queue")
    moving = edited.job(until_drained("edited-gpu-0"), "--partition=gpu", "--gpus=2")
    edited.edit(lambda c: c["nodesets"]["gpu"].update(machine_type="local-2c-8gpu"))
    effects = edited.preview()["effects"]
    assert effects["worst"] == "replace"
    assert "edited-gpu-0 is recreated" in effects["fields"][0]["reason"]
    edited.up()
    assert edited.state(moving) == "COMPLETED"
    held = f"{again} of alice (job requeued in held state)"
    eventually(lambda: held in edited.findings()["jobs-held"]["controller"], what="the finding")
    edited.inside("controller", f"scancel {again}")
    assert edited.run("srun", "--partition=gpu", "--gpus=8", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").count(",") == 7
    assert edited.state(long) == "RUNNING"


def test_a_user_who_goes_keeps_the_home_folder(edited: Cluster):
    edited.edit(lambda c: c["users"].pop())
    edited.up()
    assert "no such user" in edited.inside("controller", "id dave 2>&1; true")
    assert edited.inside("controller", "ls -d /home/dave") == "/home/dave"


def test_what_a_living_cluster_cannot_take_is_refused_before_the_first_step(edited: Cluster, long: str):
    before = edited.copy()
    older = {"image": {"base": "debian-12"}}
    edited.edit(lambda c: (c.update(name="other", **older), c["users"][0].update(uid=2044)))
    assert edited.preview()["effects"]["worst"] == "refused"
    refused = edited.hpc("up", check=False)
    assert refused.returncode == 1
    assert "users.alice.uid: 2001 -> 2044" in refused.stderr
    assert "image.base: debian-13 -> debian-12" in refused.stderr
    assert "Updating" not in refused.stdout
    edited.revert(before)
    assert "Nothing to do" in edited.up()
    assert edited.state(long) == "RUNNING"


def until_drained(node: str) -> str:
    """A script that ends soon after its node was drained, and with ten minutes at the latest."""
    return f"for i in $(seq 1200); do sinfo -h -n {node} -o %T | grep -q drain && break; sleep 0.5; done; sleep 4"


def up_and_right(cluster: Cluster, long: str, look: str, found: str) -> dict[str, Any]:
    """Bring the edit about, see that `look` prints what it should, and that the cluster runs with just what the stack
    says while the long job runs on. The run, as programs read it."""
    done = json.loads(cluster.hpc("up", "--json").stdout)
    script = f"{look}\n{MARK}\nsqueue -h -j {long} -o %T; cat /etc/hpc/config-hash\n{MARK}\n{RENDERED}\n{MARK}\n{SHOWN}"
    looked, told, rendered, shown = cluster.inside("controller", script).split("-----\n")
    assert found in looked
    assert told.split() == ["RUNNING", done["outputs"]["config_hash"]]
    assert differing(rendered, shown) == {}
    return done


def differing(rendered: str, shown: str) -> dict[str, str]:
    """Settings of slurm.conf that slurmctld runs without, of those that it shows, with what it has in their place."""
    runs = {
        name.strip().lower().removesuffix("[0]"): value
        for name, _, value in (line.partition("=") for line in shown.splitlines())
    }
    wanted = {name.lower(): value for name, _, value in (line.partition("=") for line in rendered.splitlines())}
    assert len(wanted.keys() & runs.keys()) > 40
    # slurmctld adds what a value implies: PrologFlags=Contain is Alloc,Contain.
    return {name: runs[name] for name in wanted.keys() & runs.keys() if not words(wanted[name]) <= words(runs[name])}


def words(value: str) -> set[str]:
    """A value as slurm.conf and scontrol both mean it: `30 sec` is 30, `7-0` is 7-00:00:00, slurm(64030) is slurm."""
    plain = re.sub(r"(?<=[a-z])\(\d+\)$| sec$", "", value.strip().lower())
    return set(re.sub(r"^(\d+)-0$", r"\1-00:00:00", plain).split(","))
