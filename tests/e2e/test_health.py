"""Faults of nodes are found by their health check: the node is drained with figures, and no job is lost."""

import json
import shlex
import signal
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import yaml

from cluster.monitoring.alerts import ALERTS
from cluster.monitoring.dashboards import DASHBOARDS
from scripts.node.judge.kinds import FINDING_ALERT, KINDS
from tests.e2e.alerts import (
    AS_BEFORE,
    AT_ONCE,
    FAULTS,
    LASTS,
    SLOW_PASS,
    fired,
    firing,
    prometheus,
)
from tests.e2e.cluster import PATIENCE, ROOT, Cluster, eventually
from tests.e2e.faults import states

pytestmark = pytest.mark.e2e

NODES = ("cpu-0", "cpu-1", "gpu-0")
SLOW = "dev host0 root tbf rate 10mbit burst 32kbit latency 400ms"
MACHINES = ("controller", "cpu-1", "gpu-0")
POST = """
from urllib.request import Request, urlopen

urlopen(Request("http://127.0.0.1:9093/api/v2/alerts", b"[]", {"Content-Type": "application/json"}), timeout=10)
"""
"""Posts alerts, of which there are none."""
_CLOCK = """
echo +90 >/etc/faketimerc
ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/etc/ld.so.preload
"""


