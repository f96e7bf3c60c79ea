"""Keys of the chart helm-slurm-cluster, which writes the SlurmCluster."""

_RESOURCES = "resources(cpu memory ephemeralStorage)"
_CONTAINER = f"{_RESOURCES} imagePullPolicy appArmorProfile command* args*"
_PROBED = f"{_CONTAINER} livenessProbe* readinessProbe*"
_POD = "k8sNodeFilterName customInitContainers* priorityClass hostUsers"
_MOUNTS = "name mountPath subPath readOnly volumeSourceName volumeClaimTemplateSpec*"
_VOLUME = "volumeSourceName volumeClaimTemplateSpec*"
_RBAC = "rbac(create) serviceAccount(create name)"

_ACCOUNTING = f"""
{_POD} enabled slurmdbd({_PROBED} port) munge({_PROBED})
externalDB(enabled host port user passwordSecretKeyRef(name key) tls(serverCASecretRef clientCertSecretRef)
storageParameters*)
mariadbOperator(enabled protectedSecret {_RESOURCES} replicas replication* storage* podSecurityContext*
securityContext* metrics(enabled) priorityClassName)
slurmConfig(accountingStorageTRES accountingStoreFlags acctGatherInterconnectType acctGatherFilesystemType
acctGatherProfileType jobAcctGatherType jobAcctGatherFrequency jobAcctGatherParams priorityWeightAge
priorityWeightFairshare priorityWeightQOS priorityWeightTRES)
slurmdbdConfig(archiveEvents archiveJobs archiveResvs archiveSteps archiveSuspend archiveTXN archiveUsage debugLevel
tcpTimeout purgeEventAfter purgeJobAfter purgeResvAfter purgeStepAfter purgeSuspendAfter purgeTXNAfter purgeUsageAfter
privateData debugFlags)
"""

_CONTROLLER = f"""
{_POD} slurmctld({_PROBED} port) munge({_PROBED})
volumes(spool({_VOLUME}) jail({_VOLUME}) customMounts({_MOUNTS}))
rbac(create) serviceAccount(create name)
openMetrics(enabled serviceMonitor(interval scrapeTimeout endpoints))
"""

_LOGIN = f"""
{_POD} size sshd({_PROBED} port) munge({_PROBED}) sshRootPublicKeys sshdServiceType sshdServiceLoadBalancerIP
sshdServiceLoadBalancerSourceRanges sshdServiceNodePort sshdServiceAnnotations*
volumes(jail({_VOLUME}) jailSubMounts({_MOUNTS}) customMounts({_MOUNTS}))
"""

_EXPORTER = f"""
{_POD} enabled size imagePullPolicy appArmorProfile exporter({_CONTAINER}) munge({_CONTAINER})
volumes(jail({_VOLUME})) podMonitorConfig(jobLabel interval scrapeTimeout) collectionInterval {_RBAC}
exporterContainer(livenessProbe* readinessProbe*)
"""

_REST = f"{_POD} enabled size threadCount maxConnections rest({_PROBED})"

_SSSD = f"""
enabled sssdDebugLevel sssdConfSecretRefName sssdLdapCAConfigMapRefName image {_RESOURCES} imagePullPolicy
appArmorProfile command* args* livenessProbe* readinessProbe*
"""

_CONFIG_CONTROLLER = f"""
hostUsers node(k8sNodeFilterName size priorityClass)
container({_RESOURCES} imagePullPolicy livenessProbe* readinessProbe*)
reconfigurePollInterval reconfigureWaitTimeout runAsUid runAsGid
serviceMonitor(enabled jobLabel interval scrapeTimeout) {_RBAC}
"""

_SCRIPTS = """
alloc_gpus_busy.drain.sh* alloc_gpus_busy.undrain.sh* alloc_mem_used.drain.sh* alloc_mem_used.undrain.sh*
boot_disk_full.sh* chmod_enroot_layers.sh* cleanup_enroot.sh* cleanup_scratch_data.sh* drop_page_cache.sh*
drop_posix_shmem.sh* gpu_health_check.py* job_tmpfs_delete.sh* job_tmpfs_delete_leftover.sh* job_tmpfs_recreate.sh*
map_job_dcgm.sh* nvme_raid_health.sh* unmap_job_dcgm.sh*
"""

TEXT = f"""
clusterName annotations* useDefaultAppArmorProfile
cudaVersion
partitionConfiguration(configType rawConfig partitions(name isAll nodeSetRefs config))
healthCheckConfig(healthCheckInterval healthCheckProgram healthCheckNodeState(state))
k8sNodeFilters(name affinity* tolerations* nodeSelector*)
volumeSources(name createPVC storageClassName size persistentVolumeClaim(claimName readOnly)
emptyDir* nfs* configMap* hostPath* secret*)
secrets(sshdKeysName)
populateJail(k8sNodeFilterName jailSnapshotVolume(volumeSourceName) imagePullPolicy appArmorProfile
priorityClass hostUsers)
slurmConfig(defMemPerNode defCpuPerGPU completeWait epilog prolog taskPluginParam maxJobCount minJobAge
messageTimeout topologyPlugin topologyParam suspendTime)
customSlurmConfig customCgroupConfig mpiConfig(pmixEnv) topology(blockSize)
plugStackConfig(pyxis(required importerPath)
ncclDebug(required enabled logLevel outputToFile outputToStdOut outputDirectory)
customPlugins(required path arguments*))
slurmNodes(accounting({_ACCOUNTING}) controller({_CONTROLLER}) login({_LOGIN})
exporter({_EXPORTER}) rest({_REST}) sssd({_SSSD}))
sConfigController({_CONFIG_CONTROLLER})
images(slurmctld slurmd sshd munge slurmdbd mariaDB populateJail slurmrestd
soperatorExporter sConfigController populateJailRepository
populateJailTag sssd)
slurmScripts(check_runner.py prolog.sh
epilog.sh hc_program.sh pyxis_caching_importer.sh builtIn({_SCRIPTS}) extra*)
"""
