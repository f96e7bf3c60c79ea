"""Alerts under their real faults: what breaks each on a cluster, what mends it, and rules that fire at once.

Machines share the kernel of their host, but not all that alerts are of: a machine has its own time since its boot (time
namespaces), its own mounts, and programs that can be stopped. The kernel counts processes that it ended for want of
memory for all machines together, and its clock is one: node_exporter alone reads another one here.
"""

import json
from typing import Any

from cluster.monitoring.alerts import ALERTS
from scripts.node.health.check_kinds import KINDS
from scripts.node.judge.kinds import FINDING_ALERT
from tests.e2e.cluster import Cluster

ASK = """
import json, sys
sys.path.insert(0, "/usr/local/lib/hpc/node")
from monitoring import prometheus
for path in sys.stdin:
    try:
        print(json.dumps(prometheus.get(path.strip())), flush=True)
    except (OSError, ValueError) as error:
        print(json.dumps(str(error)), flush=True)
"""
"""Answers each line with what Prometheus answers to that path, or why it does not."""


def prometheus(cluster: Cluster, path: str, machine: str = "controller") -> Any:
    """An answer of Prometheus. Raises RuntimeError if there is none."""
    answer = json.loads(cluster.answer(machine, ASK, path))
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


def fired(cluster: Cluster, seconds: float) -> set[str]:
    """Names of alerts and findings that fired at any time within the last seconds: some are over soon."""
    found = prometheus(cluster, f"query?query=last_over_time(ALERTS%7Balertstate=%22firing%22%7D[{seconds:.0f}s])")
    return {_name(series["metric"]) for series in found["result"]}


def firing(cluster: Cluster) -> set[str]:
    """Names of alerts and findings that fire."""
    found = prometheus(cluster, "alerts")["alerts"]
    return {_name(alert["labels"]) for alert in found if alert["state"] == "firing"}


def _name(labels: dict[str, str]) -> str:
    """The name of an alert; of a finding its id."""
    return labels["id"] if labels["alertname"] == FINDING_ALERT else labels["alertname"]