@pytest.fixture(scope="module")
def sick(bring_up: Callable[..., Cluster]) -> Cluster:
    """A controller where people log in, two nodes and one with two stand-in GPUs, checked every five seconds."""
    return bring_up(
        "sick",
        login={"on": "controller"},
        nodesets={"cpu": {"count": 2}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
        partitions={"main": {"nodesets": ["cpu", "gpu"], "default": True}},
        monitoring={"interval_seconds": 10},
        slurm={
            "health": {
                "interval_seconds": 10,
                "resume_after": 1,
                "requeue": True,
                # On a busy host, pairs without a fault were measured at 69 Mbit/s in one second.
                "network": {"min_mbps": 30, "seconds": 3},
            }
        },
    )


def drained(cluster: Cluster) -> dict[str, str]:
    """Reasons of drained nodes."""
    lines = cluster.inside("controller", "sinfo --noheader --Node --format='%N|%T|%E'").splitlines()
    rows = [line.split("|", 2) for line in lines]
    return {name.removeprefix(f"{cluster.name}-"): why for name, state, why in rows if state.startswith("drain")}


def says(cluster: Cluster, node: str, why: str) -> None:
    """Wait until a health check has drained a node, for this reason."""
    eventually(lambda: drained(cluster).get(node, "").startswith(f"hpc-health: {why}"), what=f"{node}: {why}")


def well(cluster: Cluster) -> None:
    """Wait until every node is idle, and answers."""
    every = dict.fromkeys(NODES, "idle")
    eventually(lambda: states(cluster) == every, what="every node's return")


def resume(cluster: Cluster) -> None:
    """Resume every node that a measurement or an earlier test has left drained, and wait until all are idle."""
    for node in drained(cluster):
        cluster.command("nodes", "resume", node)
    well(cluster)


def health(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    """What ./hpc health finds."""
    return json.loads(cluster.call("health", cluster.name, *arguments, "--json").stdout)


def test_slurmd_checks_every_node(sick: Cluster):
    eventually(lambda: health(sick)["ok"], what="a result of every node")
    found = {node["node"].removeprefix("sick-"): node for node in health(sick)["nodes"]}
    assert set(found) == set(NODES)
    assert found["gpu-0"]["checks"]["gpu-count"] == {"state": "ok", "text": "2 of 2 GPUs"}
    for kind in ("gpu-driver", "gpu-ecc", "gpu-nvlink"):
        assert found["gpu-0"]["checks"][kind]["state"] == "skipped"
    for kind in ("nic", "mount", "disk", "clock"):
        assert found["cpu-0"]["checks"][kind]["state"] == "ok"
    sick.run("srun", "-N3", "true")
    assert "00-hpc-health: ended, exit code 0" in sick.inside("gpu-0", "cat /var/log/slurm/prolog.log")


ELSEWHERE = ("hpc_certificate_valid_seconds",)
"""Metrics of a Prometheus that is opened."""


def test_prometheus_has_what_alerts_are_of_and_one_fires_and_clears(sick: Cluster):
    rows = yaml.safe_load((ROOT / "tests/cluster/monitoring/alerts.yml").read_text()).values()
    series = {name: pair for row in rows for name, pair in row.items() if name != "labels"}
    wanted = {name.partition("{")[0] for name, (_, good) in series.items() if good != "_"}
    there = lambda: set(prometheus(sick, "label/__name__/values"))  # noqa: E731 - asked again and again
    job = sick.job("sleep infinity", "--gres=gpu:1")  # whose GPUs are a metric
    eventually(lambda: wanted - there() == set(ELSEWHERE), what=f"metrics of all alerts, among {sorted(wanted)}")
    sick.run("scancel", job, user="alice")
    groups = lambda: prometheus(sick, "rules")["groups"]  # noqa: E731 - as above
    eventually(lambda: {rule["health"] for group in groups() for rule in group["rules"]} == {"ok"}, what="all rules")
    targets = lambda: prometheus(sick, "targets")["activeTargets"]  # noqa: E731 - as above
    eventually(lambda: {target["health"] for target in targets()} == {"up"}, what="all targets")

    fires = "amtool --alertmanager.url=http://localhost:9093 alert query alertname=HealthDisk"
    sick.inside("cpu-1", "mount -t tmpfs -o size=1m full /tmp; dd if=/dev/zero of=/tmp/full bs=4k 2>/dev/null; true")
    eventually(lambda: "disk of sick-cpu-1 fails" in sick.inside("controller", fires), what="the alert")
    # On a busy machine its report may come late.
    shown = lambda: sick.said("status", code=1)  # noqa: E731 - asked again and again
    eventually(lambda: "HealthDisk" in shown(), what="the alert in status")
    sick.inside("cpu-1", "umount --lazy /tmp")
    well(sick)
    eventually(lambda: "HealthDisk" not in sick.inside("controller", fires), what="an alert that is over")


def test_prometheus_is_opened_to_whoever_has_the_password(sick: Cluster):
    """What asks it on the controller goes on, as the tests after this one see."""
    address = sick.outputs()["machines"]["sick-controller"]["address"]
    password = "correct-horse-battery"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, 9090), timeout=PATIENCE)
    sick.settings["hpc:prometheusPassword"] = password
    sick.edit(lambda config: config["monitoring"].update(web={"user": "grafana"}))
    sick.up()
    shown = json.loads(sick.command("outputs", "prometheus", "--show-secrets"))
    assert (shown["user"], shown["password"]) == ("grafana", password)
    # As anybody who has that certificate: its key, its end and the machine's address are checked.
    context = ssl.create_default_context(cadata=shown["certificate"])

    def answer(given: str, way: HTTPConnection | None = None) -> int:
        connection = way or HTTPSConnection(address, 9090, timeout=PATIENCE, context=context)
        login = {"Authorization": f"Basic {b64encode(f'grafana:{given}'.encode()).decode()}"} if given else {}
        try:
            connection.request("GET", "/api/v1/query?query=up", headers=login)
            found = connection.getresponse()
            return -found.status if found.status > 200 else len(json.load(found)["data"]["result"])
        except ConnectionRefusedError:
            return 0  # it starts again
        finally:
            connection.close()

    eventually(lambda: answer(password) > len(NODES), what="Prometheus, at the controller's address")
    plain = HTTPConnection(address, 9090, timeout=PATIENCE)
    assert (answer(""), answer("another"), answer(password, plain)) == (-401, -401, -400)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, 9093), timeout=PATIENCE)
    secret = "cat /etc/prometheus/web.yml /etc/prometheus/web.pem /etc/prometheus/web.password"
    assert sick.inside("controller", f"runuser -u alice -- {secret} 2>/dev/null; true") == ""
    targets = lambda: prometheus(sick, "targets")["activeTargets"]  # noqa: E731 - asked again and again
    eventually(lambda: {target["health"] for target in targets()} == {"up"}, what="all targets, Prometheus among them")
    assert sick.preview()["steps"] == []


