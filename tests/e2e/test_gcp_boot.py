"""A machine that Google Cloud would start becomes a member of the cluster by its start-up script. A stand-in of the
metadata server, Secret Manager and the bucket speaks Google's protocol, and has faults."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slurm import nodes
from slurm.output import MAINTENANCE, PREEMPTED

from components.gcp.boot import HOST_KEY, archive, startup_script
from components.local.host import machine
from components.local.host.layer import File
from components.local.host.namespaces import first_process, inside
from tests.e2e.cluster import PATIENCE, Cluster, eventually
from tests.lab.google.metadata import ADDRESS, FakeGoogle, Listener

SECRETS = "projects/rehearsal/secrets"
MUNGE, LOGIN_KEY = f"{SECRETS}/munge/versions/1", f"{SECRETS}/host-key/versions/1"
BUCKET = "rehearsal-setup"
STATE = "/var/lib/hpc/boot/state"

# As Google's guest environment has it: fetches the start-up script from the metadata server and runs it, at every boot.
RUNNER = f"""\
import os, time, urllib.request
url = "http://{ADDRESS}/computeMetadata/v1/instance/attributes/startup-script"
while True:
    try:
        asked = urllib.request.Request(url, headers={{"Metadata-Flavor": "Google"}})
        text = urllib.request.urlopen(asked, timeout=2).read()
        break
    except OSError:
        time.sleep(0.2)
with open("/tmp/startup-script", "wb") as file:
    file.write(text)
