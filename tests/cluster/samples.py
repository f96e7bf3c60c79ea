"""One edit of every field of the configuration, and its expected effect on running jobs."""

from collections.abc import Callable
from typing import Any

from cluster.config.impact_annotations import Effect
from cluster.impact.table import editable_patterns

Cluster = dict[str, Any]


def script(place: str, **values: str | list[str]) -> Cluster:
    """Return a script for a place. It has its own name, since a name stands for one file of the whole cluster."""
    return {"name": f"10-{place}", **(values if values and "on" not in values else {"text": "#!/bin/sh\n", **values})}


LAB: Cluster = {
    "platform": "local",
    "name": "lab",
    "nodesets": {
        "cpu": {"count": 3},
        "gpu": {"machine_type": "local-2c-2gpu", "scripts": [script("nodesets")]},
        "bare": {"machine_type": "local-2c", "gpus": {"type": "standin", "count": 1}},
    },
    "partitions": {
        "cpu": {"nodesets": ["cpu"], "default": True},
        "gpu": {"nodesets": ["gpu"], "scripts": [script("partitions")]},
    },
    "slurm": {"scripts": [script("slurm")]},
    "groups": {"ml": 3001},
    "users": [
        {"name": "alice", "uid": 2001, "groups": ["ml"], "account": "research"},
        {"name": "bob", "uid": 2002, "account": "research"},
    ],
    "former_users": [{"name": "carol", "uid": 2003}],
    "accounting": {
        "accounts": [{"name": "research"}, {"name": "teaching"}],
        "qos": [{"name": "urgent", "priority": 100}, {"name": "idle"}],
    },
}
SHARED = ["/home", "/opt/apps", "/var/mail"]
Sample = tuple[str, Callable[[Cluster], Any], Effect]


def at(*path: str, **values: Any) -> Callable[[Cluster], None]:
    """Return an edit that sets keys of a section, which is added if it is missing."""

    def change(cluster: Cluster) -> None:
        section: Any = cluster
        for step in path:
            section = (
                next(member for member in section if member["name"] == step)
                if isinstance(section, list)
                else section.setdefault(step, {})
            )
        section.update(values)

    return change


def gone(*path: str) -> Callable[[Cluster], None]:
    """Return an edit that removes a key, or the member of a list with that name."""

    def change(cluster: Cluster) -> None:
        section: Any = cluster
        for step in path[:-1]:
            section = section[step]
        if isinstance(section, list):
            section[:] = [member for member in section if member["name"] != path[-1]]
        else:
            del section[path[-1]]

    return change


def partition(**values: Any) -> Sample:
    key = next(iter(values))
    nested = "partitions.*.conf.*" if key == "conf" else f"partitions.*.{key}"
    return (nested, at("partitions", "cpu", **values), Effect.RECONFIGURE)


def qos(**values: Any) -> Sample:
    key, value = next(iter(values.items()))
    pattern = f"accounting.qos.*.{key}" + (".*" if isinstance(value, dict) else "")
    return (pattern, at("accounting", "qos", "urgent", **values), Effect.NOTHING)


def timer(name: str, effect: Effect = Effect.RECONFIGURE) -> Sample:
    return (f"slurm.timers.{name}", at("slurm", "timers", **{name: 29 if name == "message" else 400}), effect)


