"""Types of the JSON that crosses between a stack and its machines.

The stack's side (components/slurm/payload.py, cluster/observe) imports them too, so that one definition is checked by
types on both sides. Machines of an earlier version read and write some of these: keys are added, never renamed.
"""

from typing import Any, Literal, TypedDict, get_args

Role = Literal["controller", "login", "monitoring", "node"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Roles of machines, in the order in which machines are listed."""


class Mount(TypedDict):
    """A file system: what `mount -t fs_type -o options source target` takes."""

    source: str
    target: str
    fs_type: str
    options: str


class StateDisk(TypedDict):
    """The source of the controller's state, as in fstab, and the folders that are kept on it."""

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
    containers: bool  # a range of subordinate uids; left alone where it is not said


class User(Rights):
    """A Unix user; `groups` are supplementary groups, `keys` lines of authorized_keys."""

    name: str
    uid: int
    gid: int
    groups: list[str]
    shell: str
    keys: list[str]


class NodeBoot(TypedDict):
    """/etc/hpc/node.json: all that a compute node has before it joins."""

    conf_server: str  # host:port of slurmctld
    mounts: list[Mount]


class Release(TypedDict):
    """Slurm's release of the stack: those that it takes over from, and the oldest that its files are made for."""

    takes_over: list[str]
    nodes: str


class _Controller(TypedDict, total=False):
    release: Release
    drain_seconds: int
    max_unavailable: float  # part of a partition's nodes whose machines are recreated at a time
    qos: list[str]  # that slurm.conf names
    adopt: bool
    slurmrestd: bool
    health: dict[str, Any]  # health/kinds.py
    measure: dict[str, Any]  # what health/measure.py measures
    files: dict[str, list[str]]  # Slurm's, as lines; a login machine has slurm.conf alone
    environment: list[str]  # env.sh of jobs, as lines
    state: StateDisk
    exports: Exports


class ReconcileCloud(TypedDict):
    """The cloud of the elastic nodes' machines; `endpoint` and `token_file` are empty for its own."""

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
    """The instance template of one way to ask for machines: on_demand, spot, reservation or flex. Machines of flex
    start have `run_seconds`, after which they are deleted, and may have `policy`, of their placement."""

    run_seconds: int
    policy: str


class ReconcileNodeset(TypedDict):
    """A nodeset: names of its elastic and static nodes, and its templates in the order in which they are tried. One
    without elastic nodes has no template."""

    nodes: list[str]
    static: list[str]
    templates: list[ReconcileTemplate]
    idle_seconds: int
    boot_seconds: int


class Spares(TypedDict):
    """A nodeset with spare nodes: all of its nodes in their order, and how many are held back."""

    nodes: list[str]
    count: int


class Reconcile(TypedDict):
    """/etc/hpc/reconcile.json: what the controller's reconcile service works with. Where no node is elastic and none is
    repaired, `nodesets` is empty, and so is `cloud`."""

    mode: str  # act, advise or off
    actions_per_hour: int
    max_unavailable: float
    maintain: bool  # hosts of idle static nodes, before their window
    cloud: ReconcileCloud
    nodesets: dict[str, ReconcileNodeset]
    spares: dict[str, Spares]


class OpsAgent(TypedDict):
    """A platform's own agent, which sends metrics to it: its unit, its file of configuration, and lines of that."""

    unit: str
    file: str
    lines: list[str]


class Web(TypedDict):
    """Prometheus' listener for others than this machine: the user, and files of the password and of the certificate
    with its key."""

    user: str
    password: str
    certificate: str


class _Metrics(TypedDict):
    interval_seconds: int
    leave_out: list[str]
    idle: str


class Monitoring(_Metrics, total=False):
    """Metrics of the cluster, on the controller and on Prometheus' own machine. `leave_out`: beginnings of names that
    the set-up's own exporter leaves out. `idle`: the query of idle GPUs by job, empty without GPUs. `prometheus_on`:
    Prometheus' own machine; absent without one. The rest is that machine's, or the controller's: arguments of
    Prometheus and Alertmanager, texts of their files below /etc/prometheus, and of `secrets` the marks in
    alertmanager.yml with the files that have their texts."""

    prometheus_on: str
    prometheus: str
    alertmanager: str
    ops_agent: OpsAgent  # absent where its configuration is the image's
    web: Web  # absent where Prometheus listens on the loopback address alone
    secrets: dict[str, str]
    files: dict[str, list[str]]


class GpuExporter(TypedDict):
    """dcgm-exporter on nodes with GPUs: arguments, and the lines of its file of fields."""

    arguments: str
    fields: list[str]


class Topology(TypedDict):
    """Nodes of each nodeset as host lists, and whether those that report a place are below the switch of that."""

    nodesets: dict[str, str]
    places: bool


class _Containers(_Controller, total=False):
    containers: str  # where enroot keeps containers, if that is not the default
    reconcile: Reconcile  # absent where no node is elastic or spare
    topology: Topology  # absent without topology.conf
    watch: str  # the address of the machine that brings the controller back in its other zone; absent without one
    monitoring: Monitoring  # the controller's, and that of Prometheus' own machine; absent without metrics
    node_exporter: str  # arguments of node_exporter; absent without metrics
    gpu_exporter: GpuExporter  # absent without metrics or GPUs


class Configure(_Containers):
    """Phase `configure`; of the optional keys only `containers`, `node_exporter` and `monitoring` are not the
    controller's alone."""

    cluster: str
    roles: list[str]
    conf_server: str
    mounts: list[Mount]
    users: list[User]
    groups: list[Group]
    setup: str


class _Stored(TypedDict, total=False):
    state: StateDisk


class Prologs(_Stored):
    """Phase `prologs`: the tree of scripts. A script is {lines} or {url, sha256}."""

    cluster: str
    controller_nodeset: str
    mounts: list[Mount]
    scripts: dict[str, dict[str, Any]]
    rxdm: dict[str, Any] | None
    links: dict[str, str]
    setup: str


class Rxdm(TypedDict):
    """Phase `rxdm`: hash of the original, links that start it, and what is known of its versions by hash."""

    sha256: str
    links: dict[str, str]
    known: dict[str, str]
    setup: str


class Accounting(TypedDict):
    """Phase `accounting`: accounts with parents first, users and QOS, with sacctmgr's names of options."""

    cluster: str
    accounts: list[dict[str, Any]]
    users: list[dict[str, Any]]
    qos: list[dict[str, Any]]


class Restore(TypedDict):
    """Phase `restore`: an uploaded backup, and what the stack has of accounts, users and QOS."""

    file: str
    sha256: str
    desired: Accounting


class Node(TypedDict):
    """A node to wait for; `host_key` is its public SSH host key, or empty where only the node itself has it."""

    name: str
    address: str
    host_key: str


class Probe(TypedDict):
    """A partition, and who runs a job in it; an empty account or QOS is the user's default, an empty user nobody."""

    partition: str
    user: str
    account: str
    qos: str
    minutes: int  # time limit of a job, of which its prolog is part
    rxdm: bool  # whether that is rxdm's


class _Config(TypedDict, total=False):
    adopt: bool
    containers: str
    health: dict[str, Any]  # health/kinds.py
    node_exporter: str
    gpu_exporter: GpuExporter


class ClusterConfig(_Config):
    """/opt/apps/adm/hpc/cluster.json: the config version that nodes follow. `digest` is over all other keys."""

    cluster: str
    users: list[User]
    groups: list[Group]
    setup: str
    munge: str  # fingerprint of the key that the controller runs with
    slurmd: str  # hash of what slurmd reads only at its start
    digest: str


class Report(TypedDict, total=False):
    """/opt/apps/adm/hpc/nodes/NAME.json: what a machine did last, `state` is configured or failed."""

    state: str
    digest: str
    message: str
    boot: str
    host_key: str
    munge: str
    place: str  # the cloud's name of its host, /CLUSTER/BLOCK/HOST; absent where there is none


class _Unit(TypedDict, total=False):
    journal: list[str]  # the last lines of one that is not well


class Unit(_Unit):
    """A systemd unit; times are seconds since the epoch, 0: never."""

    state: str
    sub: str
    result: str
    restarts: int
    since: float
    started: float


class Disk(TypedDict, total=False):
    """A file system: bytes and inodes; `mounted` and `shared` are of shared ones."""

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
    """The cluster state as a machine sees it: newest config version, its own report, and what is damaged."""

    newest: dict[str, str]
    report: Report
    damaged: str


class Files(TypedDict, total=False):
    """Slurm's files: hashes in /etc/slurm, in slurmd's cache, of those that slurmctld runs with; texts of the last."""

    etc: dict[str, str]
    cache: dict[str, str]
    applied: dict[str, str]
    texts: dict[str, str]


class Protected(TypedDict):
    """Wrong modes of secrets by path {wanted, there}, keys of root by hash, hash of the controller's key to nodes."""

    modes: dict[str, dict[str, str]]
    root: dict[str, str]
    cluster_key: str


class Accounts(TypedDict):
    """Users and groups of the machine, and which of them the set-up made."""

    managed: dict[str, list[str]]
    users: dict[str, dict[str, Any]]
    groups: dict[str, int]


class Observation(TypedDict, total=False):
    """The document that phase `look` prints. Any part, or part of `slurm`, `accounting` and `disks`, that could not be
    read is {"error": why}."""

    name: str
    roles: list[str]
    time: float
    seconds: float
    boot: dict[str, Any]  # id, uptime
    cluster_state: StateFolder
    followed: str  # digest of the config version that a node follows
    setup: str
    versions: dict[str, str]
    image: dict[str, Any]  # recipe, snapshot, made, baked
    munge: Munge
    daemons: dict[str, Unit]
    files: Files
    unix: Accounts
    keys: dict[str, str]
    guarded: Protected
    disks: dict[str, Disk]
    controller: Reached
    scripts: dict[str, str]
    reconcile: dict[str, Any]  # a controller's: mode, why, brakes, cooling, alerts, jobs, actions; empty without a loop
    failover: dict[str, Any]  # a controller's: time, mode, armed, said, journal, why it can't be read; absent without
    alerts: list[dict[str, str]]  # those that fire; absent where Prometheus is not
    jobs: list[str]  # that have a process on a node; `records` of accounting/records.py are the controller's
    slurm: dict[str, Any]  # nodes and partitions (rows of scontrol), jobs, config, ping, statistics, database
    accounting: dict[str, Any]  # accounts, associations, users, qos, as sacctmgr prints them
