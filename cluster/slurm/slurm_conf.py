"""slurm.conf: the controller has the file, and every other machine fetches it from there (configless mode)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce

from cluster import platform_interface
from cluster.catalog.slurm_releases import CONF, NODE, PARTITION
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import conf_fields
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.section import Value, slurm_settings
from cluster.people import preempts
from cluster.roster import (
    controller_name,
    elastic_names,
    has_gpus,
    node_names,
    nodeset_gpu,
    nodeset_type,
    sizes,
    static_names,
)
from cluster.slurm import paths, power_saving
from cluster.slurm.script_tree import has_scripts
from cluster.slurm.text import FIELD, SettingGroup, assignments, document, groups, header, overridden, section
from scripts.node.interface import SPOOLS
from scripts.node.slurm import hostlist

NODES = (
    "Sizes are the catalog's: what a machine of the type surely reports, since a node with less than this is drained. "
    "A NodeSet names the nodes of a kind for the partitions below."
)
UNBOUND = (
    "Tasks are not bound to cores (task/affinity): machines of a rehearsal share the host's, and would all bind to "
    "the same few."
)
PARTITIONS = "DefMemPerCPU: a job that asks for no memory gets a node's memory by its share of the CPUs, not all of it."
GPUS = " DefCPUPerGPU: one that asks for GPUs and not for CPUs gets a node's CPUs by its share of the GPUs."
TOKEN_SECONDS = 30 * 86400  # ours; slurmctld makes none that is valid for longer (slurm.conf(5), AuthAltParameters)
_FIRST = (
    "PartitionName",
    "Nodes",
    "Default",
    "State",
    "MaxTime",
    "DefaultTime",
    "DefMemPerCPU",
    "MaxMemPerCPU",
    "DefCPUPerGPU",
    "MinNodes",
    "MaxNodes",
    "OverSubscribe",
)
"""Order of a PartitionName line's parameters, as on existing clusters; others follow in the order of the fields."""


_SCHEDULER = ("batch_sched_delay=1", "bf_continue", "nohold_on_prolog_fail", "salloc_wait_nodes", "sbatch_wait_nodes")
"""Words of SchedulerParameters in each release from 22.05 to 26.05 (src/slurmctld, src/salloc,
src/plugins/sched/backfill)."""
_PLACES = SettingGroup(
    title="Places",
    why=f"Pid files are in {paths.RUN}: slurmctld runs as slurm, which may not write into /run. MailProg sends "
    "what --mail-type asks for, through the controller's own mail system; it takes addresses alone.",
    settings={
        "StateSaveLocation": paths.STATE,
        "SlurmdSpoolDir": SPOOLS["node"],
        "SlurmctldPidFile": f"{paths.RUN}/slurmctld.pid",
        "SlurmdPidFile": f"{paths.RUN}/slurmd.pid",
        "MailProg": paths.MAIL,
    },
)
_LOGS = SettingGroup(
    title="Logs",
    settings={
        "SlurmctldDebug": "info",
        "SlurmctldLogFile": f"{paths.LOGS}/slurmctld.log",
        "SlurmdDebug": "info",
        "SlurmdLogFile": f"{paths.LOGS}/slurmd.log",
    },
)
_LAUNCHING = SettingGroup(
    title="Launching",
    why="use_interactive_step: `salloc` opens its shell on the first node of the job, not on the login machine. "
    "Locked memory and open files are limited by the node: RDMA and data loaders need more than a login machine "
    "grants. KillOnBadExit: one dead rank ends the step; the others would wait for it, on all its GPUs, until the "
    "time limit (srun --kill-on-bad-exit=0 for steps whose tasks are their own).",
    settings={
        "MpiDefault": FIELD,
        "LaunchParameters": "use_interactive_step",
        "PropagateResourceLimitsExcept": "MEMLOCK,NOFILE",
        "KillOnBadExit": 1,
    },
)


def render_conf(config: ClusterConfig, addresses: Mapping[str, str] | None) -> str:
    """Return the text of slurm.conf. `addresses` are written beside the names, for machines without a name server."""
    partition_lines = [" ".join(assignments(partition_settings(config, name))) for name in config.partitions]
    return document(
        header(config),
        [
            *groups(settings(config, addresses)),
            section("Nodes", NODES, node_lines(config, addresses)),
            section("Partitions", PARTITIONS + (GPUS if has_gpus(config) else ""), partition_lines),
        ],
    )


