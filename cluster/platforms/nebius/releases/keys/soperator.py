"""Keys of Soperator's own charts, from version 1.14.9 to 4.1.7.

From helm/*/values.yaml and helm/*/templates of github.com/nebius/soperator at its 75 tags; what the templates pass on
as it is (slurmConfig, partitions, ...), from the types of its custom resources (api/v1, api/v1alpha1).

REFUSED has those that charts have and a cluster must not: they are no keys here.
"""

from collections.abc import Mapping

from cluster.platforms.nebius.releases.keys import slurm_cluster
from cluster.platforms.nebius.releases.keys.tree import Key, parse

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
storage@1.15.1(accounting(matchExpressions* tolerations*) controllerSpool(matchExpressions* tolerations*)
jail(matchExpressions* tolerations*))
"""

_MANAGER = """
args* containerSecurityContext* env(isMariadbCrdInstalled isOpentelemetryCollectorCrdInstalled
isPrometheusCrdInstalled isApparmorCrdInstalled@1.17.0 slurmOperatorWatchNamespaces topologyLabelPrefix@1.23.0)
image(repository tag) imagePullPolicy resources(limits(cpu memory) requests(cpu memory))
controllersEnabled@2.0.0(cluster nodeconfigurator nodeset topology)
"""

_PROXY = "args* containerSecurityContext* image(repository tag) resources(limits(cpu memory) requests(cpu memory))"

_MONITOR = "enabled jobLabel interval scrapeTimeout additionalLabels* metricRelabelings* relabelings*"

_OPERATOR = f"""
nameOverride fullnameOverride kubernetesClusterDomain serviceAccount(create name)
controllerManager(kubeRbacProxy({_PROXY}) manager({_MANAGER}) replicas serviceAccount(annotations*)
podSecurityContext*@1.15.1-1.16.0 tolerations*@1.23.0 affinity*@3.0.0 nodeSelector*@3.0.0)
metricsService*@-1.23.0 webhookService*@1.16.0 certManager@1.16.0(enabled)
kruise@1.20.0(installOperator featureGates manager(replicas)) serviceMonitor@1.23.0({_MONITOR})
"""

_SLURMD = """
image(repository tag pullPolicy) customEnv* port livenessProbe* readinessProbe*
resources(cpu memory ephemeralStorage gpu)
volumes(spool* jail(persistentVolumeClaim(claimName readOnly))
jailSubMounts(name mountPath subPath readOnly volumeSource* volumeClaimTemplateSpec*)
customVolumeMounts(name mountPath subPath readOnly volumeSource*) sharedMemorySize
persistentVolumeClaimRetentionPolicy*@3.0.3)
security(appArmorProfile limitsConfig)
"""

_NODESETS = f"""
nameOverride fullnameOverride serviceAccount(create name)
priorityClasses(name description annotations* labels* value globalDefault preemptionPolicy)
images(munge(repository tag) slurmd(repository tag) sssd@4.0.0(repository tag))
nodesets(name annotations* labels* replicas maxUnavailable gpu(enabled nvidia(gdrCopyEnabled))
nodeConfig(features static dynamic gresConfig) slurmd({_SLURMD})
munge(image(repository tag pullPolicy) resources(cpu memory ephemeralStorage) livenessProbe* readinessProbe*
security(appArmorProfile limitsConfig))
sssd@4.0.0(enabled sssdDebugLevel resources(cpu memory ephemeralStorage) security(appArmorProfile limitsConfig))
sssdConfSecretRefName@4.0.0 sssdLdapCAConfigMapRefName@4.0.0 configMapRefSupervisord configMapRefSshd
enableHostUserNamespace priorityClass affinity* nodeSelector* tolerations* workerAnnotations* customInitContainers*)
"""

_CHECKS = f"""
nameOverride fullnameOverride kubernetesClusterDomain serviceAccount(create name)
checks(kubeRbacProxy@1.20.0({_PROXY})
manager(enableNodeReplacement@1.23.0 enableExtensiveCheck@1.23.1 args* containerSecurityContext*
env(slurmOperatorWatchNamespaces maintenanceIgnoreNodeLabels) image(repository tag) imagePullPolicy
resources(limits(cpu memory) requests(cpu memory)) controllersEnabled*@2.0.0)
replicas serviceAccount(annotations*))
metricsService*@1.20.0-1.23.0 serviceMonitor@1.23.0({_MONITOR})
"""

_DAEMON = """
enabled env* image(repository tag pullPolicy) nodeSelector* resources(limits(cpu memory) requests(cpu memory))
livenessProbe* readinessProbe* tolerations* affinity* priorityClassName serviceAccountName
"""

_NODECONFIGURATOR = f"""
nameOverride fullnameOverride serviceAccount(create name) nodeConfigurator@-1.23.1({_DAEMON})
customContainer@1.23.1({_DAEMON} command*) rebooter({_DAEMON} generateRBAC evictionMethod logLevel logFormat)
initContainers* hostNetwork@1.23.1 serviceMonitor@1.23.0(enabled jobLabel interval scrapeTimeout)
"""

_DCGM_EXPORTER = """
nameOverride fullnameOverride kubernetesClusterDomain dcgmHpcJobMappingDir validateToolkit@1.22.0 metricsPort
serviceType serviceAccount(annotations*) exporterMetricsConfigMap(dcgmMetricsCsv) scrapeInterval@-1.22.0
daemonSet(toolkitValidation(image(repository tag)) nvidiaDcgmExporter(image(repository tag) env* resources*)
nodeSelector*)
serviceMonitor@1.22.0(scrapeInterval metricRelabelings* relabelings*@4.1.0)
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
nameOverride fullnameOverride serviceAccount(create name) slurmClusterRefName@1.22.0 nodeSelector*@4.1.0
affinity*@4.1.0 tolerations*@4.1.0 hostUsers@4.0.0 cudaVersion@2.0.0 ncclTestsVersion@2.0.0 ncclTestsVersions*@2.0.3
jobContainer@1.22.0(env* volumeMounts* volumes*) activeCheckImage@1.22.0 slurmJob@4.1.2(gpusPerNode)
images(slurmJob k8sJob munge sansible@2.0.0 activeCheckImageRepository@1.23.2 activeCheckImageTags*@1.23.2)
sshCheck@1.22.0-1.23.0(numOfLoginNodes) createUser@1.22.0-1.23.0(name) upgradeCuda@1.22.0-1.23.0(cudaVersion)
upgradeHealthChecker@1.22.0-1.23.0(healthCheckerVersion) ensureDirSnccldLogs@1.22.0-1.23.0(enabled dir schedule)
checks@1.23.0(sshCheck@-2.0.0(suspend runAfterCreation numOfLoginNodes) manage-jail-state-force@4.0.0({_CHECK})
{" ".join(f"{name}@2.0.0({_CHECK})" for name in _NAMES)})
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

CHARTS: dict[str, Key] = {
    "helm-slurm-cluster": parse(slurm_cluster.TEXT),
    "helm-slurm-cluster-storage": parse(_STORAGE),
    "helm-soperator": parse(_OPERATOR),
    "helm-nodesets": parse(_NODESETS),
    "helm-soperatorchecks": parse(_CHECKS),
    "helm-nodeconfigurator": parse(_NODECONFIGURATOR),
    "helm-soperator-dcgm-exporter": parse(_DCGM_EXPORTER),
    "helm-soperator-activechecks": parse(_ACTIVECHECKS),
    "helm-storageclasses": parse(_STORAGECLASSES),
    "helm-soperator-backup-config": parse(_BACKUP),
    "helm-soperator-custom-configmaps": parse(_CONFIGMAPS),
}
