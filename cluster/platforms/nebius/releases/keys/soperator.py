"""Keys of Soperator's own charts, from version 4.1.4 on.

From helm/*/values.yaml and helm/*/templates of github.com/nebius/soperator at its tags; what the templates pass on
as it is (slurmConfig, partitions, ...), from the types of its custom resources (api/v1, api/v1alpha1).

REFUSED has those that charts have and a cluster must not: they are no keys here.
"""

from collections.abc import Mapping

from cluster.platforms.nebius.releases.keys import slurm_cluster

_EPHEMERAL = "before Soperator 5.0 an ephemeral node is set DOWN while its pod is still starting"
REFUSED: Mapping[str, str] = {
    "ephemeralNodes": _EPHEMERAL,  # nebius/soperator pull request 2859, in no tag up to 4.1.7
    "initialNumberEphemeralNodes": _EPHEMERAL,
    "ephemeralTopologyWaitTimeout": _EPHEMERAL,
    "overwrite": "populateJail.overwrite deletes everything in the jail",
    "maintenance": "some of its values delete the jail or every pod, and charts keep them: use kubectl",
}
"""Keys that are refused, with the reason."""

_STORAGE = """
storageClass(local(name))
volume(jail(name size type filestoreDeviceName glusterfsHostName) controllerSpool(name size filestoreDeviceName)
accounting(enabled name size filestoreDeviceName) jailSubMounts(name size filestoreDeviceName))
storage(accounting(matchExpressions* tolerations*) controllerSpool(matchExpressions* tolerations*)
jail(matchExpressions* tolerations*))
"""

_MANAGER = """
args* containerSecurityContext* env(isMariadbCrdInstalled isOpentelemetryCollectorCrdInstalled
isPrometheusCrdInstalled isApparmorCrdInstalled slurmOperatorWatchNamespaces topologyLabelPrefix)
image(repository tag) imagePullPolicy resources(limits(cpu memory) requests(cpu memory))
controllersEnabled(cluster nodeconfigurator nodeset topology)
"""

_PROXY = "args* containerSecurityContext* image(repository tag) resources(limits(cpu memory) requests(cpu memory))"

_MONITOR = "enabled jobLabel interval scrapeTimeout additionalLabels* metricRelabelings* relabelings*"

_OPERATOR = f"""
nameOverride fullnameOverride kubernetesClusterDomain serviceAccount(create name)
controllerManager(kubeRbacProxy({_PROXY}) manager({_MANAGER}) replicas serviceAccount(annotations*)
tolerations* affinity* nodeSelector*)
webhookService* certManager(enabled)
kruise(installOperator featureGates manager(replicas)) serviceMonitor({_MONITOR})
"""

_SLURMD = """
image(repository tag pullPolicy) customEnv* port livenessProbe* readinessProbe*
resources(cpu memory ephemeralStorage gpu)
volumes(spool* jail(persistentVolumeClaim(claimName readOnly))
jailSubMounts(name mountPath subPath readOnly volumeSource* volumeClaimTemplateSpec*)
customVolumeMounts(name mountPath subPath readOnly volumeSource*) sharedMemorySize
persistentVolumeClaimRetentionPolicy*)
security(appArmorProfile limitsConfig)
"""

_NODESETS = f"""
nameOverride fullnameOverride serviceAccount(create name)
priorityClasses(name description annotations* labels* value globalDefault preemptionPolicy)
images(munge(repository tag) slurmd(repository tag) sssd(repository tag))
nodesets(name annotations* labels* replicas maxUnavailable gpu(enabled nvidia(gdrCopyEnabled))
nodeConfig(features static dynamic gresConfig) slurmd({_SLURMD})
munge(image(repository tag pullPolicy) resources(cpu memory ephemeralStorage) livenessProbe* readinessProbe*
security(appArmorProfile limitsConfig))
sssd(enabled sssdDebugLevel resources(cpu memory ephemeralStorage) security(appArmorProfile limitsConfig))
sssdConfSecretRefName sssdLdapCAConfigMapRefName configMapRefSupervisord configMapRefSshd
enableHostUserNamespace priorityClass affinity* nodeSelector* tolerations* workerAnnotations* customInitContainers*)
"""