def settings(config: ClusterConfig, addresses: Mapping[str, str] | None = None) -> list[SettingGroup]:
    """Return all one-line settings, in groups.

    A parameter that a field sets has the field's value, in the group that has the parameter, or else in a group of its
    own. Parameters of `slurm.extra` are only in the last group.
    """
    fixed = [
        _identity(config, addresses),
        _PLACES,
        _LOGS,
        _confinement(config),
        _scheduling(config),
        _priority(config),
        _preemption(config),
        _submission(config),
        _LAUNCHING,
        _scripts(config),
        _health(config),
        _metrics(config),
        _timers(config),
        _power_saving(config),
        _accounting(config),
    ]
    from_fields = {
        slurm.parameter: value
        for path, slurm in conf_fields(type(config))
        if (value := slurm.value(reduce(getattr, path.split("."), config))) is not None
    }
    names = {name for group in fixed for name in group.settings}
    others = {name: value for name, value in from_fields.items() if name not in names}
    extra = overridden({}, config.slurm.extra, CONF)
    groups_ = [
        replace(
            group,
            settings={
                name: from_fields.get(name, value) for name, value in group.settings.items() if name not in extra
            },
        )
        for group in (*fixed, SettingGroup(title="Further settings", settings=others))
    ]
    return [*groups_, SettingGroup(title="From slurm.extra of the stack's configuration", settings=extra)]


def _identity(config: ClusterConfig, addresses: Mapping[str, str] | None) -> SettingGroup:
    controller = controller_name(config)
    overrides = platform_interface.get(config.platform).slurm.config_overrides
    # Tokens that slurmctld makes have a limited life, because a single one can't be revoked.
    limited_tokens = tokens(config)
    if limited_tokens:
        limited_tokens["AuthAltParameters"] += f",max_token_lifespan={TOKEN_SECONDS}"
    return SettingGroup(
        title="Who and where",
        why="enable_configless: nodes and login machines fetch their files from slurmctld, so a change is one file and "
        "one `scontrol reconfigure`."
        + (" config_overrides: a machine of a rehearsal stands for a larger one." if overrides else ""),
        settings={
            "ClusterName": FIELD,
            "SlurmctldHost": f"{controller}({addresses[controller]})" if addresses else controller,
            "SlurmctldPort": paths.SLURMCTLD_PORT,
            "SlurmdPort": paths.SLURMD_PORT,
            "SlurmUser": paths.USER,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            **limited_tokens,
            "SlurmctldParameters": ",".join(
                ["enable_configless", *power_saving.controller_parameters(config, addresses)]
            ),
            "SlurmdParameters": "config_overrides" if overrides else None,
        },
    )