def test_every_alert_has_a_fault():
    found = {name for faults in FAULTS for names in faults for name in names.split()}
    pages = {name for name, kind in KINDS.items() if kind.minutes is not None}
    assert {name for name in found if name not in pages} | {FINDING_ALERT} == {alert.name for alert in ALERTS}


@pytest.fixture
def at_once(sick: Cluster) -> Iterator[None]:
    """Alerts that do not wait."""
    sick.inside("controller", AT_ONCE)
    yield
    sick.inside("controller", AS_BEFORE)


@pytest.mark.usefixtures("at_once")
def test_alerts_fire_under_their_faults_and_clear(sick: Cluster):
    mailed = ("--mail-type=FAIL", "--mail-user=alice")
    has_gpu = sick.job("sleep 3000", "--gres=gpu:1", "--job-name=has-gpu", *mailed, user="alice")
    sick.submit("true", "--gres=gpu:2", "--job-name=waits")
    sick.submit("true", "--gres=gpu:2", "--job-name=held")
    quiet = lambda: sick.inside("gpu-0", "cat /run/hpc-gpu-jobs/[0-9]* 2>/dev/null; true").strip() == has_gpu  # noqa: E731 - asked again and again
    eventually(quiet, what="the note of the GPU's job")
    for number, faults in enumerate(FAULTS):
        began = time.monotonic()
        for machine, breaks, _ in faults.values():
            sick.inside(machine, breaks)
        wanted, seen = {name for names in faults for name in names.split()}, set[str]()
        errors = ("ECC_DBE_VOL_TOTAL", "ROW_REMAP_FAILURE", "NVLINK_RECOVERY_ERROR_COUNT_TOTAL")
        values: dict[str, Any] = {f"DCGM_FI_DEV_{name}": {"0": 1} for name in errors}
        values["DCGM_EXP_XID_ERRORS_COUNT"] = {"0": {"79": 2}}
        values["DCGM_FI_DEV_THERMAL_VIOLATION"] = {"0": 60 * 10**9}
        values["DCGM_FI_DEV_GPU_UTIL"] = {"0": 0, "1": 0}
        if number == 0:
            # Errors are new ones.
            has_values = lambda: bool(prometheus(sick, "query?query=DCGM_FI_DEV_XID_ERRORS%20offset%2010s")["result"])  # noqa: E731
            eventually(has_values, what="values before the errors")
            sick.inside("gpu-0", f"echo '{json.dumps(values)}' >/run/dcgm-stand-in.json")

        def all_seen(began: float = began, wanted: set[str] = wanted, seen: set[str] = seen) -> bool:
            seen |= fired(sick, 1 + time.monotonic() - began)
            if "SchedulerSlow" in wanted - seen:
                sick.inside("controller", SLOW_PASS)
            return wanted <= seen

        try:
            eventually(all_seen, what="every alert")
            if number == 0:
                user_is_written_to_once(sick, has_gpu)
        finally:
            for machine, _, mends in faults.values():
                if mends:
                    sick.inside(machine, mends, check=False)
            assert wanted <= seen, f"did not fire: {sorted(wanted - seen)}"
        over = wanted - LASTS
        eventually(lambda over=over: not over & firing(sick), what=f"the end of {sorted(over)}")
    well(sick)
    sick.inside("controller", AS_BEFORE)
    eventually(lambda: not LASTS & firing(sick), what=f"the end of {sorted(LASTS)}, of which one boot is none")


def reached(cluster: Cluster, machine: str, user: str) -> set[int]:
    """The ports of monitoring that a user of a machine can connect to, at its loopback and at its own address."""
    connect = "(exec 3<>/dev/tcp/$address/$port) 2>/dev/null && echo $port"
    loop = f"for address in 127.0.0.1 $(hostname); do for port in 9090 9093 9100 9400; do {connect}; done; done; true"
    return {int(port) for port in cluster.inside(machine, f"runuser -u {user} -- bash -c {shlex.quote(loop)}").split()}


