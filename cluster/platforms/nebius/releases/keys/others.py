"""Keys of the charts that Soperator needs besides its own.

From the values.yaml of each chart at the versions of cluster.platforms.nebius.releases.charts: cert-manager v1.19.6
(deploy/charts/cert-manager), openkruise/charts versions/kruise/1.8.0, mariadb-operator 25.10.2
(deploy/charts), k8up 4.8.7 (charts/k8up). prometheus-operator-crds and mariadb-operator-crds have no values that a
cluster needs.
"""

from collections.abc import Mapping

_CERT_MANAGER = """
global* installCRDs crds(enabled keep) replicaCount strategy* podDisruptionBudget* featureGates
maxConcurrentChallenges image* clusterResourceNamespace namespace serviceAccount* enableCertificateOwnerRef config*
dns01RecursiveNameservers dns01RecursiveNameserversOnly disableAutoApproval approveSignerNames extraArgs* extraEnv*
resources* securityContext* containerSecurityContext* volumes* volumeMounts* podLabels* hostAliases* nodeSelector*
ingressShim* affinity* tolerations* topologySpreadConstraints* livenessProbe* enableServiceLinks
prometheus(enabled servicemonitor* podmonitor*) webhook* cainjector* acmesolver* startupapicheck* extraObjects*
nameOverride fullnameOverride
"""

_KRUISE = """
crds(managed) installation(namespace createNamespace roleListGroups) featureGates externalCerts*
enableKubeCacheMutationDetector imagePullSecrets*
manager(log(level) replicas image(repository tag) webhook(port) metrics(port) healthProbe(port) pprofAddr
resyncPeriod loggingFormat resources(limits(cpu memory) requests(cpu memory)) hostNetwork nodeAffinity* nodeSelector*
tolerations*)
webhookConfiguration(timeoutSeconds)
daemon(log(level) port enablePprof pprofAddr socketLocation socketFile nodeSelector* affinity*
resources(limits(cpu memory) requests(cpu memory)) extraEnvs* credentialProvider*)
serviceAccount* helmHooks(image(repository tag))
"""

_MARIADB_OPERATOR = """
nameOverride fullnameOverride crds(enabled) image* imagePullSecrets* logLevel clusterName currentNamespaceOnly
ha(enabled replicas) metrics(enabled serviceMonitor*) serviceAccount* rbac* extrArgs* extraEnv* extraEnvFrom*
extraVolumes* extraVolumeMounts* podAnnotations* podSecurityContext* securityContext* resources* nodeSelector*
tolerations* topologySpreadConstraints* priorityClassName affinity* pdb* pprof*
webhook(enabled image* imagePullSecrets* ha* cert(certManager(enabled issuerRef* duration renewBefore
revisionHistoryLimit) secretAnnotations* secretLabels* ca* path) port hostNetwork serviceMonitor* serviceAccount*
annotations* extrArgs* extraVolumes* extraVolumeMounts* podAnnotations* podSecurityContext* securityContext*
resources* nodeSelector* tolerations* topologySpreadConstraints* priorityClassName affinity* pdb*)
certController* config*
"""

_K8UP = """
nameOverride fullnameOverride namespaceOverride replicaCount image* imagePullSecrets* serviceAccount*
k8up(envVars* backupImage(repository tag) timezone enableLeaderElection skipWithoutAnnotation operatorNamespace
globalResources*)
podAnnotations* podSecurityContext* securityContext* priorityClassName nodeSelector* tolerations* affinity*
metrics(service* serviceMonitor* prometheusRule* grafanaDashboard*) rbac* resources* cleanup*
"""

CHARTS: Mapping[str, str] = {
    "cert-manager": _CERT_MANAGER,
    "kruise": _KRUISE,
    "mariadb-operator": _MARIADB_OPERATOR,
    "mariadb-operator-crds": "",
    "prometheus-operator-crds": "fullnameOverride crds*",
    "k8up": _K8UP,
}
