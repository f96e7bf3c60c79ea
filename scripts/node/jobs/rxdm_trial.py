"""A run of the rxdm prolog as if on an A3 Mega node with Ubuntu 22.04: what it does, not what its text looks like.

It runs in namespaces and a root folder of its own: this machine's programs, which it can't change, stand-ins for those
that an A3 Mega node has (stand_ins.sh), no network, and nothing else of this machine.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from jobs.os_check import SYSTEMS

STAND_INS = Path(__file__).parents[1] / "stand_ins.sh"
SECONDS = 60
"""Enough for a prolog that waits for nothing; one polls every 2 s for a manager, which answers at once here."""
PROFILE = "/var/lib/tcpxo/lib64/nccl-env-profile.sh"
"""NCCL's profile on a node: jobs read it, the plugin's installer writes it, the prolog adds to it."""
DEVICES = "/dev/aperture_devices"
"""What the profile must name as NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY, without which jobs fall back to plain TCP."""

# $1 is an empty folder, $2 holds `prolog`, `os-release` and `stand-ins`; $3 is DEVICES, $4 PROFILE. What is mounted
# ends with the mount namespace, and what was started with the process namespace.
_RUN = r"""
set -eu
root=$1
mount -t tmpfs -o size=32m,mode=755 tmpfs "$root"
cd "$root"
mkdir -p dev etc host proc root run tmp trial usr/bin usr/local/sbin usr/sbin var/lib var/log var/tmp
mount --bind /usr host && mount -o remount,bind,ro host
for path in /usr/*; do
    name=${path##*/}
    [ -e "usr/$name" ] || ln -s "/host/$name" "usr/$name"
done
for name in bin sbin; do
    (cd "host/$name" && printf "/host/$name/%s\\0" *) | xargs -0 ln -s -t "usr/$name"
done
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then ln -s "usr/$name" "$name"; fi
done
mkdir etc/alternatives && mount --bind /etc/alternatives etc/alternatives
mount -o remount,bind,ro etc/alternatives
cp /etc/passwd /etc/group etc/
cp "$2/os-release" etc/os-release
cp "$2/prolog" trial/prolog
for name in curl docker gcloud lsb_release modprobe nvidia-smi; do
    rm -f "usr/bin/$name" "usr/sbin/$name"
    install -m 0755 "$2/stand-ins" "usr/bin/$name"
done
for name in null zero urandom; do : >"dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
mount -t proc proc proc
ln -s /proc/self/fd dev/fd
code=0
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
    SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2 SLURM_JOB_PARTITION=trial SLURM_JOB_USER=root SLURM_JOB_UID=0 \
    SLURM_SCRIPT_CONTEXT=prolog_slurmd SLURMD_NODENAME=trial-0 \
    chroot . /bin/bash /trial/prolog </dev/null >said 2>&1 || code=$?
if [ "$code" != 0 ]; then
    echo "it ends with exit code $code"
    tail -n 5 said
elif ! chroot . /bin/bash -c '. "$1" &&
        [ "${NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY-}" = "$2" ]' trial "$4" "$3" 2>/dev/null; then
    echo "it leaves NCCL's profile without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=$3"
elif [ -z "$(ls run/hpc-stand-ins 2>/dev/null)" ] && ! ls run/hpc-rxdm-*.pid >/dev/null 2>&1; then
    echo "it starts no receive data path manager"
fi
"""


def wrong(text: str) -> str:
    """What is wrong with a prolog, as a run of it for a job on two nodes shows; nothing if it does its work."""
    with tempfile.TemporaryDirectory(prefix="hpc-trial-") as folder:
        given, root = Path(folder) / "given", Path(folder) / "root"
        for made in (given, root):
            made.mkdir()
        (given / "prolog").write_bytes(text.encode(errors="surrogateescape"))
        (given / "os-release").write_text(SYSTEMS["Ubuntu 22.04"][1])
        (given / "stand-ins").write_bytes(STAND_INS.read_bytes())
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--net",
                   "--ipc", "--uts", "sh", "-c", _RUN, "trial", str(root), str(given), DEVICES, PROFILE]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"a run of it as if on Ubuntu 22.04 did not end within {SECONDS} s"
    said = "\n  ".join((done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip().splitlines()[-6:])
    if done.returncode:
        return f"it could not be tried (exit code {done.returncode}):\n  {said}\n"
    return f"run as if on Ubuntu 22.04, {said}" if said else ""