SAMPLES: list[Sample] = [
    ("name", at(name="other"), Effect.REFUSED),
    ("host_names", at(host_names="pods"), Effect.REFUSED),
    ("network.cidr", at(network={"cidr": "10.99.0.0/20"}), Effect.REFUSED),
    ("storage.shared", at(storage={"shared": ["/home", "/opt/apps"]}), Effect.REFUSED),
    ("storage.shared", at(storage={"shared": ["/home", "/opt/apps", "/var/mail", "/data"]}), Effect.NOTHING),
    ("storage.shared", at(storage={"shared": ["/opt/apps", "/home", "/var/mail"]}), Effect.NOTHING),
    ("storage.read_only", at(storage={"shared": [*SHARED, "/data"], "read_only": ["/data"]}), Effect.NOTHING),
    ("image.packages", at("image", packages=["podman"]), Effect.REPLACE),
    ("monitoring", at(monitoring={}), Effect.REPLACE),
    ("image.presents_as", at("image", presents_as="ubuntu-2204"), Effect.REPLACE),
    ("controller.machine_type", at(controller={"machine_type": "local-2c"}), Effect.NOTHING),
    ("controller.machine_type", at(controller={"machine_type": "local-2c-2gpu"}), Effect.REPLACE),
    ("login.on", at(login={"on": "controller"}), Effect.REPLACE),
    ("login.count", at(login={"count": 2}), Effect.NOTHING),
    ("login.count", at(login={"count": 0}), Effect.REPLACE),
    ("login.machine_type", at(login={"machine_type": "local-2c"}), Effect.NOTHING),
    ("login.machine_type", at(login={"machine_type": "local-2c-2gpu"}), Effect.REPLACE),
    ("nodesets.*", at("nodesets", extra={}), Effect.RESTART),
    ("nodesets.*", gone("nodesets", "bare"), Effect.DRAIN),
    ("nodesets.*.on", at("nodesets", cpu={"on": "controller"}), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count=4), Effect.RESTART),
    ("nodesets.*.count", at("nodesets", "cpu", count=1), Effect.DRAIN),
    ("nodesets.*.machine_type", at("nodesets", "cpu", machine_type="local-4c"), Effect.DRAIN),
    ("nodesets.*.machine_type", at("nodesets", "cpu", machine_type="local-2c-2gpu"), Effect.REPLACE),
    ("nodesets.*.gpus.count", at("nodesets", "bare", "gpus", count=2), Effect.REPLACE),
    ("nodesets.*.gpus", at("nodesets", "cpu", gpus={"type": "standin", "count": 1}), Effect.REPLACE),
    ("nodesets.*.features", at("nodesets", "cpu", features=["fast"]), Effect.RESTART),
    ("nodesets.*.node_conf.*", at("nodesets", "cpu", node_conf={"weight": 10}), Effect.RESTART),
    ("nodesets.*.node_conf.*", at("nodesets", "cpu", node_conf={"sockets": 2}), Effect.DRAIN),
    ("nodesets.*.addresses", at("nodesets", "cpu", addresses="10.77.10.0/24"), Effect.REFUSED),
    ("nodesets.*.addresses", at("nodesets", "cpu", addresses="10.77.4.0/23"), Effect.NOTHING),
    ("partitions.*", at("partitions", night={"nodesets": ["cpu"]}), Effect.RECONFIGURE),
    ("partitions.*", gone("partitions", "gpu"), Effect.DRAIN),
    partition(nodesets=["cpu", "gpu"]),
    ("partitions.*.default", lambda c: [at("partitions", n, default=n == "gpu")(c) for n in ("cpu", "gpu")],
     Effect.RECONFIGURE),
    partition(exclusive=True),
    partition(max_time="01:00:00"),
    partition(default_time="01:00:00"),
    partition(def_mem_per_cpu=100),
    partition(max_mem_per_cpu=500),
    partition(min_nodes=2),
    partition(max_nodes=2),
    partition(priority_tier=3),
    partition(qos="urgent"),
    partition(allow_accounts=["research"]),
    partition(allow_groups=["ml"]),
    partition(allow_qos=["urgent"]),
    partition(conf={"GraceTime": 30}),
    ("groups.*", at("groups", other=3002), Effect.NOTHING),
    ("groups.*", at("groups", ml=3009), Effect.REFUSED),
    ("users.*", lambda c: c["users"].append({"name": "dave", "uid": 2007, "account": "research"}), Effect.NOTHING),
    ("users.*", gone("users", "bob"), Effect.NOTHING),
    ("users.*.uid", at("users", "bob", uid=2044), Effect.REFUSED),
    ("users.*.gid", at("users", "bob", gid=3001), Effect.REFUSED),
    ("users.*.gid", at("users", "bob", gid=2002), Effect.NOTHING),
    ("users.*.groups", at("users", "bob", groups=["ml"]), Effect.NOTHING),
    ("users.*.keys", at("users", "bob", keys=["ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43]),
     Effect.NOTHING),
    ("users.*.shell", lambda c: c["users"][1].update({"shell": "/bin/sh"}), Effect.NOTHING),
    ("users.*.account", at("users", "bob", account="teaching"), Effect.NOTHING),
    ("users.*.accounts", at("users", "bob", accounts=["teaching"]), Effect.NOTHING),
    ("users.*.qos", at("users", "bob", qos=["urgent"]), Effect.NOTHING),
    ("users.*.sudo", at("users", "bob", sudo=True), Effect.NOTHING),
    ("users.*.containers", at("users", "bob", containers=False), Effect.NOTHING),
    ("former_users.*", lambda c: c["former_users"].append({"name": "dave", "uid": 2007}), Effect.NOTHING),
    ("former_users.*.uid", at("former_users", "carol", uid=2008), Effect.NOTHING),
    ("accounting.accounts.*", lambda c: c["accounting"]["accounts"].append({"name": "lab"}), Effect.NOTHING),
    ("accounting.accounts.*", gone("accounting", "accounts", "teaching"), Effect.NOTHING),
    *(
        (f"accounting.accounts.*.{key}", at("accounting", "accounts", "teaching", **{key: value}), Effect.NOTHING)
        for key, value in {
            "parent": "research", "description": "x", "organization": "y", "fairshare": 3,
        }.items()
    ),
    ("accounting.qos.*", lambda c: c["accounting"]["qos"].append({"name": "long"}), Effect.NOTHING),
    ("accounting.qos.*", gone("accounting", "qos", "idle"), Effect.NOTHING),
    qos(priority=7),
    qos(max_wall="01:00:00"),
    qos(max_jobs_per_user=3),
    qos(max_submit_jobs_per_user=3),
    qos(max_tres_per_job={"cpu": 4}),
    qos(max_tres_per_user={"gres/gpu": 4}),
    qos(grp_tres={"node": 4}),
    ("accounting.qos.*.preempt", at("accounting", "qos", "urgent", preempt=["idle"]), Effect.RESTART),
    qos(flags=["NoDecay"]),
    ("accounting.enforce", at("accounting", enforce=["associations"]), Effect.RECONFIGURE),
    ("accounting.purge_after_months", at("accounting", purge_after_months=6), Effect.NOTHING),
    *(timer(n) for n in ("slurmctld", "slurmd", "inactive", "kill_wait", "min_job_age", "unkillable_step", "message",
                         "batch_start", "prolog_epilog")),
    timer("wait", Effect.RESTART),
    ("slurm.consumable", at("slurm", consumable="cpu"), Effect.RESTART),
    ("slurm.return_to_service", at("slurm", return_to_service=1), Effect.RECONFIGURE),
    ("slurm.join_seconds", at("slurm", join_seconds=30), Effect.NOTHING),
    ("slurm.drain_seconds", at("slurm", drain_seconds=30), Effect.NOTHING),
    *(
        (".".join((*("*" if step in ("cpu", "gpu") else step for step in place), "scripts.*", *key)),
         at(*place, scripts=scripts), Effect.RECONFIGURE)
        for place in (("slurm",), ("partitions", "gpu"), ("nodesets", "gpu"))
        for key, scripts in {
            (): [script(place[0]), script("other")],
            ("on",): [script(place[0], on=["epilog"])],
            ("text",): [script(place[0], text="#!/bin/sh\nexit 1\n")],
            ("file",): [script(place[0], file="README.md")],
            ("url",): [script(place[0], url="https://example.org/a.sh", sha256="0" * 64)],
            ("sha256",): [script(place[0], url="https://example.org/a.sh", sha256="0" * 64)],
        }.items()
    ),
    ("slurm.mpi_default", at("slurm", mpi_default="pmi2"), Effect.RESTART),
    ("slurm.job_submit_lua", at("slurm", job_submit_lua="-- slurm_job_submit slurm_job_modify\n"), Effect.RESTART),
    ("slurm.prolog_flags", at("slurm", prolog_flags=["Alloc", "Contain"]), Effect.RESTART),
    ("slurm.scrontab", at("slurm", scrontab=True), Effect.RESTART),
    ("slurm.topology", at("slurm", topology="places"), Effect.RESTART),
    ("slurm.job_account_gather", at("slurm", job_account_gather="cgroup"), Effect.RESTART),
    ("slurm.reconcile.mode", at("slurm", "reconcile", mode="advise"), Effect.NOTHING),
    ("slurm.reconcile.static", at("slurm", "reconcile", static=True), Effect.NOTHING),
    ("slurm.reconcile.maintain", at("slurm", "reconcile", maintain=True), Effect.NOTHING),
    ("slurm.reconcile.actions_per_hour", at("slurm", "reconcile", actions_per_hour=10), Effect.NOTHING),
    ("slurm.reconcile.max_unavailable", at("slurm", "reconcile", max_unavailable=0.5), Effect.NOTHING),
    ("slurm.extra.*", at("slurm", extra={"priorityweightage": 5}), Effect.RECONFIGURE),
    ("slurm.extra.*", at("slurm", extra={"KillOnBadExit": 0}), Effect.RESTART),
    ("containers.data", at(containers={"data": "home"}), Effect.NOTHING),
    ("deletion_protection", at(deletion_protection=True), Effect.NOTHING),
]  # fmt: skip
_MAIL = {"to": ["ops@example.org"], "sender": "slurm@example.org", "smarthost": "smtp.example.org:587"}
MONITORED: Cluster = {**LAB, "monitoring": {"receivers": {"mail": _MAIL}, "web": {"user": "grafana"}}}
MONITORED_SAMPLES: list[Sample] = [
    ("monitoring", at(monitoring=None), Effect.REPLACE),
    ("monitoring.retention_days", at("monitoring", retention_days=30), Effect.NOTHING),
    ("monitoring.disk_gb", at("monitoring", disk_gb=20), Effect.NOTHING),
    ("monitoring.receivers.mail", gone("monitoring", "receivers", "mail"), Effect.NOTHING),
    ("monitoring.receivers.mail.to", at("monitoring", "receivers", "mail", to=["a@example.org"]), Effect.NOTHING),
    ("monitoring.receivers.mail.sender", at("monitoring", "receivers", "mail", sender="a@example.org"), Effect.NOTHING),
    ("monitoring.receivers.mail.smarthost", at("monitoring", "receivers", "mail", smarthost="a:25"), Effect.NOTHING),
    ("monitoring.receivers.mail.username", at("monitoring", "receivers", "mail", username="slurm"), Effect.NOTHING),
    ("monitoring.receivers.slack", at("monitoring", "receivers", slack="#alerts"), Effect.NOTHING),
    ("monitoring.receivers.webhook", at("monitoring", "receivers", webhook=True), Effect.NOTHING),
    ("monitoring.web", gone("monitoring", "web"), Effect.NOTHING),
    ("monitoring.web.user", at("monitoring", "web", user="alice"), Effect.NOTHING),
    ("monitoring.web.own_certificate", at("monitoring", "web", own_certificate=True), Effect.NOTHING),
    ("monitoring.interval_seconds", at("monitoring", interval_seconds=60), Effect.NOTHING),
    ("monitoring.machine", at("monitoring", machine={}), Effect.NOTHING),
]
APART: Cluster = {**LAB, "monitoring": {"machine": {}}}
"""A cluster whose Prometheus has a machine of its own."""
APART_SAMPLES: list[Sample] = [
    ("monitoring.machine", gone("monitoring", "machine"), Effect.REPLACE),
    ("monitoring.machine.machine_type", at("monitoring", "machine", machine_type="local-2c"), Effect.NOTHING),
]
GROWING: Cluster = {
    "platform": "local",
    "name": "lab",
    "nodesets": {"cpu": {"count": {"min": 2, "max": 4}}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}
"""A cluster with an elastic nodeset."""
GROWING_SAMPLES: list[Sample] = [
    ("nodesets.*.idle", at("nodesets", "cpu", idle="1h"), Effect.RECONFIGURE),
    ("nodesets.*.spare", at("nodesets", "cpu", spare=1), Effect.NOTHING),
    ("nodesets.*.count", at("nodesets", "cpu", count={"min": 2, "max": 6}), Effect.RESTART),
    ("nodesets.*.count", at("nodesets", "cpu", count={"min": 2, "max": 3}), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count=2), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count=1), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count={"min": 1, "max": 4}), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count={"min": 1, "max": 6}), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count={"min": 3, "max": 4}), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count=3), Effect.DRAIN),
    ("nodesets.*.count", at("nodesets", "cpu", count={"min": 4, "max": 8}), Effect.DRAIN),
]
CHECKED: Cluster = {**LAB, "slurm": {**LAB["slurm"], "health": {"nccl": {}, "diag": {}, "fabric": {}, "network": {}}}}
"""A cluster with all health checks."""
_NOTHING = {
    "drain": False, "resume_after": 5, "skip": ["clock"], "timeout_seconds": 10,
    "disk_free_percent": 10, "clock_seconds": 20, "ecc_errors": 1, "nvlink_errors": 1, "nic_mbps": 1000,
}  # fmt: skip
_RECONFIGURE = {"interval_seconds": 60, "requeue": True, "prolog": False, "epilog": False}


