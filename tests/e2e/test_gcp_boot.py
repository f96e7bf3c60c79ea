"""A machine that Google Cloud would start becomes a member of the cluster by itself, from its start-up script on:
against a metadata server, a Secret Manager and a bucket that speak Google's protocol, and misbehave."""

import base64
import json
import time
from collections.abc import Callable, Iterator

import pytest
from slurm.output import MAINTENANCE, PREEMPTED
from slurm.scheduler import parse_nodes

from components.gcp.boot import archive
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.googled import MUNGE, SECRETS, CloudNode

pytestmark = pytest.mark.e2e

INSTALL = b"""#!/bin/sh
echo 'running 10-tools' > /var/lib/hpc/install/state
while [ ! -e /tmp/go ]; do sleep 0.1; done
if [ ! -e /tmp/mended ]; then
    echo 'no such package' > /var/log/hpc-install.log
    echo 'failed 10-tools' > /var/lib/hpc/install/state
    exit 1
fi
echo 'done' > /var/lib/hpc/install/state
"""


@pytest.fixture(scope="module")
def node(bring_up: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudNode]:
    """The one node of a cluster, made anew without any file but those of the image."""
    cluster = bring_up(
        "cloud", login={"on": "controller"}, nodesets={"cpu": {"count": 1}}, users=[{"name": "carol", "uid": 2001}]
    )
    made = CloudNode(cluster, "cpu-0", tmp_path_factory.mktemp("cloud-node"))
    yield made
    made.close()


@pytest.fixture
def member(node: CloudNode) -> CloudNode:
    """The node as a member of its cluster, with nothing wrong about Google."""
    if not node.fake.asked:
        node.make()
    node.fake.flavor, node.fake.refused = "Google", set()
    node.tell()
    node.again()
    node.works()
    return node


class TestFirstBoot:
    """From the start-up script to a job."""

    def test_a_machine_joins_once_it_gets_what_was_missing(self, node: CloudNode):
        google = node.fake
        google.slow, google.overloaded = 0.2, 2
        google.refused = {MUNGE}
        payload = google.secrets.pop(MUNGE)
        node.tell(install=node.store("install.sh", INSTALL))
        node.make()

        # Its key is refused: it says whose account lacks what, and lets root in to see.
        node.says("may not read projects/rehearsal/secrets/munge")
        assert f"service account {google.account} " in node.state()
        assert "roles/secretmanager.secretAccessor" in node.state()
        eventually(lambda: google.guest.get("hpc/boot") == node.state(), what="the same state where it can be read")
        assert node.ssh("hostname") == node.name
        assert "WARNING: every user of this machine can reach the metadata server" in node.journal()

        google.refused = set()
        node.says("is not there yet (404 NOT_FOUND")
        google.secrets[MUNGE] = payload

        eventually(lambda: "installing: running 10-tools" in node.journal(), what="the installation")
        assert not node.joined()
        assert node.inside("ls /etc/systemd/system/hpc-node.service 2>&1 || true").endswith("No such file or directory")
        node.inside("systemctl kill --signal=KILL hpc-install")
        node.says("the installation was ended while it was running 10-tools")
        node.inside("touch /tmp/go")
        node.says("the installation failed 10-tools; /var/log/hpc-install.log ends:\nno such package")
        node.inside("touch /tmp/mended; systemctl restart hpc-install")
        node.says("done")
        node.works()

    def test_only_root_can_read_secrets(self, member: CloudNode):
        assert member.inside("stat -c '%a %U' /etc/hpc/munge.key /etc/ssh/hpc_host_key").split("\n") == ["600 root"] * 2
        words = [member.munge.decode().strip(), base64.b64encode(member.munge).decode()]
        told = member.journal() + json.dumps(member.fake.attributes) + member.design.paths.console.read_text()
        assert not any(word in told for word in words)
        assert member.inside("grep -rlF ya29. /var/lib/hpc /etc/hpc /run/hpc /var/log /tmp 2>/dev/null || true") == ""


class TestLaterBoots:
    def test_a_second_run_changes_nothing(self, member: CloudNode):
        slurmd = member.inside("systemctl show -p MainPID slurmd")
        del member.fake.asked[:]
        assert member.again().splitlines()[-1] == "nothing to change"
        assert member.refresh() == (0, "")
        assert not any("secrets" in path or "storage" in path for path in member.fake.asked)
        assert member.inside("systemctl show -p MainPID slurmd") == slurmd

    def test_a_reboot_joins_again_and_needs_no_secret_manager(self, member: CloudNode):
        before = member.pid
        boot = member.cluster.inside("controller", f"cat /opt/apps/adm/hpc/nodes/{member.name}.json")
        member.fake.refused = set(member.secrets.values())
        member.inside("systemctl reboot")
        eventually(lambda: _rebooted(member, before), what="the reboot")
        member.listen()
        report = f"cat /opt/apps/adm/hpc/nodes/{member.name}.json"
        eventually(lambda: member.cluster.inside("controller", report) != boot, what="a new report")
        member.works()
        member.says("done")


