"""Containers in users' jobs: apptainer and podman run for real; enroot's settings, nvcrlogin and docker as users meet
them."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from components.local.host.paths import images_root
from scripts.hostfiles import locked
from tests.e2e.cluster import ROOT, Cluster, eventually

pytestmark = pytest.mark.e2e

HERE, GPU = "lab-cpu-7", "lab-gpu-0"
KEY = "nvapi-" + "Zz09" * 16
# What runs in a job sees: who it is, what it can open, and which cgroups confine it.
LOOK = """
import json, os
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno
    return 0
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "where": os.getcwd(), "home": "look.py" in os.listdir("/home/alice"),
    "gpus": [opens(f"/dev/nvidia{n}") for n in range(2)], "container": os.path.exists("/etc/in-a-container"),
    "cgroups": sorted(line.strip() for line in open("/proc/self/cgroup") if "/job_" in line),
}))
"""
# An image of Debian's own files: Python and a shell, as the machines have them.
IMAGE = r"""
set -e
packages='base-files bash coreutils dash libacl1 libattr1 libc6 libcap2 libexpat1 libgmp10 libpcre2-8-0 libselinux1
    libssl3t64 libtinfo6 zlib1g'
python=$(dpkg-query -Wf '${Package}\n' | grep -E '^(lib)?python3(\.[0-9]+)?-(minimal|stdlib)$')
mkdir rootfs
for package in $packages $python; do dpkg -L "$package"; done | sort -u | while read -r path; do
    [ -d "$path" ] && [ ! -L "$path" ] || echo "$path"
done | tar -cf - --ignore-failed-read -T - 2>/dev/null | tar -C rootfs -xf -
for name in bin lib lib64 sbin; do ln -sfn "usr/$name" "rootfs/$name"; done
mkdir -p rootfs/dev rootfs/etc rootfs/home rootfs/proc rootfs/run rootfs/sys rootfs/tmp rootfs/var/tmp
touch rootfs/etc/in-a-container
apptainer -q build --mksquashfs-args=-no-compression image.sif rootfs
"""
REGISTRY = """
import base64, http.server
class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sent = self.headers.get("Authorization", "")
        if sent.startswith("Basic "):
            print(base64.b64decode(sent[6:]).decode(), flush=True)
        token = self.path.startswith("/token")
        body = b'{"token": "x"}' if token else b""
        self.send_response(200 if token else 401)
        self.send_header("WWW-Authenticate", 'Bearer realm="http://nvcr.io/token",service="registry"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_HEAD = do_GET
http.server.ThreadingHTTPServer(("127.0.0.2", 80), Registry).serve_forever()
"""
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEVICE_DENIED, NO_SUCH_DEVICE, MISSING = 1, 6, 2
"""EPERM of the devices cgroup, ENXIO of a stand-in GPU that may be opened, ENOENT."""


@pytest.fixture(scope="module")
def shared(lab: Cluster) -> Path:
    """/opt/apps of the cluster, from this machine."""
    return lab.root / "stacks" / "lab" / "shared" / "opt-apps"


def debian_package(name: str, suite: str) -> Path:
    """The file of a package, without what it depends on: downloaded once and kept beside the base images."""
    folder = images_root().with_name("test-packages") / suite
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        found = sorted(folder.glob(f"{name}_*.deb"))
        if not found:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = _download(name, suite, Path(scratch))
                found = [made.rename(folder / made.name)]
    return found[-1]


def _download(name: str, suite: str, folder: Path) -> Path:
    """Download it. The host's own lists and packages are not touched."""
    (folder / "lists" / "partial").mkdir(parents=True)
    for empty in ("status", "empty"):
        (folder / empty).touch()
    (folder / "list").write_text(f"deb [signed-by={KEYS}] {_mirror()} {suite} main\n")
    options = {
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Etc::sourcelist": folder / "list",
        "Dir::Etc::sourceparts": folder / "empty",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    for command in (["update"], ["download", name]):
        subprocess.run(["apt-get", "-qq", *words, *command], cwd=folder, check=True, timeout=300)
    (found,) = folder.glob(f"{name}_*.deb")
    return found


def _mirror() -> str:
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return next(site for site in listed.stdout.split() if site.rstrip("/").endswith("/debian"))


@pytest.fixture(scope="module")
def apptainer(lab: Cluster, shared: Path) -> Iterator[None]:
    """Apptainer on two nodes and the login machine: Debian's own of the release that recipes have (1.4.5).

    Other machines have a device file of fuse from udev and a resolv.conf, which these need not have.
    """
    package = debian_package("apptainer", "sid")
    (shared / "apptainer.deb").write_bytes(package.read_bytes())
    install = "dpkg -i /opt/apps/apptainer.deb >/dev/null 2>&1; mknod -m 0666 /dev/fuse c 10 229"
    install += "; touch /etc/resolv.conf; apptainer --version"
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda machine: lab.inside(machine, install), (HERE, GPU, "lab-login-0")))
    assert set(found) == {f"apptainer version {package.name.split('_')[1].partition('-')[0]}"}
    yield
    (shared / "apptainer.deb").unlink()


