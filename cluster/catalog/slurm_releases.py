"""Releases of Slurm: the parameters of slurm.conf that each has, and the upgrades between them.

Source of parameters: the option tables that slurmctld itself parses with (src/common/read_config.c of
github.com/SchedMD/slurm at tags slurm-22-05-8-1, slurm-23-11-4-1, slurm-24-05-8-1, slurm-24-11-7-1, slurm-25-05-8-1,
slurm-25-11-7-1 and slurm-26-05-3-1), without what these mark as defunct, refuse when it is set, or take only as an old
spelling of something else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

VERSIONS = ("22.05", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")


@dataclass(frozen=True, kw_only=True)
class ParameterTable:
    """Parameters of one kind of line."""

    always: tuple[str, ...]
    """Parameters that every release of VERSIONS has."""
    some: dict[str, tuple[str, str]]
    """Parameters with the first and the last release that has them."""
    _canonical: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_canonical", {name.lower(): name for name in (*self.always, *self.some)})

    def canonical(self, name: str) -> str | None:
        """Return the manual's spelling of a name, which Slurm reads in any case; None if no release has it."""
        return self._canonical.get(name.lower())

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the releases that have a parameter, given in the manual's spelling."""
        if name in self.some:
            first, last = (VERSIONS.index(version) for version in self.some[name])
            return VERSIONS[first : last + 1]
        return VERSIONS if name in self.always else ()

    def names(self, version: str) -> list[str]:
        """Return all parameters of a release."""
        return sorted([*self.always, *(name for name in self.some if version in self.versions(name))])


def _ranges(text: str) -> dict[str, tuple[str, str]]:
    """Parse lines of parameters that follow their first and last release. Returns both releases by name."""
    releases: dict[str, tuple[str, str]] = {}
    first = last = ""
    for word in text.split():
        if word.endswith(":"):
            first, _, last = word[:-1].partition("-")
        else:
            releases[word] = first, last
    return releases


CONF = ParameterTable(
    always=tuple(
        """
    AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageParameters AccountingStoragePass AccountingStoragePort AccountingStorageTRES
    AccountingStorageType AccountingStoreFlags AcctGatherEnergyType
    AcctGatherFilesystemType AcctGatherInterconnectType AcctGatherNodeFreq AcctGatherProfileType
    AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo AuthType BatchStartTimeout BcastExclude
    BcastParameters BurstBufferType CliFilterPlugins ClusterName CommunicationParameters CompleteWait CpuFreqDef
    CpuFreqGovernors CredType DebugFlags DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode
    DependencyParameters DisableRootJobs EioTimeout EnforcePartLimits Epilog EpilogMsgTime EpilogSlurmctld
    FairShareDampeningFactor FederationParameters FirstJobId GpuFreqDef GresTypes GroupUpdateForce
    GroupUpdateTime HealthCheckInterval HealthCheckNodeState HealthCheckProgram InactiveLimit
    InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc
    JobCompParams JobCompPass JobCompPort JobCompType JobCompUser JobContainerType JobFileAppend JobRequeue
    JobSubmitPlugins KillOnBadExit KillWait LaunchParameters Licenses LogTimeFormat MailDomain MailProg
    MaxArraySize MaxDBDMsgs MaxJobCount MaxJobId MaxMemPerCPU MaxMemPerNode MaxNodeCount MaxStepCount
    MaxTasksPerNode MCSParameters MCSPlugin MessageTimeout MinJobAge MpiDefault MpiParams NodeFeaturesPlugins
    OverTimeLimit PluginDir PlugStackConfig PreemptExemptTime PreemptMode PreemptType PrEpParameters PrEpPlugins
    PriorityCalcPeriod PriorityDecayHalfLife PriorityFavorSmall PriorityFlags PriorityMaxAge PriorityParameters
    PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
    PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition
    PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog PrologEpilogTimeout PrologFlags
    PrologSlurmctld PropagatePrioProcess PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram
    ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout
    ResvEpilog ResvOverRun ResvProlog ReturnToService SchedulerParameters SchedulerTimeSlice SchedulerType
    ScronParameters SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldLogFile
    SlurmctldParameters SlurmctldPidFile SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg
    SlurmctldSyslogDebug SlurmctldTimeout SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort
    SlurmdSpoolDir SlurmdSyslogDebug SlurmdTimeout SlurmdUser SlurmSchedLogFile SlurmSchedLogLevel SlurmUser
    SrunEpilog SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendProgram
    SuspendRate SuspendTime SuspendTimeout SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam
    TaskProlog TCPTimeout TmpFS TopologyParam TopologyPlugin TrackWCKey TreeWidth UnkillableStepProgram
    UnkillableStepTimeout UsePAM VSizeFactor WaitTime X11Parameters
        """.split()
    ),
    some=_ranges(
        """
    22.05-22.05: ExtSensorsFreq ExtSensorsType JobCredentialPrivateKey JobCredentialPublicCertificate
    KeepAliveTime RoutePlugin SlurmctldPlugstack
    22.05-23.11: CoreSpecPlugin PowerParameters PowerPlugin
    22.05-24.11: GetEnvTimeout
    22.05-25.05: AccountingStorageUser
    23.11-26.05: MaxBatchRequeue PreemptParameters SuspendExcStates
    24.05-26.05: HashPlugin TLSParameters TLSType
    24.11-26.05: CertmgrParameters CertmgrType DataParserParameters
    25.05-26.05: CertgenParameters CertgenType EpilogTimeout PrologTimeout
    25.11-26.05: CliFilterParameters HttpParserType JobCompPassScript MetricsType NamespaceType UrlParserType
    26.05-26.05: HealthCheckTimeout LicenseParameters MetricsAuthUsers MetricsParameters
    SlurmctldHttpAuthParameters SlurmdHttpAuthParameters
        """
    ),
)
"""Parameters of slurm.conf that take one line."""