_CHECKS = f"""
nameOverride fullnameOverride kubernetesClusterDomain serviceAccount(create name)
checks(kubeRbacProxy({_PROXY})
manager(enableNodeReplacement enableExtensiveCheck args* containerSecurityContext*
env(slurmOperatorWatchNamespaces maintenanceIgnoreNodeLabels) image(repository tag) imagePullPolicy
resources(limits(cpu memory) requests(cpu memory)) controllersEnabled*)
replicas serviceAccount(annotations*))
serviceMonitor({_MONITOR})
"""

_DAEMON = """
enabled env* image(repository tag pullPolicy) nodeSelector* resources(limits(cpu memory) requests(cpu memory))
livenessProbe* readinessProbe* tolerations* affinity* priorityClassName serviceAccountName
"""

_NODECONFIGURATOR = f"""
nameOverride fullnameOverride serviceAccount(create name)
customContainer({_DAEMON} command*) rebooter({_DAEMON} generateRBAC evictionMethod logLevel logFormat)
initContainers* hostNetwork serviceMonitor(enabled jobLabel interval scrapeTimeout)
"""

_DCGM_EXPORTER = """
nameOverride fullnameOverride kubernetesClusterDomain dcgmHpcJobMappingDir validateToolkit metricsPort
serviceType serviceAccount(annotations*) exporterMetricsConfigMap(dcgmMetricsCsv)
daemonSet(toolkitValidation(image(repository tag)) nvidiaDcgmExporter(image(repository tag) env* resources*)
nodeSelector*)
serviceMonitor(scrapeInterval metricRelabelings* relabelings*)
"""

_CHECK = """
enabled checkType dependsOn schedule suspend runAfterCreation successfulJobsHistoryLimit failedJobsHistoryLimit
activeDeadlineSeconds reservationPrefix drainReasonPrefix slurmJobSpec* k8sJobSpec* successReactions* failureReactions*
nodeSelector* affinity* tolerations*
"""

_NAMES = """
all-reduce-perf-nccl-in-docker all-reduce-perf-nccl-with-ib all-reduce-perf-nccl-without-ib cuda-samples
dcgmi-diag-r2 dcgmi-diag-r3 ensure-healthy-nodes extensive-check gpu-fryer ib-gpu-perf mem-perf ssh-check
create-user-soperatorchecks create-user-nebius enroot-cleanup ensure-dir-snccld-logs prepull-container-image
soperator-outputs-logs-cleaner manage-jail-state manage-jail-state-dry-run upgrade-health-checker wait-for-topology
wait-for-soperatorchecks-srun-ready retrigger-checks
""".split()

_ACTIVECHECKS = f"""
nameOverride fullnameOverride serviceAccount(create name) slurmClusterRefName nodeSelector*
affinity* tolerations* hostUsers cudaVersion ncclTestsVersion ncclTestsVersions*
jobContainer(env* volumeMounts* volumes*) activeCheckImage slurmJob(gpusPerNode)
images(slurmJob k8sJob munge sansible activeCheckImageRepository activeCheckImageTags*)


checks(manage-jail-state-force({_CHECK})
{" ".join(f"{name}({_CHECK})" for name in _NAMES)})
"""

_STORAGECLASSES = """
nameOverride fullnameOverride provisioner diskTypes fsTypes storageClassNamePrefix reclaimPolicy volumeBindingMode
allowVolumeExpansion annotations* labels* mountOptions* parameters*
"""

_BACKUP = """
nameOverride fullnameOverride scheduleName secret(name keys(accessKeyID secretAccessKey backupPassword))
bucket(name endpoint) backup(schedule failedJobsHistoryLimit successfulJobsHistoryLimit concurrentRunsAllowed)
prune(schedule retention*) tags podSecurityContext*
"""

_CONFIGMAPS = """
nameOverride namespace configMaps(supervisord(enabled name files) motd(enabled name files)
imageStorage(enabled name files))
"""

CHARTS: Mapping[str, str] = {
    "helm-slurm-cluster": slurm_cluster.TEXT,
    "helm-slurm-cluster-storage": _STORAGE,
    "helm-soperator": _OPERATOR,
    "helm-nodesets": _NODESETS,
    "helm-soperatorchecks": _CHECKS,
    "helm-nodeconfigurator": _NODECONFIGURATOR,
    "helm-soperator-dcgm-exporter": _DCGM_EXPORTER,
    "helm-soperator-activechecks": _ACTIVECHECKS,
    "helm-storageclasses": _STORAGECLASSES,
    "helm-soperator-backup-config": _BACKUP,
    "helm-soperator-custom-configmaps": _CONFIGMAPS,
}