@pytest.fixture(scope="module")
def image(lab: Cluster, shared: Path, apptainer: None) -> str:
    """An image that alice builds in a job, in a folder of hers."""
    del apptainer
    for name, text in {"build.sh": IMAGE, "look.py": LOOK}.items():
        (shared / name).write_text(text)
        (shared / name).chmod(0o755)
    lab.run("sh", "-c", "cp /opt/apps/look.py ~ && mkdir apptainer", user="alice")
    lab.run("srun", "-w", HERE, "-D", "/home/alice/apptainer", "bash", "/opt/apps/build.sh", user="alice")
    return "apptainer/image.sif"


def job(lab: Cluster, script: str, *options: str) -> str:
    """What a script prints that alice runs in a job, errors too."""
    return lab.run("srun", *options, "bash", "-c", f"exec 2>&1\n{script}", user="alice", check=False)


def both(printed: str) -> tuple[dict[str, object], dict[str, object]]:
    """What was seen outside of a container, and in it."""
    outside, inside = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    return outside, inside


def test_a_job_in_an_image_is_the_same_job(lab: Cluster, image: str):
    look = f"python3 look.py; apptainer -q exec --bind $PWD:$PWD {image} python3 look.py"
    outside, inside = both(job(lab, look, "-p", "gpu", "--gres=gpu:1"))
    assert inside == {**outside, "container": True}
    assert (inside["uid"], inside["gid"], inside["where"]) == (2001, 2001, "/home/alice")
    assert inside["home"]
    assert inside["gpus"] == [NO_SUCH_DEVICE, DEVICE_DENIED], "the one that was granted"
    assert inside["cgroups"]


def test_the_commands_of_the_guide(lab: Cluster, image: str):
    script = (
        f"#!/bin/bash\n#SBATCH -w {HERE} -o sbatch.log -e sbatch.log\n"
        f"apptainer exec --bind ${{PWD}}:${{PWD}} --nv {image} cat /etc/os-release\n"
    )
    printed = lab.run(
        "bash", "-c",
        f"cat >apptainer_exec.sh <<'END'\n{script}END\nsbatch --wait apptainer_exec.sh; cat sbatch.log\n"
        f"srun -w {HERE} apptainer exec --bind ${{PWD}}:${{PWD}} --nv {image} ls /home",
        user="alice",
    )  # fmt: skip
    assert "Debian GNU/Linux 13" in printed
    assert "alice" in printed.splitlines()[-1].split()


def test_nothing_is_left_of_a_job_that_was_cancelled(lab: Cluster, image: str):
    job_id = lab.run("sbatch", "--parsable", "-w", HERE, "--wrap", f"apptainer exec {image} sleep 1000", user="alice")
    see = "pgrep -u alice -a; grep -h fuse /proc/[0-9]*/mounts; find /tmp /var/tmp -user alice -name 'rootfs-*'"
    see = f"({see}) 2>/dev/null; true"
    try:
        # apptainer itself has the same words on its command line.
        eventually(lambda: lab.inside(HERE, "pgrep -u alice -x sleep; true") != "", what="a container that runs")
        assert "squashfuse" in lab.inside(HERE, see)
    finally:
        lab.run("scancel", job_id, user="alice")
    eventually(lambda: lab.inside(HERE, see) == "", what="a node without processes, mounts and files of it")