def test_users_cannot_silence_an_alert_and_root_can(sick: Cluster):
    """Where they log in, on the machine that has Alertmanager; cpu-1 was rebooted by an alert's fault."""
    amtool = "amtool --alertmanager.url=http://localhost:9093 silence"
    add = f"{amtool} add alertname=HealthDisk --duration=1h --comment='a disk is replaced'"
    told = sick.inside("controller", f"runuser -u alice -- {add} 2>&1 || true")
    assert "connection refused" in told
    assert "refused" in sick.inside("controller", f"runuser -u alice -- python3 -c {shlex.quote(POST)} 2>&1 || true")
    assert sick.inside("controller", f"{amtool} query -q") == ""
    assert "alerts-silenced" not in sick.findings()

    number = sick.inside("controller", add)
    silenced = lambda: sick.findings().get("alerts-silenced", {}).get("controller", "")  # noqa: E731 - asked again
    eventually(lambda: 'alertname="HealthDisk" are silenced by root until ' in silenced(), what="the finding")
    assert silenced().endswith(": a disk is replaced")
    sick.inside("controller", f"{amtool} expire {number}")
    eventually(lambda: silenced() == "", what="the end of the finding")

    root, alice = ({machine: reached(sick, machine, user) for machine in MACHINES} for user in ("root", "alice"))
    assert root == {"controller": {9090, 9093, 9100}, "cpu-1": {9100}, "gpu-0": {9100, 9400}}
    # Prometheus alone is open, and only reads.
    assert alice == {"controller": {9090}, "cpu-1": set(), "gpu-0": set()}
    assert {sick.inside(machine, "systemctl is-enabled hpc-monitoring-firewall") for machine in MACHINES} == {"enabled"}


def user_is_written_to_once(cluster: Cluster, job: str) -> None:
    """The alert about idle GPUs has the job's user, and the mail comes once, also where the service that sends it
    starts again."""
    alert = f"ALERTS%7Balertname='GpusIdle',alertstate='firing',hpc_job='{job}',user='alice'%7D".replace("'", "%27")
    eventually(lambda: len(prometheus(cluster, f"query?query={alert}")["result"]) == 1, what="the alert")
    mails = f"grep -c '^Subject: Slurm Job_id={job}: 1 of 1 GPUs idle for ten minutes' /var/mail/alice; true"
    eventually(lambda: cluster.inside("controller", mails) == "1", what="the mail about idle GPUs")
    measured = lambda: json.loads(  # noqa: E731 - asked again
        cluster.inside("controller", f"""grep '"job": "{job}"' /opt/apps/adm/hpc/gpu-use.jsonl""")
    )
    before = measured()
    cluster.inside("controller", "systemctl restart hpc-metrics")
    eventually(lambda: measured()["until"] > before["until"] + 3 and "idle" in measured(), what="two measurements")
    assert cluster.inside("controller", mails) == "1"


def used(cluster: Cluster, job: str) -> dict[str, Any]:
    """What hpc-job says to alice that her job has used."""
    return json.loads(cluster.run("hpc-job", "--json", job, user="alice"))["jobs"][0]["used"]


def gpu_utilization(cluster: Cluster, job: str) -> float:
    """A mean over time, of which Prometheus may have had no sample for a moment."""
    return round(used(cluster, job).get("gpu_utilization") or 0, 1)


def test_gpus_have_the_job_that_has_them_and_users_see_what_it_makes_of_them(sick: Cluster):
    job = sick.job("sleep 3000", "--gres=gpu:1", "--partition=main", user="alice")
    query = f"query?query=DCGM_FI_DEV_GPU_UTIL%7Bhpc_job%3D%27{job}%27%7D"
    eventually(lambda: len(prometheus(sick, query)["result"]) == 1, what="the GPU's metrics")
    eventually(lambda: gpu_utilization(sick, job) == 0.9, what="the job's use of its GPU")
    assert used(sick, job)["gpu_joules"] > 0
    usage = json.loads(sick.command("usage", "--json", "--by", "user", "--user", "alice"))
    assert 0 < usage["total"]["gpu_utilization"] <= 0.9
    assert json.loads(sick.command("reliability", "--json"))["hours"]["idle_in_jobs"] > 0
    sick.run("scancel", job, user="alice")
    eventually(lambda: not sick.inside("gpu-0", "cat /run/hpc-gpu-jobs/[0-9]*"), what="a GPU without a job")
    well(sick)


