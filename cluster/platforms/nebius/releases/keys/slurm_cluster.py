"""Keys of the chart helm-slurm-cluster, which writes the SlurmCluster."""

_RESOURCES = "resources(cpu memory ephemeralStorage)"
_CONTAINER = f"{_RESOURCES} imagePullPolicy@1.15.1 appArmorProfile@1.15.1 command*@1.20.0 args*@1.20.0"
_PROBED = f"{_CONTAINER} livenessProbe*@3.0.3 readinessProbe*@3.0.3"
_POD = "k8sNodeFilterName customInitContainers*@1.20.0 priorityClass@1.22.0 hostUsers@1.23.0"
_MOUNTS = "name mountPath subPath readOnly volumeSourceName volumeClaimTemplateSpec*"
_VOLUME = "volumeSourceName volumeClaimTemplateSpec*"
_RBAC = "rbac@2.0.0(create) serviceAccount@2.0.0(create name)"

_ACCOUNTING = f"""
{_POD} enabled slurmdbd({_PROBED} port) munge({_PROBED})
externalDB(enabled host port user passwordSecretKeyRef(name key) tls@1.21.1(serverCASecretRef clientCertSecretRef)
storageParameters*@1.21.1)
mariadbOperator(enabled protectedSecret@1.16.0 {_RESOURCES} replicas replication* storage* podSecurityContext*
securityContext* metrics(enabled) priorityClassName@2.0.0)
slurmConfig(accountingStorageTRES accountingStoreFlags acctGatherInterconnectType acctGatherFilesystemType
acctGatherProfileType jobAcctGatherType jobAcctGatherFrequency jobAcctGatherParams priorityWeightAge
priorityWeightFairshare priorityWeightQOS@1.17.0 priorityWeightTRES)
slurmdbdConfig(archiveEvents archiveJobs archiveResvs archiveSteps archiveSuspend archiveTXN archiveUsage debugLevel
tcpTimeout purgeEventAfter purgeJobAfter purgeResvAfter purgeStepAfter purgeSuspendAfter purgeTXNAfter purgeUsageAfter
privateData debugFlags)
"""

_CONTROLLER = f"""
{_POD} size@-1.22.0 slurmctld({_PROBED} port) munge({_PROBED})
volumes(spool({_VOLUME}) jail({_VOLUME}) customMounts@1.19.0({_MOUNTS}))
rbac@3.0.0(create) serviceAccount@3.0.0(create name)
openMetrics@4.0.0(enabled serviceMonitor(interval scrapeTimeout endpoints))
"""

_WORKER = f"""
{_POD} size maxUnavailable@1.22.0 cgroupVersion enableGDRCopy@1.16.0 slurmNodeExtra@1.16.1
supervisordConfigMapRefName@1.16.0 sshdConfigMapRefName@1.17.0 workerAnnotations*@1.20.0
waitForController@1.21.9-1.22.0 priorityClass@1.18.0
slurmd(resources(cpu memory ephemeralStorage gpu) port imagePullPolicy@1.15.1 appArmorProfile@1.15.1 command*@1.20.0
args*@1.20.0 securityLimitsConfig@1.16.0 customEnv*@1.23.1 procMount@2.0.0)
munge({_CONTAINER})
volumes(spool({_VOLUME}) jail({_VOLUME}) jailSubMounts({_MOUNTS}) customMounts@1.19.0({_MOUNTS}) sharedMemorySize)
"""

_LOGIN = f"""
{_POD} size sshd({_PROBED} port) munge({_PROBED}) sshRootPublicKeys sshdServiceType sshdServiceLoadBalancerIP
sshdServiceLoadBalancerSourceRanges@1.22.0 sshdServiceNodePort sshdServiceAnnotations*
volumes(jail({_VOLUME}) jailSubMounts({_MOUNTS}) customMounts@1.19.0({_MOUNTS}))
"""

_EXPORTER = f"""
{_POD} enabled size imagePullPolicy@1.15.1 appArmorProfile@1.15.1 exporter({_CONTAINER}) munge({_CONTAINER})
volumes(jail({_VOLUME})) podMonitorConfig@1.22.0(jobLabel interval scrapeTimeout) collectionInterval@1.22.0 {_RBAC}
exporterContainer@3.0.3(livenessProbe* readinessProbe*)
"""

_REST = f"{_POD} enabled size threadCount@1.21.3 maxConnections@1.21.3 rest({_PROBED})"

_SSSD = f"""
enabled sssdDebugLevel sssdConfSecretRefName sssdLdapCAConfigMapRefName image {_RESOURCES} imagePullPolicy
appArmorProfile command* args* livenessProbe* readinessProbe*
"""