def test_the_epilog_removes_what_killed_programs_left(lab: Cluster, shared: Path):
    """As it is after SIGKILL of slurmstepd, or of apptainer where there is no squashfuse; `enroot` is a stand-in."""
    (shared / "epilog.sh").write_text((ROOT / "scripts/epilogs/containers.sh").read_text())
    left = "pyxis_7.0 pyxis_7.12 pyxis_77.0 pyxis_7.0x pyxis_mine"
    done = lab.inside(
        HERE,
        "mkdir -m 1777 /run/stand-in; cat >/usr/local/bin/enroot <<'END'\n#!/bin/sh\n"
        "case $1 in list) ls /run/stand-in ;; remove) rmdir /run/stand-in/$3 ;; esac\nEND\n"
        "chmod 755 /usr/local/bin/enroot; cd /run/stand-in\n"
        f"runuser -u alice -- sh -c 'mkdir {left} /tmp/rootfs-1 /tmp/rootfs-1/a; chmod 0 /tmp/rootfs-1/a'\n"
        "runuser -u bob -- mkdir /tmp/rootfs-2\n"
        "export SLURM_JOB_ID=7\n"
        "for uid in 2001 2001 9999; do SLURM_JOB_UID=$uid bash /opt/apps/epilog.sh || echo failed; done\n"
        "ls /run/stand-in; ls -d /tmp/rootfs-*; rm -r /run/stand-in /usr/local/bin/enroot /tmp/rootfs-2",
    )
    assert done.splitlines() == [
        "removed pyxis_7.0", "removed pyxis_7.12", "removed /tmp/rootfs-1",
        "pyxis_7.0x", "pyxis_77.0", "pyxis_mine", "/tmp/rootfs-2",  # noqa: S108 - on the node
    ]  # fmt: skip


def test_podman_runs_an_image_in_a_job_as_the_user(lab: Cluster, image: str):
    del image
    script = """
        # The machines' limit, not the cluster's: systemd-nspawn has no keyrings for containers in it.
        mkdir -p ~/.config/containers; printf "[containers]\nkeyring=false\n" >~/.config/containers/containers.conf
        tar -C apptainer/rootfs -cf - . | podman import -q - small >/dev/null
        python3 look.py
        podman run --rm --network none --userns=keep-id --device /dev/nvidia0 -v $HOME:$HOME -w $HOME small \\
            python3 look.py
    """
    outside, inside = both(job(lab, script, "-p", "gpu", "--gres=gpu:1"))
    assert inside == {**outside, "container": True, "gpus": [NO_SUCH_DEVICE, MISSING]}


def test_docker_is_kept_out_of_jobs(lab: Cluster):
    bind = "import socket; socket.socket(socket.AF_UNIX).bind('/run/docker.sock')"
    lab.inside(
        HERE,
        f'groupadd --system -f docker; python3 -c "{bind}"; chgrp docker /run/docker.sock; chmod 660 /run/docker.sock',
    )
    connect = "import socket; print('errno', socket.socket(socket.AF_UNIX).connect_ex('/run/docker.sock'))"
    printed = job(lab, f'docker ps; echo code $?; python3 -c "{connect}"', "-w", HERE)
    assert "srun --container-image=ubuntu:24.04 COMMAND" in printed
    assert "code 1\n" in printed
    assert "errno 13" in printed
    # Prologs have the real one, which finds nobody at the socket here.
    assert "Cannot connect to the Docker daemon" in lab.inside(HERE, "docker ps 2>&1 || rm /run/docker.sock")


