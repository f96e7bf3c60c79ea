"""A machine of a rehearsal that is started as one on Google Cloud is: nothing is on it but what the image brings, and
the start-up script that its metadata has."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.gcp.boot import HOST_KEY, archive, startup_script
from components.local.host import machine
from components.local.host.layer import File
from lab.google.metadata import ADDRESS, FakeGoogle, Listener
from lab.machines import first_process, inside
from tests.e2e.cluster import PATIENCE, Cluster, eventually

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
    """A node of a cluster that runs, in the place of the one that the rehearsal made."""

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
        self.tell()

    def tell(self, **changes: Any) -> None:
        """Give the instance its metadata, with changes of what `hpc-boot` says."""
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
        """Put an object into the bucket; how a machine is told of it."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.fake.objects[f"{BUCKET}/{sha256[:12]}/{name}"] = content
        return {"url": f"gs://{BUCKET}/{sha256[:12]}/{name}", "sha256": sha256}

    def make(self) -> None:
        """Make the machine anew, with the metadata that it has now."""
        machine.delete(self.design)
        machine.create(self.design)
        self.listen()

    def listen(self) -> None:
        """Have the metadata server in the machine's own network; anew after each boot, which makes another network."""
        self.close()
        subprocess.run(
            ["nsenter", f"--target={self.pid}", "--net", "ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"],
            check=True,
        )
        self._listener = self.fake.listen(ADDRESS, 80, namespace=Path(f"/proc/{self.pid}/ns/net"))

    def close(self) -> None:
        """Have it there no more."""
        if self._listener:
            self._listener.close()
            self._listener = None

    @property
    def pid(self) -> int:
        """The first process in the machine."""
        return first_process(self.design.paths)

    def inside(self, script: str, *, check: bool = True) -> str:
        """What a shell script prints that root runs in the machine; no login is needed for it."""
        return inside(self.design.paths, script, check=check)

    def state(self) -> str:
        """What the start-up script says of itself."""
        return self.inside(f"cat {STATE} 2>/dev/null || true")

    def says(self, words: str) -> None:
        """Wait until the start-up script's state has these words."""
        try:
            eventually(lambda: words in self.state(), what=f"`{words}` in the state")
        except AssertionError as late:
            raise AssertionError(f"{late}: it says\n{self.state()}\n{self.journal()}") from None

    def journal(self) -> str:
        """What start-up script and set-up wrote."""
        return self.inside(f"journalctl --no-pager -o cat -u {SERVICE} -u hpc-node -u hpc-watch -u hpc-install")

    def again(self) -> str:
        """What the start-up script says when it is run once more."""
        self.inside(f"systemctl restart {SERVICE}")
        return self.inside(f"journalctl --no-pager -o cat -u {SERVICE} -n 40 _TRANSPORT=stdout")

    def refresh(self) -> tuple[int, str]:
        """Exit code and words of the look for news."""
        # Not while the machine's own look, once a minute, is at it: this one would leave the news to that.
        said = self.inside("flock /run/hpc/start.lock true; /usr/local/lib/hpc/refresh 2>&1; echo $?")
        text, _, code = said.rpartition("\n") if "\n" in said else ("", "", said)
        return int(code), text

    def works(self) -> None:
        """Wait until a job runs on the node."""
        run = f"srun --immediate=10 -w {self.name} hostname"
        eventually(
            lambda: self.cluster.inside("controller", f"{run} 2>&1 || true").endswith(self.name),
            what=f"a job on {self.name}",
        )

    def joined(self) -> bool:
        """Whether slurmd was started."""
        return self.inside("systemctl is-active slurmd || true") == "active"

    def ssh(self, command: str) -> str:
        """What root's login prints, by the stack's key and the pinned host key."""
        known = self.login.with_name("known")
        known.write_text(f"{self.address} {self.host_key.with_suffix('.pub').read_text()}")
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", "IdentitiesOnly=yes"]
        flags = [word for option in options for word in ("-o", option)]
        ssh = ["ssh", "-F", "none", "-i", str(self.login), *flags, f"root@{self.address}", command]
        done = subprocess.run(ssh, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return (done.stdout + done.stderr).strip()