_CONFIG_CONTROLLER = f"""
hostUsers@1.23.0 node(k8sNodeFilterName size priorityClass@1.22.0)
container({_RESOURCES} imagePullPolicy livenessProbe*@3.0.3 readinessProbe*@3.0.3) jailSlurmConfigPath@1.21.9-1.22.0
reconfigurePollInterval@1.22.0 reconfigureWaitTimeout@1.22.0 runAsUid@1.22.0 runAsGid@1.22.0
serviceMonitor@1.23.0(enabled jobLabel interval scrapeTimeout) {_RBAC}
"""

_NCCL = """
enabled schedule activeDeadlineSeconds successfulJobsHistoryLimit failedJobsHistoryLimit
ncclArguments(minBytes maxBytes stepFactor timeout thresholdMoreThan useInfiniband)
failureActions(setSlurmNodeDrainState) k8sNodeFilterName imagePullPolicy@1.15.1 appArmorProfile@1.15.1
"""

_SCRIPTS = """
alloc_gpus_busy.drain.sh* alloc_gpus_busy.undrain.sh* alloc_mem_used.drain.sh* alloc_mem_used.undrain.sh*
boot_disk_full.sh* chmod_enroot_layers.sh* cleanup_enroot.sh* cleanup_scratch_data.sh* drop_page_cache.sh*
drop_posix_shmem.sh* gpu_health_check.py* job_tmpfs_delete.sh* job_tmpfs_delete_leftover.sh* job_tmpfs_recreate.sh*
map_job_dcgm.sh* nvme_raid_health.sh*@3.0.3 unmap_job_dcgm.sh*
"""

TEXT = f"""
clusterName annotations* pause@-1.23.0 clusterType@-4.0.0 useDefaultAppArmorProfile@1.17.0
cudaMajorVersion@1.23.2-2.0.0 cudaVersion@2.0.0
partitionConfiguration(configType rawConfig partitions@1.23.0(name isAll nodeSetRefs config))
workerFeatures@1.20.0-3.0.0(name hostlistExpr nodesetName)
healthCheckConfig@1.20.0(healthCheckInterval healthCheckProgram healthCheckNodeState(state))
k8sNodeFilters(name affinity* tolerations* nodeSelector*)
volumeSources(name createPVC@1.20.0 storageClassName@1.20.0 size@1.20.0 persistentVolumeClaim(claimName readOnly)
emptyDir* nfs* configMap* hostPath* secret*)
secrets(sshdKeysName)
populateJail(k8sNodeFilterName jailSnapshotVolume(volumeSourceName) imagePullPolicy@1.15.1 appArmorProfile@1.15.1
priorityClass@1.22.0 hostUsers@1.23.0)
ncclSettings@-1.22.0(topologyType topologyData) periodicChecks@-1.22.0(ncclBenchmark({_NCCL}))
slurmConfig@1.16.1(defMemPerNode defCpuPerGPU completeWait epilog prolog taskPluginParam maxJobCount minJobAge
messageTimeout topologyPlugin@1.20.0 topologyParam@1.20.0 debugFlags@-1.21.0 suspendTime@4.0.0)
customSlurmConfig@1.23.0 customCgroupConfig@2.0.0 mpiConfig@1.22.0(pmixEnv) topology@4.1.0(blockSize)
plugStackConfig@1.21.0(pyxis@1.22.0(required containerImageSave@-4.0.0 importerPath@4.0.0)
ncclDebug@1.21.3(required enabled logLevel outputToFile outputToStdOut outputDirectory)
customPlugins@1.22.0(required path arguments*))
slurmNodes(accounting({_ACCOUNTING}) controller({_CONTROLLER}) worker@-3.0.0({_WORKER}) login({_LOGIN})
exporter({_EXPORTER}) rest@1.15.1({_REST}) sssd@4.0.0({_SSSD}))
sConfigController@1.20.0({_CONFIG_CONTROLLER})
images(slurmctld slurmd sshd munge slurmdbd mariaDB populateJail slurmrestd@1.15.1 ncclBenchmark@-1.22.0
exporter@-1.21.0 soperatorExporter@1.21.0 sConfigController@1.20.0 populateJailRepository@1.23.2
populateJailTag@1.23.2 sssd@4.0.0)
slurmScripts@1.21.0(prolog@-2.0.0 epilog@-2.0.0 hcProgram@-2.0.0 custom*@-2.0.0 check_runner.py@2.0.0 prolog.sh@2.0.0
epilog.sh@2.0.0 hc_program.sh@2.0.0 pyxis_caching_importer.sh@4.0.0 builtIn@2.0.0({_SCRIPTS}) extra*@2.0.0)
telemetry*@-1.23.0
"""