def test_enroots_paths_exist_before_a_job_and_are_the_users_own(lab: Cluster):
    """The settings of the image and of the set-up, as enroot 3.5.0 reads them and makes its folders, in a job."""
    ssd = (ROOT / "scripts/image/storage/50-localssd.sh").read_text().split("<<'CONF'\n")[1].split("CONF\n")[0]
    folder, plain = "/etc/enroot/enroot.conf.d", "lab-cpu-6"
    # Bob was first, and left a folder in alice's name.
    lab.inside(
        HERE,
        f"mkdir -p {folder} /mnt/localssd; mount -t tmpfs -o mode=1777 ssd /mnt/localssd\n"
        f"cat >{folder}/50-localssd.conf <<'END'\n{ssd}END\n"
        "runuser -u bob -- mkdir -m 0777 /mnt/localssd/2001\nsystemctl restart hpc-node",
    )
    lab.inside(plain, f"mkdir -p {folder}; systemctl restart hpc-node")
    read = f"""
        cd {folder}
        for file in *.conf; do while read -r key value; do
            [[ $key == ENROOT_* ]] && export "$key=${{!key:-$(eval echo "$value")}}"
        done <$file; done
        umask 077
        mkdir -p "$ENROOT_RUNTIME_PATH" "${{ENROOT_CACHE_PATH:-$HOME/c}}" "${{ENROOT_DATA_PATH:-$HOME/d}}"
        rmdir "$(mktemp -d -p "$ENROOT_TEMP_PATH")"
        env | grep ^ENROOT_ | sort; stat -c %n:%U:%a ${{ENROOT_RUNTIME_PATH%/2001*}}/2001
    """

    def settings(node: str) -> list[str]:
        # As a login leaves it: nodes do not have that folder.
        return job(lab, read, "-w", node, "--export=ALL,XDG_RUNTIME_DIR=/run/user/2001").split()

    assert settings(HERE) == [
        "ENROOT_CACHE_PATH=/mnt/localssd/2001/enroot/cache", "ENROOT_DATA_PATH=/mnt/localssd/2001/enroot/data",
        "ENROOT_ROOTFS_WRITABLE=yes", "ENROOT_RUNTIME_PATH=/mnt/localssd/2001/enroot/runtime",
        "ENROOT_TEMP_PATH=/mnt/localssd/2001/enroot", "/mnt/localssd/2001:alice:700",
    ]  # fmt: skip
    assert settings(plain) == [
        "ENROOT_CACHE_PATH=/var/cache/enroot/2001", "ENROOT_ROOTFS_WRITABLE=yes",
        "ENROOT_RUNTIME_PATH=/run/enroot/2001", "ENROOT_TEMP_PATH=/var/tmp", "/run/enroot/2001:alice:700",
    ]  # fmt: skip
    for node in (HERE, plain):
        lab.inside(node, "rm -r /etc/enroot; umount /mnt/localssd 2>/dev/null || :")


def test_a_stored_key_is_the_users_alone_and_apptainer_sends_it(lab: Cluster, shared: Path, apptainer: None):
    """To a stand-in for NGC's registry on the login machine, which asks for a login and records what it is sent."""
    del apptainer
    (shared / "registry.py").write_text(REGISTRY)
    started = lab.inside(
        "lab-login-0",
        "echo 127.0.0.2 nvcr.io >/run/hosts; mount --bind /run/hosts /etc/hosts\n"
        "python3 /opt/apps/registry.py >/tmp/asked 2>&1 & echo $!\n"
        "until ss --listening --numeric --tcp | grep -q 127.0.0.2:80; do sleep 0.1; done",
    )
    pull = "apptainer pull --no-https docker://nvcr.io/nvidia/cuda 2>&1"
    script = f"echo {KEY} | nvcrlogin && nvcrlogin --check; {pull}"
    printed = lab.run("sh", "-c", script, user="alice", check=False)
    assert "a key of NGC is stored in /home/alice/.config/enroot/.credentials" in printed
    assert KEY not in printed
    sent = lab.inside("lab-login-0", f"kill {started}; cat /tmp/asked; umount /etc/hosts; rm /tmp/asked /run/hosts")
    assert f"$oauthtoken:{KEY}" in sent.splitlines()
    files = (".config/enroot/.credentials", ".apptainer/docker-config.json")
    assert lab.run("stat", "-c", "%U:%a", *files, user="alice").split() == ["alice:600"] * 2
    for file in files:
        assert lab.run("cat", f"/home/alice/{file}", user="bob", check=False) == ""
    removed = lab.run("sh", "-c", "nvcrlogin --remove; nvcrlogin --check", user="alice", check=False)
    assert removed.splitlines()[-1] == "no key of NGC is stored: run nvcrlogin"