os.chmod("/tmp/startup-script", 0o700)
os.execv("/tmp/startup-script", ["/tmp/startup-script"])
"""
UNIT = """\
[Unit]
Description=Google Compute Engine Startup Scripts
After=network.target
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /usr/lib/metadata_script_runner.py
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
"""
SERVICE = "google-startup-scripts.service"
FILES = {
    "/usr/lib/metadata_script_runner.py": File(content=RUNNER),
    f"/etc/systemd/system/{SERVICE}": File(content=UNIT),
    f"/etc/systemd/system/multi-user.target.wants/{SERVICE}": File(link=f"/etc/systemd/system/{SERVICE}"),
}


class CloudNode:
    """A node in place of one of a rehearsal, with only the image's files and the start-up script of its metadata."""

    def __init__(self, cluster: Cluster, name: str, folder: Path) -> None:
        self.cluster, self.name, self.fake = cluster, f"{cluster.name}-{name}", FakeGoogle()
        bare = machine.bare(cluster.root, cluster.name, self.name)
        record = json.loads(bare.paths.record.read_text())
        images = Path(cluster.env["HPC_LOCAL_IMAGES"])
        self.design = replace(
            bare, images=images, address=record["address"], prefix=22, image=record["image"], files=FILES
        )
        self.address = record["address"]
        self.node = json.loads(cluster.inside(name, "cat /etc/hpc/node.json"))
        self.munge = cluster.inside("controller", "cat /etc/hpc/munge.key").encode() + b"\n"
        self.login = folder / "admin"
        self.host_key = folder / "host"
        for key in (self.login, self.host_key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self._listener: Listener | None = None
        self.secrets = {HOST_KEY: LOGIN_KEY, "/etc/hpc/munge.key": MUNGE}
        self.fake.secrets = {MUNGE: self.munge, LOGIN_KEY: self.host_key.read_bytes()}
        self.fake.attributes = {"startup-script": startup_script()}
        self.set_metadata()

    def set_metadata(self, **changes: Any) -> None:
        """Set the instance's metadata, with changes of `hpc-boot`."""
        boot = {
            "cluster": self.cluster.name,
            "roles": ["node"],
            "install": None,
            "secrets": self.secrets,
            "setup": self.store("setup.json", archive()[0]),
            "node": self.node,
            "files": {
                "/root/.ssh/authorized_keys": {"content": self.login.with_suffix(".pub").read_text(), "mode": "0600"}
            },
            "endpoints": dict.fromkeys(("secretmanager", "storage"), f"http://{ADDRESS}"),
        }
        self.fake.attributes["hpc-boot"] = json.dumps({**boot, **changes})

    def store(self, name: str, content: bytes) -> dict[str, str]:
        """Put an object into the bucket, and return its description for `hpc-boot`."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.fake.objects[f"{BUCKET}/{sha256[:12]}/{name}"] = content
        return {"url": f"gs://{BUCKET}/{sha256[:12]}/{name}", "sha256": sha256}

    def recreate(self) -> None:
        """Recreate the machine with its present metadata."""
        machine.delete(self.design)
        machine.create(self.design)
        self.start_metadata_server()

    def start_metadata_server(self) -> None:
        """Start the metadata server in the machine's network namespace, which each boot creates again."""
        self.close()
        subprocess.run(
            ["nsenter", f"--target={self.pid}", "--net", "ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"],
            check=True,
        )
        self._listener = self.fake.listen(ADDRESS, 80, namespace=Path(f"/proc/{self.pid}/ns/net"))

    def close(self) -> None:
        """Stop the metadata server."""
        if self._listener:
            self._listener.close()
            self._listener = None

    @property
    def pid(self) -> int:
        """The first process in the machine."""
        return first_process(self.design.paths)

    def inside(self, script: str, *, check: bool = True) -> str:
        """Return what a shell script of root prints in the machine, without a login."""
        return inside(self.design.paths, script, check=check)

    def state(self) -> str:
        """Return the state that the start-up script reports."""
        return self.inside(f"cat {STATE} 2>/dev/null || true")

    def wait_for_state(self, words: str) -> None:
        """Wait until the start-up script's state contains a text."""
        try:
            eventually(lambda: words in self.state(), what=f"`{words}` in the state")
        except AssertionError as late:
            raise AssertionError(f"{late}: it says\n{self.state()}\n{self.journal()}") from None

    def journal(self) -> str:
        """Return the log of start-up script and set-up."""
        return self.inside(f"journalctl --no-pager -o cat -u {SERVICE} -u hpc-node -u hpc-watch -u hpc-install")

    def run_startup_script(self) -> None:
        """Run the start-up script again."""
        self.inside(f"systemctl restart {SERVICE}")

    def output(self) -> list[str]:
        """Return the lines of the start-up script's last run, as far as journald has read them."""
        run = f"_SYSTEMD_INVOCATION_ID=$(systemctl show --property=InvocationID --value {SERVICE})"
        return self.inside(f"journalctl --no-pager -o cat _TRANSPORT=stdout {run}").splitlines()

    def refresh(self) -> tuple[int, str]:
        """Run `refresh`, and return its exit code and output."""
        # The lock waits for the machine's own run, once a minute, which would apply the changes first.
        said = self.inside("flock /run/hpc/start.lock true; /usr/local/lib/hpc/refresh 2>&1; echo $?")
        text, _, code = said.rpartition("\n") if "\n" in said else ("", "", said)
        return int(code), text

    def wait_for_job(self) -> None:
        """Wait until a job runs on the node.

        Slurm may give a job to the machine that was there before, as long as it has not missed it: that job's launch is
        lost, and srun waits for it.
        """
        run = f"timeout 60 srun --immediate=10 -w {self.name} hostname"
        eventually(
            lambda: self.cluster.inside("controller", f"{run} 2>&1 || true").endswith(self.name),
            what=f"a job on {self.name}",
        )

    def is_joined(self) -> bool:
        """Return whether slurmd was started."""
        return self.inside("systemctl is-active slurmd || true") == "active"

    def ssh(self, command: str) -> str:
        """Return what a command prints in a login of root with the stack's key and the pinned host key."""
        known = self.login.with_name("known")
        known.write_text(f"{self.address} {self.host_key.with_suffix('.pub').read_text()}")
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", "IdentitiesOnly=yes"]
        flags = [word for option in options for word in ("-o", option)]
        ssh = ["ssh", "-F", "none", "-i", str(self.login), *flags, f"root@{self.address}", command]
        done = subprocess.run(ssh, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return (done.stdout + done.stderr).strip()


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
        node.recreate()
    node.fake.flavor, node.fake.refused = "Google", set()
    node.set_metadata()
    node.run_startup_script()
    node.wait_for_job()
    return node


class TestFirstBoot:
    """From the start-up script to a job."""

    def test_a_machine_joins_once_it_gets_what_was_missing(self, node: CloudNode):
        google = node.fake
        google.slow, google.overloaded = 0.2, 2
        google.refused = {MUNGE}
        payload = google.secrets.pop(MUNGE)
        node.set_metadata(install=node.store("install.sh", INSTALL))
        node.recreate()

        # Its key is refused: it says whose account lacks what, and lets root in to see.
        node.wait_for_state("may not read projects/rehearsal/secrets/munge")
        assert f"service account {google.account} " in node.state()
        assert "roles/secretmanager.secretAccessor" in node.state()
        eventually(lambda: google.guest.get("hpc/boot") == node.state(), what="the same state where it can be read")
        assert node.ssh("hostname") == node.name
        assert "WARNING: every user of this machine can reach the metadata server" in node.journal()

        google.refused = set()
        node.wait_for_state("is not there yet (404 NOT_FOUND")
        google.secrets[MUNGE] = payload

        eventually(lambda: "installing: running 10-tools" in node.journal(), what="the installation")
        assert not node.is_joined()
        assert node.inside("ls /etc/systemd/system/hpc-node.service 2>&1 || true").endswith("No such file or directory")
        node.inside("systemctl kill --signal=KILL hpc-install")
        node.wait_for_state("the installation was ended while it was running 10-tools")
        node.inside("touch /tmp/go")
        node.wait_for_state("the installation failed 10-tools; /var/log/hpc-install.log ends:\nno such package")
        node.inside("touch /tmp/mended; systemctl restart hpc-install")
        node.wait_for_state("done")
        node.wait_for_job()

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
        member.run_startup_script()
        eventually(lambda: member.output()[-1:] == ["nothing to change"], what="a run that changes nothing")
        assert member.refresh() == (0, "")
        assert not any("secrets" in path or "storage" in path for path in member.fake.asked)
        assert member.inside("systemctl show -p MainPID slurmd") == slurmd

    def test_a_reboot_joins_again_and_needs_no_secret_manager(self, member: CloudNode):
        before = member.pid
        boot = member.cluster.inside("controller", f"cat /opt/apps/adm/hpc/nodes/{member.name}.json")
        member.fake.refused = set(member.secrets.values())
        member.inside("systemctl reboot")
        eventually(lambda: _rebooted(member, before), what="the reboot")
        member.start_metadata_server()
        report = f"cat /opt/apps/adm/hpc/nodes/{member.name}.json"
        eventually(lambda: member.cluster.inside("controller", report) != boot, what="a new report")
        member.wait_for_job()
        member.wait_for_state("done")


class TestNews:
    """What the stack tells a machine that runs is taken over, without a boot, if it can be believed."""

    @pytest.fixture(autouse=True)
    def unwatched(self, member: CloudNode) -> None:
        """For a minute the machine does not look for news by itself, which would be gone for the test."""
        member.inside("flock /run/hpc/start.lock systemctl restart hpc-watch")

    def test_a_new_set_up_is_taken_over(self, member: CloudNode):
        files = json.loads(archive()[0])
        files["quick_acks.sh"].append("# newer")
        member.set_metadata(setup=member.store("setup.json", json.dumps(files).encode()))
        code, said = member.refresh()
        assert (code, "wrote /usr/local/lib/hpc/node/quick_acks.sh" in said) == (10, True)
        assert member.inside("tail -n 1 /usr/local/lib/hpc/node/quick_acks.sh") == "# newer"

    def test_a_set_up_with_another_hash_is_refused(self, member: CloudNode):
        other = {**member.store("setup.json", b"{}"), "sha256": "0" * 64}
        member.set_metadata(setup=other)
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
        assert member.is_joined()

    def test_a_refused_version_of_a_secret_keeps_the_machine_running(self, member: CloudNode):
        newer = f"{SECRETS}/munge/versions/2"
        member.fake.secrets[newer], member.fake.refused = member.munge, {newer}
        member.set_metadata(secrets={**member.secrets, "/etc/hpc/munge.key": newer})
        code, said = member.refresh()
        assert (code, f"service account {member.fake.account} may not read" in said) == (1, True)
        member.wait_for_job()
        member.fake.refused = set()
        assert member.refresh()[0] == 10

    def test_a_failed_mount_is_reported_with_its_server(self, member: CloudNode):
        server = member.node["mounts"][0]["source"].partition("@")[0]
        nowhere = {"source": f"{server}@tcp:/nowhere", "target": "/data", "fs_type": "lustre", "options": "_netdev"}
        files = json.loads(archive()[0])
        at = next(n for n, line in enumerate(files["system/mounts.py"]) if "seconds: float = 120" in line)
        files["system/mounts.py"][at] = files["system/mounts.py"][at].replace("120", "1")
        node = {**member.node, "mounts": [*member.node["mounts"], nowhere]}
        member.set_metadata(setup=member.store("setup.json", json.dumps(files).encode()), node=node)
        member.run_startup_script()
        words = f"this cluster has no shared folder nowhere\n{server}:988 can't be reached"
        eventually(lambda: words in member.journal(), what="the mount's words")
        report = member.cluster.inside("controller", f"cat /opt/apps/adm/hpc/nodes/{member.name}.json")
        assert json.loads(report)["state"] == "failed"
        member.set_metadata()
        member.run_startup_script()
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


def _slurm(node: CloudNode) -> tuple[frozenset[str], str]:
    """States and reason of the node."""
    said = nodes.parse(node.cluster.inside("controller", f"scontrol --oneliner show node {node.name}"))[node.name]
    return said.states, said.reason


def _report(node: CloudNode) -> dict[str, str]:
    return json.loads(node.cluster.inside("controller", f"cat /opt/apps/adm/hpc/nodes/{node.name}.json"))


def _rebooted(node: CloudNode, before: int) -> bool:
    try:
        return node.pid != before and node.inside("systemctl is-active ssh", check=False) == "active"
    except (RuntimeError, IndexError):
        return False
