"""Types of the JSON documents that a stack and its machines exchange.

components/slurm/payload.py and cluster/observe import them too, so that the types of both sides are checked. Machines
of an earlier version read and write some of these documents: keys are added, and never renamed.
"""

from typing import Any, Literal, TypedDict, get_args

Role = Literal["controller", "login", "monitoring", "node"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Roles of machines, in the order in which machines are listed."""

SPOOLS = {"controller": "/var/spool/slurmctld", "node": "/var/spool/slurmd"}
"""Folders of slurmctld's and slurmd's state (StateSaveLocation, SlurmdSpoolDir), by the role of the machine."""

PROMETHEUS_PORT, ALERTMANAGER_PORT, NODE_EXPORTER_PORT, GPU_EXPORTER_PORT = 9090, 9093, 9100, 9400
FIREWALL = "hpc-monitoring-firewall"
"""The unit, and the table of nftables, that keeps users of a machine from the last three."""


def lookback_seconds(interval: int, least: int = 300) -> int:
    """Return the seconds that a query looks back for values collected each `interval` seconds: four intervals, at
    least `least`. So it has two values if a collection fails and another one is late
    (robustperception.io/what-range-should-i-use-with-rate, 2026-11-28; Grafana's $__rate_interval is the same)."""
    return max(least, 4 * interval)


class Mount(TypedDict):
    """A file system: the arguments of `mount -t fs_type -o options source target`."""

    source: str
    target: str
    fs_type: str
    options: str


class StateDiskInput(TypedDict):
    """The file system with the controller's state, as in fstab, and the folders on it."""

    source: str
    fs_type: str
    options: str
    folders: list[str]


class Exports(TypedDict):
    """Folders that the controller shares by NFS, and the network that may mount them."""

    paths: list[str]
    network: str


class Group(TypedDict):
    """A Unix group."""

    name: str
    gid: int


class Rights(TypedDict, total=False):
    """The rights of a user beside others."""

    sudo: bool  # without a password
    containers: bool  # whether the user has a range of subordinate uids; without it, the range is not changed


class UnixUser(Rights):
    """A Unix user; `groups` are supplementary groups, `keys` lines of authorized_keys."""

    name: str
    uid: int
    gid: int
    groups: list[str]
    shell: str
    keys: list[str]


class NodeBoot(TypedDict):
    """/etc/hpc/node.json: the input of a compute node before it joins the cluster."""

    conf_server: str  # host:port of slurmctld
    mounts: list[Mount]


class ReleaseInput(TypedDict):
    """The stack's release of Slurm: the releases that it can replace, and the oldest that can read its files."""

    takes_over: list[str]
    nodes: str


class _Controller(TypedDict, total=False):
    release: ReleaseInput
    drain_seconds: int
    max_unavailable: float  # share of a partition's nodes whose machines are recreated at a time
    qos: list[str]  # those in slurm.conf
    adopt: bool
    slurmrestd: bool
    health: dict[str, Any]  # health/check_kinds.py
    measure: dict[str, Any]  # settings of health/measure.py
    files: dict[str, list[str]]  # Slurm's files as lines; only slurm.conf on a login machine
    environment: list[str]  # env.sh of jobs, as lines
    state: StateDiskInput
    exports: Exports


class ReconcileCloud(TypedDict):
    """The cloud of the elastic nodes' machines; `endpoint` and `token_file` are empty unless a stand-in replaces it."""

    project: str
    zone: str
    region: str
    cluster: str
    endpoint: str
    token_file: str


class _Template(TypedDict):
    way: str
    template: str


class ReconcileTemplate(_Template, total=False):
    """The instance template of one capacity: on_demand, spot, reservation or flex. Machines of flex start have
    `run_seconds`, after which they are deleted, and may have the placement policy `policy`."""

    run_seconds: int
    policy: str


class ReconcileNodeset(TypedDict):
    """A nodeset: the names of its elastic and static nodes, and its templates in the order in which they are tried. It
    has no templates without elastic nodes."""

    nodes: list[str]
    static: list[str]
    templates: list[ReconcileTemplate]
    idle_seconds: int
    boot_seconds: int  # a machine that has not joined by then is deleted


class Spares(TypedDict):
    """A nodeset with spare nodes: all of its nodes in order, and the number of spares."""

    nodes: list[str]
    count: int


class BudgetInput(TypedDict):
    """The budget of a month and, in its currency, prices of an hour: `hour` of all that exists without jobs, `nodes` of
    one elastic node by nodeset. `stop`: whether none is created once it is used. `unpriced`: what has no price."""

    month: float
    currency: str
    stop: bool
    hour: float
    nodes: dict[str, float]
    unpriced: list[str]


class _Reconcile(TypedDict):
    mode: str  # act, advise or off
    actions_per_hour: int
    max_unavailable: float
    maintain: bool  # whether to start host maintenance of idle static nodes before its window
    cloud: ReconcileCloud
    nodesets: dict[str, ReconcileNodeset]
    spares: dict[str, Spares]


class ReconcileInput(_Reconcile, total=False):
    """/etc/hpc/reconcile.json: settings of the controller's reconcile service. `nodesets` and `cloud` are empty if no
    node is elastic or can be repaired; `budget` is absent without one."""

    budget: BudgetInput


class OpsAgent(TypedDict):
    """A platform's agent that sends it metrics: its unit, its configuration file, and the lines of that."""

    unit: str
    file: str
    lines: list[str]


class WebInput(TypedDict):
    """Prometheus' listener for other machines: the user, and the files of the password and of the certificate with its
    key."""

    user: str
    password: str
    certificate: str


class _Metrics(TypedDict):
    stack: str
    interval_seconds: int
    leave_out: list[str]
    idle: str


class MonitoringInput(_Metrics, total=False):
    """Settings of monitoring, on the controller and on Prometheus' own machine. `stack`: its name, for the commands of
    findings. `leave_out`: beginnings of names of metrics that the set-up's exporter does not write. `idle`: the query
    of idle GPUs by job, empty without GPUs. `prometheus_on`: Prometheus' own machine; absent without one. Only the
    machine with Prometheus has the rest: the arguments of Prometheus and Alertmanager, the lines of their files below
    /etc/prometheus, and in `secrets` the files whose texts replace marks in alertmanager.yml."""

    prometheus_on: str
    prometheus: str
    alertmanager: str
    ops_agent: OpsAgent  # absent where its configuration is the image's
    web: WebInput  # absent where Prometheus listens on the loopback address alone
    secrets: dict[str, str]
    files: dict[str, list[str]]


class GpuExporter(TypedDict):
    """dcgm-exporter on nodes with GPUs: arguments, and the lines of its file of fields."""

    arguments: str
    fields: list[str]


class TopologyInput(TypedDict):
    """The nodes of each nodeset as host lists, and whether topology.conf has a switch per reported place."""

    nodesets: dict[str, str]
    places: bool


class _Containers(_Controller, total=False):
    containers: str  # `containers.data` of the stack, if that is not the default
    reconcile: ReconcileInput  # absent if no node is elastic or spare, and there is no budget
    topology: TopologyInput  # absent without topology.conf
    monitoring: MonitoringInput  # on the controller and on Prometheus' own machine; absent without metrics
    node_exporter: str  # arguments of node_exporter; absent without metrics
    gpu_exporter: GpuExporter  # absent without metrics or GPUs


class Configure(_Containers):
    """Input of phase `configure`. Of the optional keys, only `containers`, `node_exporter` and `monitoring` are not for
    the controller alone."""

    cluster: str
    roles: list[str]
    conf_server: str
    mounts: list[Mount]
    users: list[UnixUser]
    groups: list[Group]
    setup: str


class _Stored(TypedDict, total=False):
    state: StateDiskInput


class Prologs(_Stored):
    """Input of phase `prologs`: the tree of scripts. A script is {lines} or {url, sha256}."""

    cluster: str
    controller_nodeset: str
    mounts: list[Mount]
    scripts: dict[str, dict[str, Any]]
    rxdm: dict[str, Any] | None
    links: dict[str, str]
    setup: str


class RxdmInput(TypedDict):
    """Input of phase `rxdm`: the hash of the original, the links that start it, and texts on known versions by hash."""

    sha256: str
    links: dict[str, str]
    known: dict[str, str]
    setup: str


class AccountingInput(TypedDict):
    """Input of phase `accounting`: accounts with parents first, users and QOS, with the names of sacctmgr's options."""

    cluster: str
    accounts: list[dict[str, Any]]
    users: list[dict[str, Any]]
    qos: list[dict[str, Any]]


class Restore(TypedDict):
    """Input of phase `restore`: an uploaded backup, and the stack's accounts, users and QOS."""

    file: str
    sha256: str
    desired: AccountingInput


class AwaitedNode(TypedDict):
    """A node to wait for; `host_key` is its public SSH host key, empty if only the node itself has it."""

    name: str
    address: str
    host_key: str


class Probe(TypedDict):
    """A partition and the user who runs a job in it, empty if none can; an empty account or QOS is the default."""

    partition: str
    user: str
    account: str
    qos: str
    minutes: int  # time limit of the job, which includes the prolog
    rxdm: bool  # whether the prolog is rxdm's


class _Config(TypedDict, total=False):
    adopt: bool
    containers: str
    health: dict[str, Any]  # health/check_kinds.py
    node_exporter: str
    gpu_exporter: GpuExporter


class ClusterDocument(_Config):
    """/opt/apps/adm/hpc/cluster.json: the config version that nodes follow. `digest` is over all other keys."""

    cluster: str
    users: list[UnixUser]
    groups: list[Group]
    setup: str
    munge: str  # fingerprint of the key that the controller runs with
    slurmd: str  # hash of the settings that slurmd reads only at its start
    digest: str


class MachineReport(TypedDict, total=False):
    """/opt/apps/adm/hpc/nodes/NAME.json: the last report of a machine; `state` is configured or failed."""

    state: str
    digest: str
    message: str
    boot: str
    host_key: str
    munge: str
    place: str  # the cloud's name of its host, /CLUSTER/BLOCK/HOST; absent where there is none


class _Unit(TypedDict, total=False):
    journal: list[str]  # the last lines, if the unit is failing


class Unit(_Unit):
    """A systemd unit; times are seconds since the epoch, 0: never."""

    state: str
    sub: str
    result: str
    restarts: int
    since: float
    started: float


class FileSystemReport(TypedDict, total=False):
    """A file system: bytes and inodes. Only shared ones have `mounted` and `shared`."""

    mounted: bool
    shared: bool
    device: int
    size: int
    used: int
    free: int
    inodes: int
    inodes_free: int
    read_only: bool
    error: str


class _Munge(TypedDict, total=False):
    why: str
    ahead: float  # seconds that its clock is ahead of the machine's


class Munge(_Munge):
    """The result of a test of munged's own credential; fingerprints of its key and of the delivered one."""

    works: bool
    key: str
    delivered: str


class Reached(TypedDict, total=False):
    """The result of connecting to slurmctld's port from a machine."""

    host: str
    port: int
    reached: bool
    why: str


class StateFolder(TypedDict):
    """The cluster state on a machine: the newest config version, the machine's report, and what is damaged."""

    newest: dict[str, str]
    report: MachineReport
    damaged: str


class SlurmFiles(TypedDict, total=False):
    """Hashes of Slurm's files in /etc/slurm, in slurmd's cache, and of those that slurmctld runs with; their texts."""

    etc: dict[str, str]
    cache: dict[str, str]
    applied: dict[str, str]
    texts: dict[str, str]


class Protected(TypedDict):
    """Wrong modes of files by path {wanted, there}, keys of root by hash, and the hash of the controller's key."""

    modes: dict[str, dict[str, str]]
    root: dict[str, str]
    cluster_key: str


class Accounts(TypedDict):
    """Users and groups of the machine, and the names of those that the set-up made."""

    managed: dict[str, list[str]]
    users: dict[str, dict[str, Any]]
    groups: dict[str, int]


class Software(TypedDict):
    """Versions by component of cluster/catalog/floors.py, and daemons whose program was replaced while they ran."""

    versions: dict[str, str]
    replaced: list[str]


class Observation(TypedDict, total=False):
    """The document that phase `look` prints. A part, also of `slurm`, `accounting` and `disks`, that can't be read is
    {"error": why}."""

    name: str
    roles: list[str]
    time: float
    seconds: float
    boot: dict[str, Any]  # id, uptime
    cluster_state: StateFolder
    followed: str  # digest of the config version that a node follows
    setup: str
    versions: dict[str, str]
    software: Software
    image: dict[str, Any]  # recipe, snapshot, made, baked
    munge: Munge
    daemons: dict[str, Unit]
    files: SlurmFiles
    unix: Accounts
    keys: dict[str, str]
    guarded: Protected
    disks: dict[str, FileSystemReport]
    controller: Reached
    scripts: dict[str, str]
    reconcile: dict[str, Any]  # on the controller: mode, why, brakes, cooling, alerts, jobs, actions; empty without it
    budget: dict[str, Any]  # on the controller: reconcile/budget.py; empty without one
    alerts: list[dict[str, str]]  # firing alerts, on the machine with Prometheus
    findings: list[dict[str, Any]]  # those of judge/findings.py: id, where, what, todo, note, since
    jobs: list[str]  # jobs with a process on a node
    slurm: dict[str, Any]  # nodes and partitions (rows of scontrol), jobs, config, ping, statistics, database
    accounting: dict[str, Any]  # accounts, associations, users, qos, as sacctmgr prints them