def expand_query(expression: str, *, nodes: str = ".*", job: str = ".*", seconds: int = 120) -> str:
    """Return a query with values in place of Grafana's variables."""
    return expression.replace("$nodes", nodes).replace("$job", job).replace("$__rate_interval", f"{seconds}s")


NOT_HERE = {
    "nodes": {"Fabric"},
    "gpus": {"Last Xid"},
    "job": {"Fabric, received", "Fabric, sent"},
    "health": {"Repairs: held and out of capacity", "Repairs: recent actions", "Age of the image"},
}
"""Panels of fabrics, of broken GPUs, of elastic nodes and of baked images, by their dashboard: their queries are tested
with synthetic series (tests/cluster/monitoring)."""


def test_every_panel_of_the_dashboards_has_data(sick: Cluster):
    """As the page asks for it, through the command, its server and SSH; which leave nothing behind."""
    running, held = sick.job("sleep infinity", "--nodelist=sick-gpu-0", "--gres=gpu:1"), sick.submit("true", "--hold")
    sick.command("nodes", "drain", "cpu-1", "--reason", "a disk")
    sick.inside("cpu-0", "mount -t tmpfs -o size=1m full /tmp; dd if=/dev/zero of=/tmp/full bs=4k 2>/dev/null; true")
    command = sick.start("dashboard", sick.name, "--job", running)
    try:
        assert command.stdout
        url, _, job = command.stdout.readline().strip().partition("#job=")
        children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()

        def read(path: str, **given: str) -> bytes:
            address = urlsplit(url)
            connection = HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE)
            connection.request("GET", f"{address.path}{path}?{urlencode(given)}")
            return connection.getresponse().read()

        def ask(path: str, **given: str) -> Any:
            return json.loads(read(path, **given))

        began = time.time() - 60
        of_job = {"nodes": "|".join(ask("job", id=job)["nodes"]), "job": running}

        def empty() -> dict[str, set[str]]:
            moment = {"start": str(began), "end": str(time.time()), "step": "10"}
            found: dict[str, set[str]] = {}
            for dashboard in DASHBOARDS:
                chosen = of_job if dashboard.name == "job" else {}
                for panel in dashboard.panels:
                    queries = [expand_query(expression, **chosen, seconds=60) for expression, _ in panel.queries]
                    if not all(ask("api/v1/query_range", query=query, **moment)["data"]["result"] for query in queries):
                        found.setdefault(dashboard.name, set()).add(panel.title)
            return found

        eventually(lambda: empty() == NOT_HERE, what=f"data of all panels but {NOT_HERE}; without are {empty()}")
        assert b"<title>Dashboards</title>" in read("")
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(timeout=PATIENCE)
        assert (command.returncode, out.splitlines()[-1]) == (0, "Ended.")
        assert children
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    finally:
        command.kill()
        command.wait()
    sick.inside("cpu-0", "umount --lazy /tmp")
    sick.run("scancel", running, held, user="alice")
    sick.command("nodes", "resume", "cpu-1")
    well(sick)