def _field(*path: str, **values: object) -> str:
    return ".".join(("slurm", "health", *path, *values))


CHECKED_SAMPLES: list[Sample] = [
    ("slurm.health", gone("slurm", "health"), Effect.RECONFIGURE),
    *((_field(key), at("slurm", "health", **{key: value}), Effect.NOTHING) for key, value in _NOTHING.items()),
    *((_field(key), at("slurm", "health", **{key: value}), Effect.RECONFIGURE) for key, value in _RECONFIGURE.items()),
    *((_field(row), gone("slurm", "health", row), Effect.NOTHING) for row in ("nccl", "diag", "fabric", "network")),
    *(
        (_field(row, key), at("slurm", "health", row, **{key: {"user": "bob", "level": 3}.get(key, 7)}), Effect.NOTHING)
        for row, keys in {
            "nccl": ("every_hours", "min_busbw_gbps", "minutes", "user"),
            "fabric": ("every_hours", "min_busbw_gbps", "minutes", "user"),
            "diag": ("every_hours", "level", "minutes"),
            "network": ("every_hours", "min_mbps", "seconds"),
        }.items()
        for key in keys
    ),
]
WARMED: Cluster = {**LAB, "slurm": {**LAB["slurm"], "warm_up": {"containers": ["alpine:3.20"]}}}
"""A cluster that has a warm-up."""
_WARM_UP = ("slurm", "warm_up")
WARMED_SAMPLES: list[Sample] = [
    ("slurm.warm_up", gone(*_WARM_UP), Effect.NOTHING),
    ("slurm.warm_up.partitions", at(*_WARM_UP, partitions=["gpu"]), Effect.NOTHING),
    ("slurm.warm_up.containers", at(*_WARM_UP, containers=["nvcr.io/nvidia/pytorch:24.04-py3"]), Effect.NOTHING),
    ("slurm.warm_up.seconds", at(*_WARM_UP, seconds=600), Effect.NOTHING),
]
ONE_CHOICE = {pattern for pattern in editable_patterns() if pattern.startswith("slurm.rxdm")}
"""Fields of rxdm, which a rehearsal does not have."""