AT_ONCE = r"""
set -e
rules=/etc/prometheus/rules/hpc.yml
kinds=/usr/local/lib/hpc/node/judge/kinds.py
cp $rules /etc/prometheus/prometheus.yml /etc/hpc/metrics.json $kinds /root
sed -Ei 's/(Kind\("[a-z]+"), [0-9]+/\1, 0/' $kinds
sed -Ei 's/for: [0-9]+m/for: 0s/; s/\[15m:1m\]/[30s:5s]/; s/\[((1|5|10|15)m|[0-9]+s)\]/[20s]/g' $rules
sed -Ei 's/> 86400/> 0/; s/> 5000/> 5/; s/\[6h\]\) >= 3/[6h]) >= 1/; s/tmpfs[|]//' $rules
sed -Ei 's/(_interval|_timeout): [0-9]+s/\1: 3s/' /etc/prometheus/prometheus.yml
sed -Ei 's/"interval_seconds": [0-9]+/"interval_seconds": 3/; s/\[1m\]/[20s]/' /etc/hpc/metrics.json
systemctl reload prometheus
systemctl restart hpc-metrics
"""
"""Alerts as they are, but at once and not after minutes or days, and for a few records and one boot. File
systems of these machines that can be filled are in memory."""
AS_BEFORE = """
cp /root/hpc.yml /etc/prometheus/rules/
cp /root/prometheus.yml /etc/prometheus/
cp /root/metrics.json /etc/hpc/
cp /root/kinds.py /usr/local/lib/hpc/node/judge/
systemctl reload prometheus
systemctl restart hpc-metrics
"""
OUT_OF_MEMORY = """
hog="exec python3 -c 'bytearray(200_000_000)'"
if mkdir /sys/fs/cgroup/memory/little 2>/dev/null; then
    echo 30000000 >/sys/fs/cgroup/memory/little/memory.limit_in_bytes
    sh -c "echo \\$\\$ >/sys/fs/cgroup/memory/little/tasks; $hog"
    rmdir /sys/fs/cgroup/memory/little
else
    systemd-run --quiet --wait --collect --property=MemoryMax=30M sh -c "$hog"
fi
true
"""
"""The kernel ends a process, with control groups of version 1 or 2."""
WRONG_CLOCK = r"""
cat >/run/wrong-clock.py <<'END'
import struct, sys

# clock_gettime of the kernel's vDSO, which programs in Go call: the system call, and 90 s more of the real-time clock.
CODE = bytes.fromhex("b8e4000000 0f05 85ff 7504 4883065a c3")
mapped = next(line.split()[0] for line in open(f"/proc/{sys.argv[1]}/maps") if line.endswith("[vdso]\n"))
start, end = (int(word, 16) for word in mapped.split("-"))
with open(f"/proc/{sys.argv[1]}/mem", "r+b", buffering=0) as memory:
    memory.seek(start)
    image = memory.read(end - start)
    (sections,), (size, count) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<HH", image, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", image, sections + size * row) for row in range(count)]
    symbols = next(row for row in rows if row[1] == 11)  # SHT_DYNSYM
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", image, at)
        if image[rows[symbols[6]][4] + name :].startswith(b"__vdso_clock_gettime\0"):
            memory.seek(start + value)
            memory.write(CODE)
END
python3 /run/wrong-clock.py $(systemctl show --property=MainPID --value prometheus-node-exporter)
"""
"""node_exporter reads a clock that is 90 s fast, as on a machine whose clock is; on x86-64."""
SLOW = r"""
cat >/run/slow.py <<'END'
import os, struct, subprocess, sys, threading, time

path, fuse = sys.argv[1], os.open("/dev/fuse", os.O_RDWR)
mode = 0o40755 if os.path.isdir(path) else 0o100644
options = f"fd={fuse},rootmode={mode:o},user_id=0,group_id=0,allow_other"
subprocess.run(["mount", "-i", "-t", "fuse", "-o", options, "slow", path], pass_fds=[fuse], check=True)
GETATTR, OPEN, WRITE, STATFS, INIT = 3, 14, 16, 17, 26
BODIES = {
    GETATTR: struct.pack("<QII6Q10I", 0, 0, 0, 1, *[0] * 5, *[0] * 3, mode, 1, 0, 0, 0, 4096, 0),
    OPEN: struct.pack("<QII", 0, 1, 0),  # not cached
    STATFS: struct.pack("<5Q10I", 1000, 0, 0, 100, 100, 4096, 255, 4096, *[0] * 7),  # without a free block
    INIT: struct.pack("<4I2H2I2H8I", 7, 31, 65536, 0, 8, 8, 65536, 1, 1, 0, *[0] * 8),
}


def answer(kind, number, size):
    time.sleep(0 if kind == INIT else 1.2)
    body = struct.pack("<II", size, 0) if kind == WRITE else BODIES.get(kind, b"")
    os.write(fuse, struct.pack("<IiQ", 16 + len(body), 0 if body else -38, number) + body)


while True:
    try:
        request = os.read(fuse, 1 << 20)
    except OSError:
        break  # unmounted
    _, kind, number = struct.unpack_from("<IIQ", request)
    size = struct.unpack_from("<I", request, 56)[0] if kind == WRITE else 0
    if kind not in (2, 36, 38):  # FORGET, INTERRUPT and DESTROY have no answer
        threading.Thread(target=answer, args=(kind, number, size)).start()
END
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
slow() {
    systemd-run --quiet --collect python3 /run/slow.py $1
    until mountpoint -q $1; do sleep 0.1; done
}
"""
"""A file system, of one folder or one file, that is full, and whose server takes 1.2 s for each answer. (bash)"""
SLOW_PASS = f"""
{SLOW}
log=/var/log/slurm/slurmctld.log
again() {{ systemctl kill --kill-whom=main --signal=USR2 slurmctld; }}
scancel --name=slow
slow $log; again
sbatch --chdir=/tmp --output=/dev/null --job-name=slow --nodelist=sick-cpu-1 --wrap 'sleep 600'
for try in $(seq 60); do sdiag | grep -m1 'Last cycle' | grep -qE '[0-9]{{7}}' && break; sleep 0.3; done
umount --lazy $log; again
"""
"""A pass of the scheduler that starts a job, which it logs, on a disk that is slow. The next pass, which another event
may call for at any time, is a short one: this may have to be done again."""
FAILED_CHECKS = json.dumps({"time": 1.0, "checks": {kind: {"state": "failed", "text": "a fault"} for kind in KINDS}})
NO_RECEIVER = "http://127.0.0.1:9090/nobody"
BAD_RULE = "groups: [{name: bad, rules: [{record: bad, expr: up * on () up}]}]"
TEXTFILE = "/var/lib/prometheus/node-exporter/hpc.prom"
STATE, DROP_INS = "/opt/apps/adm/hpc", "/run/systemd/system/munge.service.d"
FAULTS: tuple[dict[str, tuple[str, str, str]], ...] = (
    {
        "DaemonFailed": (
            "cpu-1",
            (
                f"mkdir -p {DROP_INS}; printf '[Service]\\nExecStartPre=false\\n' >{DROP_INS}/fails.conf; "
                "systemctl daemon-reload; systemctl restart munge; true"
            ),
            f"rm {DROP_INS}/fails.conf; systemctl daemon-reload; systemctl restart munge",
        ),
        # With slurmd gone, nobody writes the record again.
        "HealthChecksMissing " + " ".join(alert.name for alert in ALERTS if alert.name.startswith("Health")): (
            "cpu-1",
            f"systemctl stop slurmd; sleep 1; echo '{FAILED_CHECKS}' >{STATE}/health/sick-cpu-1.json",
            "systemctl start slurmd",
        ),
        "node-down JobsBlocked": (
            "controller",
            (
                "scontrol update NodeName=sick-cpu-1 State=DOWN Reason=test; sbatch --chdir=/tmp --output=/dev/null "
                "--job-name=blocked --nodelist=sick-cpu-1 --wrap true"
            ),
            "scancel --name=blocked; scontrol update NodeName=sick-cpu-1 State=RESUME",
        ),
        "MachineUnreachable": (
            "cpu-0",
            "systemctl stop prometheus-node-exporter",
            "systemctl start prometheus-node-exporter",
        ),
        "ConfigNotApplied": (
            "gpu-0",
            (
                f"cp -p {STATE}/nodes/sick-gpu-0.json /root; "
                f'sed -i \'s/"configured"/"failed"/\' {STATE}/nodes/sick-gpu-0.json'
            ),
            f"cp -p /root/sick-gpu-0.json {STATE}/nodes/",
        ),
        "GpuXid GpuEccErrors GpuMemoryFailed GpuNvlinkErrors GpuHot GpusIdle": (
            "gpu-0",
            "echo '{}' >/run/dcgm-stand-in.json",
            "rm /run/dcgm-stand-in.json",
        ),
        "jobs-held": ("controller", "scontrol hold $(squeue -h -o %A -n held)", "scancel -n held"),
        "QueueStuck PartitionStarved": ("controller", "true", "scancel -n waits; scancel -n has-gpu"),
        "mount-missing": ("controller", "mount -o remount,bind,ro /home", "mount -o remount,bind,rw /home"),
        "image-old kernel-old": (
            "controller",
            """echo '{"made": 1e9, "baked": 1, "kernel": "2020-01-01"}' >/etc/hpc/image.json""",
            "rm /etc/hpc/image.json",
        ),
        "KeyOld BackupOld": (
            "controller",
            (
                f"cp -p {STATE}/keys.json {STATE}/backup-made /root; echo 1e9 >{STATE}/backup-made; "
                f'sed -i \'s/"since": [0-9.]*/"since": 1e9/\' {STATE}/keys.json'
            ),
            f"cp -p /root/keys.json /root/backup-made {STATE}/",
        ),
        "CertificateEnds": (
            "controller",
            (
                "cd /etc/prometheus && cp -p web.pem /root && openssl req -x509 -newkey rsa:2048 -nodes -days 9 "
                "-subj /CN=sick -keyout /root/key -out /root/pem 2>/dev/null && cat /root/key /root/pem >web.pem"
            ),
            "cp -p /root/web.pem /etc/prometheus/",
        ),
        "MonitoringDown": (
            "controller",
            "systemctl stop prometheus-alertmanager",
            "systemctl start prometheus-alertmanager",
        ),
        "RulesFailing": (
            "controller",
            f"echo '{BAD_RULE}' >/etc/prometheus/rules/bad.yml; systemctl reload prometheus",
            "rm /etc/prometheus/rules/bad.yml; systemctl reload prometheus",
        ),
    },
    {
        # Before the nodes that its jobs run on are taken out of service.
        "slurmdbd-down AccountingQueueLong": (
            "controller",
            "systemctl stop slurmdbd; for job in 1 2 3; do srun --quiet --nodelist=sick-cpu-1 true; done",
            "systemctl start slurmdbd",
        ),
        "SchedulerSlow": ("controller", SLOW_PASS, "scancel --name=slow"),
        "ClockSkew": ("cpu-1", WRONG_CLOCK, "systemctl restart prometheus-node-exporter"),
        "OutOfMemory": (
            "controller",
            OUT_OF_MEMORY,
            "",
        ),
        "FileSystemFull node-drained": (
            "cpu-0",
            "mount -t tmpfs -o size=1m full /tmp; dd if=/dev/zero of=/tmp/full bs=4k 2>/dev/null; true",
            "umount --lazy /tmp",
        ),
        # Its health check drains the node, and a lost GPU is not back by itself.
        "GpuMissing": (
            "gpu-0",
            "mv /dev/nvidia1 /dev/lost",
            "mv /dev/lost /dev/nvidia1; hpc-health now >/dev/null; scontrol update NodeName=sick-gpu-0 State=RESUME",
        ),
        "NotificationsFailing": (
            "controller",
            (
                "cp -p /etc/prometheus/alertmanager.yml /root; "
                "sed -i 's|^- name: cluster|&\\n  webhook_configs: [{url: "
                f'"{NO_RECEIVER}"}}]|; s/group_wait: .*/group_wait: 1s/\' /etc/prometheus/alertmanager.yml; '
                "systemctl restart prometheus-alertmanager"
            ),
            "cp -p /root/alertmanager.yml /etc/prometheus/; systemctl restart prometheus-alertmanager",
        ),
    },
    {
        "slurmctld-down CollectorFailing": ("controller", "systemctl stop slurmctld", "systemctl start slurmctld"),
        "disk-full SharedFileSystemSlow": ("controller", f"{SLOW}slow /var/mail", "umount --lazy /var/mail"),
        "MachineFlapping": ("cpu-1", "systemctl reboot", ""),
        "munge-down": ("controller", "systemctl stop munge", "systemctl start munge"),
        "GpuMetricsMissing": (
            "gpu-0",
            "systemctl stop nvidia-dcgm-exporter",
            "systemctl start nvidia-dcgm-exporter",
        ),
    },
    {
        "MetricsOld": (
            "controller",
            f"systemctl stop hpc-metrics; touch -d '1 hour ago' {TEXTFILE}",
            "systemctl start hpc-metrics",
        ),
    },
)
"""Faults that are there side by side on a cluster `sick`: alerts, machine, what breaks it, what mends it; empty where
nothing needs to."""
LASTS = {"MachineFlapping"}
"""A boot is news for as long as the alert looks back: six hours."""