def test_faults_drain_their_nodes_and_no_job_is_lost(sick: Cluster):
    job = sick.job("srun sleep infinity", "-N3")
    # Prologs are over when the step has started: one that fails would put the job back into the queue.
    eventually(lambda: f"{job}.0" in sick.inside("controller", "squeue --steps --noheader"), what="the job's step")
    sick.inside("gpu-0", "rm /dev/nvidia1")
    sick.inside("cpu-0", "umount --lazy /home")
    sick.inside("cpu-1", "mount -t tmpfs -o size=1m full /tmp; dd if=/dev/zero of=/tmp/full bs=4k 2>/dev/null; true")
    says(sick, "gpu-0", "gpu-count: 1 of 2 GPUs: no device nvidia1")
    says(sick, "cpu-0", "mount: /home is not mounted")
    says(sick, "cpu-1", "disk: /tmp has 0.0 % free")
    assert sick.inside("cpu-0", "hpc-health prolog 2>&1; echo $?").splitlines() == [
        "hpc-health: mount: /home is not mounted", "1",
    ]  # fmt: skip

    found = health(sick)
    assert not found["ok"]
    assert {finding["where"][0]: finding["todo"] for finding in found["findings"]}["sick-gpu-0"] == (
        "./hpc nodes sick reboot sick-gpu-0"
    )
    words = ("1 of 2 GPUs", "Who must act: cloud support")
    # On a busy machine slurmctld may not answer in time.
    eventually(
        lambda: all(word in sick.findings().get("node-drained", {}).get("gpu-0", "") for word in words),
        what="the finding of the drained node",
    )
    assert sick.run("squeue", "-h", "-j", job, "-o", "%T %N") == "RUNNING sick-cpu-[0-1],sick-gpu-0"

    # What is mended comes back by itself; a GPU that was lost, only when somebody says so.
    sick.inside("gpu-0", "mknod /dev/nvidia1 c 195 1 && chmod 666 /dev/nvidia1")
    sick.inside("cpu-0", "mount /home")
    sick.inside("cpu-1", "umount --lazy /tmp")
    last = health(sick, "--run")["nodes"][-1]
    eventually(lambda: set(drained(sick)) == {"gpu-0"}, what="the return of two nodes")
    assert (last["checks"]["gpu-count"]["state"], last["reason"][:10]) == ("ok", "hpc-health")
    assert sick.state(job) == "RUNNING"
    # From the kept history of checks, and from sinfo: the database has a node's drain once no job runs there.
    shown = json.loads(sick.command("job", job, "--json"))["jobs"][0]["meanwhile"]
    happened = {(event["node"].removeprefix("sick-"), " ".join(event["what"].split()[:2])) for event in shown}
    assert {("gpu-0", "health gpu-count:"), ("cpu-0", "health mount:"), ("cpu-1", "health disk:")} <= happened
    assert ("gpu-0", "DRAINING: hpc-health:") in happened
    kept = sick.inside("controller", "echo 0 | python3 /usr/local/lib/hpc/node health-history").splitlines()
    rows = [json.loads(line) for line in kept]
    assert "gpu-count" in {kind for row in rows if row["node"] == "sick-gpu-0" for kind in row.get("failed", {})}
    sick.run("scancel", job, user="alice")
    eventually(lambda: not sick.run("squeue", "-h"), what="the job's end")
    sick.command("nodes", "resume", "gpu-0")
    well(sick)


def test_the_job_of_a_lost_gpu_runs_elsewhere_and_says_why(sick: Cluster):
    jobs = [sick.job("sleep infinity", "--exclusive") for _ in NODES]
    where = lambda job: sick.run("squeue", "-h", "-j", job, "-o", "%T %N").split()  # noqa: E731 - asked again and again
    eventually(lambda: {*map(sick.state, jobs)} == {"RUNNING"}, what="a job on each node")
    job = next(job for job in jobs if where(job)[1] == "sick-gpu-0")
    sick.run("scancel", *(other for other in jobs if other != job), user="alice")
    lost = "Unable to determine the device handle for GPU 0000:04:00.0: GPU is lost."
    smi = "/usr/bin/nvidia-smi"
    sick.inside("gpu-0", f"printf '#!/bin/sh\\necho {lost}\\nexit 15\\n' >{smi}; chmod 755 {smi}")
    says(sick, "gpu-0", f"gpu-lost: {lost}")
    eventually(lambda: where(job) in (["RUNNING", "sick-cpu-0"], ["RUNNING", "sick-cpu-1"]), what="the job, elsewhere")
    shown = f"date +%s -d $(scontrol show job {job} | sed -n 's/.*EligibleTime=\\([^ ]*\\).*/\\1/p')"
    requeued = f"sacct -XnPD -j {job} --format=End | head -1"
    # slurmctld alone lets it begin 121 s after its end, or later.
    assert int(sick.inside("controller", f"echo $(($({shown}) - $(date +%s -d $({requeued}))))")) < 121
    why = sick.run("squeue", "-h", "-j", job, "--Format=admin_comment:200").strip()
    assert why.startswith("hpc: requeued at ")
    assert why.endswith(f" from sick-gpu-0: gpu-lost: {lost}")
    said = sick.run("hpc-job", job, user="alice")
    assert f"comment    {why}" in said
    assert " 1. " in said
    sick.run("scancel", job, user="alice")
    sick.inside("gpu-0", f"rm {smi}")
    sick.command("nodes", "resume", "gpu-0")
    well(sick)