class TestNews:
    """What the stack tells a machine that runs is taken over, without a boot, if it can be believed."""

    @pytest.fixture(autouse=True)
    def unwatched(self, member: CloudNode) -> None:
        """For a minute the machine does not look for news by itself, which would be gone for the test."""
        member.inside("flock /run/hpc/start.lock systemctl restart hpc-watch")

    def test_a_new_set_up_is_taken_over(self, member: CloudNode):
        files = json.loads(archive()[0])
        files["quick_acks.sh"].append("# newer")
        member.tell(setup=member.store("setup.json", json.dumps(files).encode()))
        code, said = member.refresh()
        assert (code, "wrote /usr/local/lib/hpc/node/quick_acks.sh" in said) == (10, True)
        assert member.inside("tail -n 1 /usr/local/lib/hpc/node/quick_acks.sh") == "# newer"

    def test_a_set_up_with_another_hash_is_refused(self, member: CloudNode):
        other = {**member.store("setup.json", b"{}"), "sha256": "0" * 64}
        member.tell(setup=other)
        code, said = member.refresh()
        assert (code, "is not what the stack put there, and is not used" in said) == (1, True)
        assert member.inside("find /usr/local/lib/hpc/node -type f ! -name '*.pyc' | wc -l") == str(
            len(json.loads(archive()[0]))
        )

    def test_another_server_at_the_metadata_address_is_refused(self, member: CloudNode):
        member.fake.flavor = None
        member.fake.attributes["hpc-boot"] = "{}"
        code, said = member.refresh()
        assert (code, "answers without `Metadata-Flavor: Google`" in said) == (1, True)
        assert member.joined()

    def test_a_refused_version_of_a_secret_keeps_the_machine_running(self, member: CloudNode):
        newer = f"{SECRETS}/munge/versions/2"
        member.fake.secrets[newer], member.fake.refused = member.munge, {newer}
        member.tell(secrets={**member.secrets, "/etc/hpc/munge.key": newer})
        code, said = member.refresh()
        assert (code, f"service account {member.fake.account} may not read" in said) == (1, True)
        member.works()
        member.fake.refused = set()
        assert member.refresh()[0] == 10

    def test_a_failed_mount_is_reported_with_its_server(self, member: CloudNode):
        server = member.node["mounts"][0]["source"].partition("@")[0]
        nowhere = {"source": f"{server}@tcp:/nowhere", "target": "/data", "fs_type": "lustre", "options": "_netdev"}
        files = json.loads(archive()[0])
        at = next(n for n, line in enumerate(files["system/mounts.py"]) if "seconds: float = 120" in line)
        files["system/mounts.py"][at] = files["system/mounts.py"][at].replace("120", "1")
        node = {**member.node, "mounts": [*member.node["mounts"], nowhere]}
        member.tell(setup=member.store("setup.json", json.dumps(files).encode()), node=node)
        member.again()
        words = f"this cluster has no shared folder nowhere\n{server}:988 can't be reached"
        eventually(lambda: words in member.journal(), what="the mount's words")
        report = member.cluster.inside("controller", f"cat /opt/apps/adm/hpc/nodes/{member.name}.json")
        assert json.loads(report)["state"] == "failed"
        member.tell()
        member.again()
        eventually(lambda: _report(member)["state"] == "configured", what="the node's joining again")


class TestHost:
    """What Google Cloud is about to do to the node's host."""

    def test_a_preempted_machine_requeues_its_job(self, member: CloudNode):
        cluster, saved = member.cluster, "/home/carol/saved"
        script = f"trap 'echo $SLURM_RESTART_COUNT- >>{saved}; exit 1' TERM; touch {saved}; sleep infinity & wait"
        job = cluster.job(script, user="carol")
        eventually(lambda: member.inside(f"ls {saved} 2>&1; true") == saved, what="its script's start")
        member.fake.host["preempted"] = "TRUE"
        eventually(lambda: _slurm(member)[0] >= {"DOWN", "DRAIN"}, what="the node's being down")
        assert _slurm(member)[1] == PREEMPTED
        eventually(lambda: cluster.state(job) == "PENDING", what="the job's return to the queue")
        # It had SIGTERM, and was not its own end: it is in the queue again, although its script failed.
        assert member.inside(f"cat {saved}") == "-"
        # It may begin again after a minute.
        cluster.run("scancel", job, user="carol")

        member.fake.host["preempted"] = "FALSE"
        member.inside("systemctl restart hpc-host-events")  # as its next boot does
        eventually(lambda: _slurm(member)[0] == {"IDLE"}, what="the node's return")

    def test_a_maintenance_of_its_host_drains_it_and_its_job_runs_on(self, member: CloudNode):
        job = member.cluster.job("sleep infinity", user="carol")
        member.fake.host["maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
        eventually(lambda: _slurm(member)[1] == MAINTENANCE, what="the drain")
        assert member.cluster.state(job) == "RUNNING"
        member.fake.host["maintenance-event"] = "NONE"
        eventually(lambda: "DRAIN" not in _slurm(member)[0], what="the node's return")
        member.cluster.run("scancel", job, user="carol")

    def test_a_window_of_maintenance_is_a_reservation(self, member: CloudNode):
        def reservations() -> str:
            return member.cluster.inside("controller", "scontrol --oneliner show reservation")

        day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * 86400))
        window = {"windowStartTime": f"{day}T12:00:00Z", "windowEndTime": f"{day}T16:00:00Z"}
        member.fake.host["upcoming-maintenance"] = window
        eventually(lambda: f"ReservationName=hpc-maintenance-{member.name} " in reservations(), what="the reservation")
        assert "Duration=04:00:00" in reservations()
        del member.fake.host["upcoming-maintenance"]
        eventually(lambda: "hpc-maintenance" not in reservations(), what="the reservation's end")


def _slurm(node: CloudNode) -> tuple[set[str], str]:
    """States and reason of the node."""
    said = parse_nodes(node.cluster.inside("controller", f"scontrol --oneliner show node {node.name}"))[node.name]
    return said["states"], said["reason"]


def _report(node: CloudNode) -> dict[str, str]:
    return json.loads(node.cluster.inside("controller", f"cat /opt/apps/adm/hpc/nodes/{node.name}.json"))


def _rebooted(node: CloudNode, before: int) -> bool:
    try:
        return node.pid != before and node.inside("systemctl is-active ssh", check=False) == "active"
    except (RuntimeError, IndexError):
        return False