NODE = ParameterTable(
    always=tuple(
        """
    BcastAddr CoreSpecCount CoresPerSocket CpuBind CPUs CPUSpecList Feature Gres MemSpecLimit NodeAddr
    NodeHostname Port RealMemory Reason Sockets State ThreadsPerCore TmpDisk TRESWeights Weight
        """.split()
    ),
    some=_ranges(
        """
    24.05-26.05: RestrictedCoresPerGPU
    25.05-26.05: Topology
    25.11-26.05: GresConf Parameters
    26.05-26.05: SuspendTime
        """
    ),
)
"""Parameters of NodeName lines. Of two spellings of a parameter, it has the one that this program writes."""

PARTITION = ParameterTable(
    always=tuple(
        """
    AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default DefaultTime DefCPUPerGPU
    DefMemPerCPU DefMemPerGPU DefMemPerNode DenyAccounts DenyQos DisableRootJobs ExclusiveUser GraceTime Hidden
    LLN MaxCPUsPerNode MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes OverSubscribe OverTimeLimit
    PreemptMode PriorityJobFactor PriorityTier QOS ReqResv ResumeTimeout RootOnly SelectTypeParameters State
    SuspendTime SuspendTimeout TRESBillingWeights
        """.split()
    ),
    some=_ranges(
        """
    23.11-26.05: MaxCPUsPerSocket PowerDownOnIdle
    24.05-26.05: ExclusiveTopo
    25.05-26.05: Topology
    26.05-26.05: Exclusive
        """
    ),
)
"""Parameters of PartitionName lines."""

PROLOG_FLAGS = ParameterTable(
    always=("Alloc", "Contain", "DeferBatch", "NoHold", "Serial", "X11"),
    some={"ForceRequeueOnFail": ("23.11", "26.05"), "RunInJob": ("24.05", "26.05")},
)
"""Words of PrologFlags (prolog_str2flags of the same file)."""

POWER_SAVING = ParameterTable(
    always=("idle_on_node_suspend", "cloud_dns"),
    some=_ranges(
        """
    22.05-22.05: cloud cloud_reg_addrs
    23.11-26.05: KeepPowerSaveSettings
    25.05-26.05: requeue_on_resume_failure
    25.11-26.05: enable_expedited_requeue
        """
    ),
)
"""Words about elastic nodes: of SlurmctldParameters, ReconfigFlags (KeepPowerSaveSettings), SchedulerParameters
(requeue_on_resume_failure) and PrivateData (cloud), in slurm.conf(5) at the same tags. What cloud and cloud_reg_addrs
did is so without them later."""
ENDLESS_RESUME = VERSIONS[VERSIONS.index("25.05") :]
"""Releases whose ResumeTimeout may be INFINITE; before, that is a number of seconds (src/slurmctld/power_save.c)."""

UPGRADES: Mapping[str, tuple[str, ...]] = {
    "22.05": (),
    "23.02": ("22.05",),
    "23.11": ("23.02", "22.05"),
    "24.05": ("23.11", "23.02"),
    "24.11": ("24.05", "23.11", "23.02"),
    "25.05": ("24.11", "24.05", "23.11"),
    "25.11": ("25.05", "24.11", "24.05"),
    "26.05": ("25.11", "25.05", "24.11"),
}
"""Each release with those from which it is an upgrade, the newest first; those before 22.05 are left out.

Source: the table "Compatibility Window" of SchedMD's upgrade guide (doc/html/upgrades.shtml at slurm-26-05-3-1) and the
release notes of each release (RELEASE_NOTES at slurm-23-02-8-1 to slurm-26-05-3-1): the two releases before, and from
24.11 on the three before. No release goes back to an earlier one."""


SUPPORT_ENDS: Mapping[str, str] = {
    "23.11": "2025-05-31",
    "24.05": "2025-11-30",
    "24.11": "2026-05-31",
    "25.05": "2026-11-30",
    "25.11": "2027-05-31",
    "26.05": "2027-11-30",
}
"""The last day of SchedMD's support for a release, YYYY-MM-DD: 18 months from its own month on (the same table, whose
row of 26.05 has both November 2028 and 18 months; the earlier date is used)."""
SUPPORT_NOTICE = 60
"""Days before the end of support from which a warning is printed (ours), so that an upgrade can be planned."""


def takes_over(new: str, old: str) -> bool:
    """Return whether slurmctld and slurmdbd of release `new` can read the state of release `old`."""
    return new == old or old in UPGRADES.get(new, ())


def upgrade_path(old: str, new: str) -> tuple[str, ...]:
    """Return the shortest sequence of releases from `old` to `new`, both included, with the newest releases between;
    empty if there is none."""
    paths = [(new,)]
    for path in paths:  # the list grows while it is read, so that shorter paths come first
        if path[0] == old:
            return path
        paths += [(before, *path) for before in UPGRADES.get(path[0], ())]
    return ()