def test_a_wrong_clock_is_seen_and_a_drain_by_others_is_kept(sick: Cluster):
    sick.command("nodes", "drain", "cpu-1", "--reason", "new driver")
    sick.inside("cpu-1", "umount --lazy /home")
    sick.inside("cpu-0", _CLOCK)
    found = {node["node"]: node["failing"] for node in health(sick, "--run")["nodes"]}
    assert found["sick-cpu-1"] == {"mount": "/home is not mounted"}
    assert drained(sick)["cpu-1"] == "new driver"
    says(sick, "cpu-0", "clock: ")  # 89 or 90 s: slurmctld says whole seconds
    sick.inside("cpu-1", "mount /home")
    sick.inside("cpu-0", "rm -f /etc/ld.so.preload /etc/faketimerc")
    health(sick, "--run")
    eventually(lambda: set(drained(sick)) == {"cpu-1"}, what="the return of cpu-0")
    sick.command("nodes", "resume", "cpu-1")
    well(sick)


def test_a_slow_nic_is_measured_and_told_from_its_partner(sick: Cluster):
    expected = {"sick-cpu-0": "ok", "sick-cpu-1": "failed", "sick-gpu-0": "ok"}

    def told() -> bool:
        resume(sick)
        found = health(sick, "--run")["nodes"]
        measured = {node["node"]: node.get("measured", {}).get("network", {}).get("state") for node in found}
        return (measured, set(drained(sick))) == (expected, {"cpu-1"})

    sick.inside("cpu-1", f"tc qdisc add {SLOW}")
    # A host that is busy enough slows the others too: they are measured again.
    eventually(told, what=str(expected))
    sick.inside("cpu-1", f"tc qdisc del {SLOW}")
    says(sick, "cpu-1", "network: ")

    def passes() -> bool:
        resume(sick)
        return health(sick, "cpu-1", "--run")["ok"]

    eventually(passes, what="a measurement that cpu-1 passes")