def tokens(config: ClusterConfig) -> dict[str, str]:
    """Return the settings by which slurmctld and slurmdbd authenticate tokens, for slurmrestd; empty without it."""
    if not config.slurm.slurmrestd:
        return {}
    return {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={paths.TOKEN_KEY}"}


def _confinement(config: ClusterConfig) -> SettingGroup:
    bound = platform_interface.get(config.platform).slurm.bind_tasks
    return SettingGroup(
        title="Confinement",
        why="Every process of a job is found and ended through its cgroup, and gets only the cores, memory and GPUs "
        "that the job was given. PrologFlags=Contain makes that cgroup when the job starts, before its first step, and "
        "runs the prolog then too, so that a node whose prolog fails never starts a task."
        + ("" if bound else f" {UNBOUND}"),
        settings={
            "ProctrackType": "proctrack/cgroup",
            "TaskPlugin": "task/affinity,task/cgroup" if bound else "task/cgroup",
            "PrologFlags": FIELD,
        },
    )


def _scheduling(config: ClusterConfig) -> SettingGroup:
    unit = (
        "CR_CPU: two jobs may share a core, one on each of its threads."
        if config.slurm.consumable == "cpu"
        else "CR_Core: jobs never share a core, whose two threads would slow each other and see each other's cache."
    )
    kind = topology(config)
    ranked = " SwitchAsNodeRank: ranks of a job are numbered block by block." if kind == "places" else ""
    return SettingGroup(
        title="Scheduling",
        why=f"Memory is given out as cores are, so that one job can't push another out of it. {unit} "
        "CR_CORE_DEFAULT_DIST_BLOCK: a job's cores, and its tasks on them, fill one socket before the next, as GPUs "
        "are numbered; otherwise they take turns, and every second rank is far from its GPU. EnforcePartLimits refuses "
        "a job that no partition could ever run, instead of letting it wait for ever. nohold_on_prolog_fail: a batch "
        "job whose prolog fails is tried on another node, and not held until somebody releases it. bf_continue: "
        "backfill goes on where it was after it let others have the lock. batch_sched_delay: a batch job that is "
        "submitted waits a second at most for the scheduler, and not three. wait_nodes: a job's script begins when all "
        f"of its nodes are up.{ranked}",
        settings={
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": ",".join([*_SCHEDULER, *power_saving.scheduler_parameters(config)]),
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": FIELD,
            "EnforcePartLimits": "ALL",
            "ScronParameters": FIELD,
            "TopologyPlugin": "topology/tree" if kind != "none" else None,
            "TopologyParam": "SwitchAsNodeRank" if kind == "places" else None,
            "GresTypes": "gpu" if has_gpus(config) else None,
        },
    )


def topology(config: ClusterConfig) -> str:
    """Return the base of topology.conf: places, nodesets, or none, if there is no such file."""
    if config.slurm.topology:
        return config.slurm.topology
    slurm = platform_interface.get(config.platform).slurm
    if slurm.places and any(map(partial(_is_placed, config), config.nodesets.values())):
        return "places"
    # With one nodeset it would have no effect. And programs that load only libslurm fail with 24.11's plugin:
    # `undefined symbol: topo_conf` (test7.12 of Slurm's own tests).
    return "nodesets" if len(config.nodesets) > 1 else "none"


def _is_placed(config: ClusterConfig, nodeset: Nodeset) -> bool:
    """Return whether machines are placed close to each other, as all with a network of the GPUs are."""
    placed = any(way.placement or (way.reservation and way.reservation.placement_policy) for way in nodeset.ways)
    return placed or nodeset_type(config, nodeset).family.fabric.nics > 0


def _priority(config: ClusterConfig) -> SettingGroup:
    counted = "in full until its period ends" if config.accounting.period else "half after a week"
    return SettingGroup(
        title="Priority",
        why="Fair share between accounts, then QOS, then age; without multifactor (the default only since 23.11) "
        f"shares and the priority of a QOS would have no effect. Usage counts {counted}.",
        settings={
            "PriorityType": "priority/multifactor",
            "PriorityDecayHalfLife": decay_half_life(config) or "7-0",
            "PriorityUsageResetPeriod": FIELD,
            "PriorityMaxAge": "7-0",
            "PriorityWeightFairshare": 10000,
            "PriorityWeightQOS": 5000,
            "PriorityWeightAge": 1000,
        },
    )


def decay_half_life(config: ClusterConfig) -> Value:
    """Return the PriorityDecayHalfLife of a cluster that counts usage by periods: none, since hours that are forgotten
    meanwhile are no budget. Without a period it is Slurm's default, and this returns None."""
    return "0" if config.accounting.period else None


def _preemption(config: ClusterConfig) -> SettingGroup:
    """Return the group of preemption. Without PreemptType, the `preempt` of QOS in the database has no effect."""
    enabled = preempts(config)
    return SettingGroup(
        title="Preemption",
        why="By QOS, where Slurm's database says that one preempts another. A batch job that has to give way begins "
        "again later, unless it was submitted with --no-requeue; jobs of srun and salloc end.",
        settings={"PreemptType": "preempt/qos" if enabled else None, "PreemptMode": "REQUEUE" if enabled else None},
    )


def _submission(config: ClusterConfig) -> SettingGroup:
    return SettingGroup(
        title="Submission",
        why="job_submit.lua, beside this file, is asked about every job that is submitted or changed.",
        settings={"JobSubmitPlugins": "lua" if config.slurm.job_submit_lua is not None else None},
    )


def _scripts(config: ClusterConfig) -> SettingGroup:
    exist = has_scripts(config)
    return SettingGroup(
        title="Prolog and epilog",
        why="One program for each runs the stack's scripts in order: those for all nodes, for the partition, for the "
        f"nodeset. A node whose prolog or epilog fails is drained; prolog.log or epilog.log in {paths.LOGS} says why.",
        settings={"Prolog": paths.PROLOG if exist else None, "Epilog": paths.EPILOG if exist else None},
    )


def _health(config: ClusterConfig) -> SettingGroup:
    health = config.slurm.health
    return SettingGroup(
        title="Health checks",
        why="The program drains a node that fails a check, and always ends with exit code 0: a slurmd that starts "
        "waits for that. ANY: nodes with jobs too. CYCLE: not on all nodes at the same moment.",
        settings={
            "HealthCheckProgram": paths.HEALTH if health else None,
            "HealthCheckInterval": health.interval if health else None,
            "HealthCheckNodeState": "ANY,CYCLE" if health else None,
        },
    )


def has_own_metrics(config: ClusterConfig) -> bool:
    """Return whether slurmctld serves its metrics itself: from 25.11 on, unless `PrivateData` is set.

    With `PrivateData`, 25.11 serves none, and later releases only with root's token. 25.11.0 to 25.11.4 can crash when
    metrics are read, so images have 25.11.7 (cluster/catalog/recipes.py).
    """
    # Nodes read the file too, also during an upgrade, when they may have an earlier release.
    release = config.nodes_release or config.slurm_version
    return config.monitoring is not None and release >= "25.11" and not private_data(config)


def private_data(config: ClusterConfig) -> bool:
    """Return whether PrivateData is set, which hides data of other users."""
    return any(name.lower() == "privatedata" and value for name, value in config.slurm.extra.items())


def _metrics(config: ClusterConfig) -> SettingGroup:
    return SettingGroup(
        title="Metrics",
        why="Prometheus on the controller reads them from slurmctld's own port. They name users and accounts to every "
        "machine of the cluster; with PrivateData in slurm.extra they are off.",
        settings={"MetricsType": "metrics/openmetrics" if has_own_metrics(config) else None},
    )


def _timers(config: ClusterConfig) -> SettingGroup:
    back = {
        0: "a node that was down stays down until somebody resumes it.",
        1: "a node that stopped answering comes back by itself, one that rebooted on its own does not.",
        2: "a node that was cut off, killed or rebooted comes back as soon as it registers; a drained one stays so.",
    }
    return SettingGroup(
        title="Timers (seconds) and nodes that come back",
        why="UnkillableStepTimeout: a process with much memory takes long to die, and its node is drained if it takes "
        f"longer than this. ReturnToService={config.slurm.return_to_service}: {back[config.slurm.return_to_service]} "
        "`scontrol reboot` has slurmd run RebootProgram once the node is idle, and slurmctld wait for it for "
        "ResumeTimeout.",
        settings={
            **slurm_settings(config.slurm.timers),
            "ReturnToService": FIELD,
            "RebootProgram": paths.REBOOT,
            "ResumeTimeout": power_saving.resume_timeout(config),
        },
    )


def _power_saving(config: ClusterConfig) -> SettingGroup:
    return SettingGroup(
        title="Power saving",
        why="Elastic nodes (State=CLOUD) have a machine only while jobs need it. The programs write requests for the "
        "controller's reconcile service, which creates and deletes machines. Rates of 0: all nodes of a job are asked "
        "for at once. PrologSlurmctld ends when a job's nodes have booted, and the job starts: by itself slurmctld "
        "looks every 30 s. SuspendTime is set on partitions with elastic nodes; static nodes are never suspended, nor "
        "are those that are drained or down, which would come back as sound. enable_expedited_requeue: `sbatch "
        "--requeue=expedite` has a job that lost a node run again at once.",
        settings=power_saving.settings(config),
    )


def _accounting(config: ClusterConfig) -> SettingGroup:
    gather = config.slurm.job_account_gather or platform_interface.get(config.platform).slurm.account_gather
    kinds = {gpu.type for nodeset in config.nodesets.values() if (gpu := nodeset_gpu(config, nodeset))}
    tres = ",".join(["gres/gpu", *(f"gres/gpu:{kind}" for kind in sorted(kinds))]) if kinds else None
    measured = (
        "Usage is read from cgroup counters, which also have processes that came and went between two samples."
        if gather == "cgroup"
        else "Usage is read from /proc, which works whatever cgroup controllers a machine may use."
    )
    return SettingGroup(
        title="Accounting",
        why="Through slurmdbd, which alone has the database's password, so AccountingStorageUser and -Pass are left "
        "out. Its host is the controller's name and not localhost: sacct and sacctmgr on login machines read this file "
        f"too. {measured}",
        settings={
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": controller_name(config),
            "AccountingStoragePort": paths.SLURMDBD_PORT,
            "AccountingStorageEnforce": FIELD,
            "AccountingStorageTRES": tres,
            "AccountingStoreFlags": "job_comment",
            "JobAcctGatherType": f"jobacct_gather/{gather}",
            "JobAcctGatherFrequency": 30,
        },
    )


def node_lines(config: ClusterConfig, addresses: Mapping[str, str] | None) -> list[str]:
    """Return NodeName lines of static and of elastic nodes, and a NodeSet line for each nodeset."""
    lines: list[str] = []
    for name, nodeset in config.nodesets.items():
        size, gpu = sizes(config, nodeset), nodeset_gpu(config, nodeset)
        settings: dict[str, Value] = {
            "NodeName": FIELD,
            "NodeAddr": FIELD,
            "CPUs": size.cpus,
            "Sockets": size.sockets,
            "CoresPerSocket": size.cores,
            "ThreadsPerCore": size.threads,
            "RealMemory": size.memory,
            "Gres": f"gpu:{gpu.type}:{gpu.count}" if gpu else None,
            **slurm_settings(nodeset),
        }
        for names, state in ((static_names(config, name), "UNKNOWN"), (elastic_names(config, name), "CLOUD")):
            if not names:
                continue
            settings["NodeName"] = hostlist.compress(names)
            settings["NodeAddr"] = hostlist.compress(addresses[node] for node in names) if addresses else None
            settings["State"] = state
            lines.append(" ".join(assignments(overridden(settings, nodeset.node_conf, NODE))))
        lines.append(f"NodeSet={name} Nodes={hostlist.compress(node_names(config, name))}")
    return lines


def memory_per_cpu(config: ClusterConfig, partition: Partition) -> int:
    """Return the MiB for each CPU with which a job on all CPUs of a node gets all memory: the least of the nodesets.

    Without it, a job that asks for no memory would get all memory of a node, and no other job could run there.
    """
    node_sizes = [sizes(config, config.nodesets[name]) for name in partition.nodesets]
    return max(1, min((size.memory - size.reserved) // size.cpus for size in node_sizes))


def cpus_per_gpu(config: ClusterConfig, partition: Partition) -> int | None:
    """Return the CPUs for each GPU of a job that asks for no CPUs: a node's share, the least of the nodesets with GPUs.

    None if no node has GPUs, if a node has more GPUs than CPUs, or if `slurm.extra` has a value for the whole cluster.
    """
    if "defcpupergpu" in {name.lower() for name in config.slurm.extra}:
        return None
    shares = [
        sizes(config, section).cpus // gpu.count
        for section in (config.nodesets[name] for name in partition.nodesets)
        if (gpu := nodeset_gpu(config, section))
    ]
    return min(shares, default=0) or None


def partition_settings(config: ClusterConfig, name: str) -> dict[str, Value]:
    """Return parameters and values of one partition's line, in order."""
    part = config.partitions[name]
    settings: dict[str, Value] = {
        **dict.fromkeys(_FIRST),
        **slurm_settings(part),
        "PartitionName": name,
        "State": "UP",
        "DefMemPerCPU": part.def_mem_per_cpu or memory_per_cpu(config, part),
        "DefCPUPerGPU": cpus_per_gpu(config, part),
        **power_saving.partition_settings(config, name),
    }
    return overridden(settings, part.conf, PARTITION)