class TestAcceptance:
    """A node whose machine was repaired, as the reconcile loop returns it."""

    @pytest.fixture(autouse=True)
    def repaired(self, sick: Cluster) -> None:
        resume(sick)
        sick.command("nodes", "drain", "cpu-1", "--reason", "hpc: new machine, being checked")

    def accept(self, cluster: Cluster, found: Callable[[], bool], *, what: str) -> None:
        """Have it measured until something was found: as the loop does, again where no partner was idle, or where no
        job of the measurement began in time."""
        line = "from health import acceptance; acceptance.begin('sick-cpu-1')"
        under_way = "systemctl is-active hpc-health-accept-sick-cpu-1; true"

        def measured() -> bool:
            if cluster.inside("controller", under_way) not in {"inactive", "failed"}:
                return False
            if found():
                return True
            cluster.inside("controller", f'cd /usr/local/lib/hpc/node && python3 -c "{line}"')
            return False

        eventually(measured, what=what)

    def noted(self, cluster: Cluster, kind: str) -> dict[str, Any]:
        """The result of the node's last measurement of this kind."""
        text = cluster.inside("controller", "cat /opt/apps/adm/hpc/measured/sick-cpu-1.json 2>/dev/null || echo {}")
        return json.loads(text).get(kind, {})

    def test_it_is_measured_before_jobs_return(self, sick: Cluster):
        job = sick.run("sbatch", "--parsable", "--nodelist=sick-cpu-1", "--wrap", "sleep 1").strip()
        now = int(sick.inside("controller", "date +%s"))

        def passed() -> bool:
            noted = self.noted(sick, "network")
            return noted.get("time", 0) >= now and noted["state"] == "ok"

        self.accept(sick, passed, what="a measurement that it passes")
        eventually(lambda: sick.state(job) == "COMPLETED", what="the job that waits for the node")
        noted = self.noted(sick, "network")
        began = f"date +%s -d $(scontrol show job {job} | sed -n 's/ *StartTime=\\([^ ]*\\).*/\\1/p')"
        assert int(sick.inside("controller", began)) + 1 >= noted["time"]
        assert "hpc-accept" not in sick.inside("controller", "scontrol show reservation")
        well(sick)

    def test_the_nccl_test_with_another_node_is_a_gate(self, sick: Cluster):
        """Its program is a line here, as there are no GPUs; without a result the node is drained again."""
        script = (
            "#!/bin/bash\n#SBATCH --nodes=2 --output=/home/alice/%j.log\ntest -e /home/alice/slow || "
            "echo '# Avg bus bandwidth    : 170.5'\n"
        )
        part = {
            "partition": "main", "nodes": ["sick-cpu-0", "sick-cpu-1"], "busbw_gbps": 150, "script": script,
            "log": "%j.log", "built": "", "over_fabric": True,
        }  # fmt: skip
        kept = sick.inside("controller", "cat /etc/hpc/health-measure.json")
        fabric = {"hours": 0, "minutes": 5, "user": "alice", "partitions": [part]}
        text = json.dumps({"fabric": fabric}).replace("'", "'\\''")
        sick.inside("controller", f"printf %s '{text}' >/etc/hpc/health-measure.json; touch /home/alice/slow")
        why = "hpc-health: fabric: no pair was measured"
        self.accept(sick, lambda: drained(sick).get("cpu-1", "").startswith(why), what=why)
        sick.inside("controller", "rm /home/alice/slow")
        passed = "170 GB/s with sick-cpu-0, least 150"
        self.accept(sick, lambda: self.noted(sick, "fabric").get("text") == passed, what=passed)
        well(sick)
        sick.inside("controller", f"printf %s '{kept}' >/etc/hpc/health-measure.json")

    def test_one_that_is_slow_stays_away(self, sick: Cluster):
        sick.inside("cpu-1", f"tc qdisc add {SLOW}")
        why = "hpc-health: network: "
        self.accept(sick, lambda: drained(sick).get("cpu-1", "").startswith(why), what=why)
        sick.inside("cpu-1", f"tc qdisc del {SLOW}")
        resume(sick)


def test_prometheus_moves_to_its_own_machine_beside_a_job_and_leaves_nothing_behind(sick: Cluster):
    job = sick.job("sleep infinity", "--gres=gpu:1", "--partition=main", user="alice")
    sick.edit(lambda config: config["monitoring"].update(machine={}))
    sick.up()
    assert sick.state(job) == "RUNNING"
    units = "systemctl is-active prometheus prometheus-alertmanager hpc-metrics; true"
    here = ["inactive", "inactive", "active"]
    eventually(lambda: sick.inside("controller", units).split() == here, what="the controller's units")
    assert (
        sick.inside("controller", "ls /etc/prometheus/targets; ls -d /var/lib/prometheus/metrics2 2>&- || true") == ""
    )
    eventually(lambda: sick.inside("monitoring", units).split() == ["active"] * 3, what="the units")
    opened = "*" if "web" in sick.config["monitoring"] else "127.0.0.1"
    listen = "ss -Hltn | awk '{print $4}' | grep -E ':909[03]$'"
    both = {f"{opened}:9090", "127.0.0.1:9093"}
    eventually(lambda: {*sick.inside("monitoring", listen).split()} == both, what=f"what listens: {both}")
    assert sick.inside("controller", "ls /etc/prometheus/web.* 2>&- || true") == ""
    targets = lambda: prometheus(sick, "targets", "monitoring")["activeTargets"]  # noqa: E731 - asked again and again
    eventually(lambda: {target["health"] for target in targets()} == {"up"}, what="all targets")
    assert "sick-monitoring" in {target["labels"]["instance"] for target in targets()}
    # What is shown of the job now has come from there.
    sick.inside("controller", "rm -f /opt/apps/adm/hpc/gpu-use.jsonl")
    eventually(lambda: gpu_utilization(sick, job) == 0.9, what="the job's use of its GPU")
    sick.inside("monitoring", "systemctl stop prometheus")
    eventually(lambda: "monitoring" in sick.findings().get("monitoring-down", {}), what="the finding")
    sick.run("scancel", job, user="alice")
