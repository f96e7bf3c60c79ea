"""The stand-in operator on a real API server with real Helm: a SlurmCluster goes through its phases, or never does."""

import subprocess

import pytest

from tests.nebius.rehearsal.conftest import CHARTS, operating, until

pytestmark = pytest.mark.slow

CLUSTER = ("slurm.nebius.ai/v1", "SlurmCluster")
NODESET = ("slurm.nebius.ai/v1alpha1", "NodeSet")
NODES = {"login": {"size": 2}, "accounting": {"enabled": True}}


@pytest.fixture(scope="module", autouse=True)
def crds(server, programs):
    kubectl = [str(programs.kubectl), f"--kubeconfig={server.kubeconfig}"]
    subprocess.run([*kubectl, "apply", "--server-side", "-f", CHARTS / "helm-soperator/crds"], check=True)
    subprocess.run([*kubectl, "wait", "--for=condition=established", "crd", "--all", "--timeout=300s"], check=True)


@pytest.fixture
def name(request, kube, helm):
    """A cluster that is gone after the test."""
    found = f"lab-{abs(hash(request.node.name)) % 10000}"
    yield found
    for kind in (NODESET, CLUSTER):
        for one in kube.list(*kind):
            kube.delete(one)


def cluster(kube, name):
    return kube.get(*CLUSTER, name, name)


def phase(kube, name):
    return cluster(kube, name).get("status", {}).get("phase", "")


def pods(kube, name):
    return {
        one["metadata"]["name"]: one
        for one in kube.list("v1", "Pod", name, labels="rehearsal/slurm")
        if any(row["type"] == "Ready" and row["status"] == "True" for row in one["status"].get("conditions", ()))
    }


def nodesets(helm, name, **counts):
    rows = [{"name": one, "replicas": count} for one, count in counts.items()]
    assert helm("nodesets", "helm-nodesets", name, {"clusterName": name, "nodesets": rows})[0] == 0


def test_a_cluster_comes_up_and_workers_follow_their_nodeset(kube, helm, name):
    with operating(kube):
        assert helm("slurm", "helm-slurm-cluster", name, {"clusterName": name, "slurmNodes": NODES})[0] == 0
        nodesets(helm, name, gpu=2)
        until(lambda: phase(kube, name) == "Available")
        until(lambda: kube.get(*NODESET, "gpu", name)["status"].get("replicas") == 2)
        assert set(pods(kube, name)) == {"controller-0", "accounting-0", "login-0", "login-1", "gpu-0", "gpu-1"}
        found = kube.get("v1", "Service", f"{name}-login-svc", name)
        assert found["status"]["loadBalancer"]["ingress"][0]["ip"]
        nodesets(helm, name, gpu=1)
        until(lambda: "gpu-1" not in pods(kube, name))
        kube.delete(kube.get(*CLUSTER, name, name))
        until(lambda: not pods(kube, name))


def test_it_can_take_for_ever_and_get_no_address(kube, helm, name):
    with operating(kube) as (behaviour, _):
        behaviour.never = behaviour.no_address = True
        helm("slurm", "helm-slurm-cluster", name, {"clusterName": name, "slurmNodes": NODES})
        until(lambda: pods(kube, name))
        until(lambda: kube.get("v1", "Service", f"{name}-login-svc", name))
        assert phase(kube, name) == "Reconciling"
        assert not kube.get("v1", "Service", f"{name}-login-svc", name)["status"]["loadBalancer"]
        behaviour.never = False
        until(lambda: phase(kube, name) == "Available")


def test_a_jail_that_can_not_be_populated_and_a_controller_that_does_not_come_up_say_so(kube, helm, name):
    with operating(kube) as (behaviour, _):
        behaviour.populate_fails = True
        helm("slurm", "helm-slurm-cluster", name, {"clusterName": name, "slurmNodes": NODES})

        def failed():
            job = kube.get("batch/v1", "Job", f"{name}-populate-jail", name) or {}
            return any(one["type"] == "Failed" for one in job.get("status", {}).get("conditions", ()))

        until(failed)
        behaviour.populate_fails = False
        kube.delete(kube.get("batch/v1", "Job", f"{name}-populate-jail", name))
        behaviour.unavailable = "No switches configured"
        until(lambda: phase(kube, name) == "Not available")
        conditions = {one["type"]: one for one in cluster(kube, name)["status"]["conditions"]}
        assert conditions["ControllersAvailable"]["message"] == "No switches configured"


def test_pods_without_a_node_stay_pending(kube, helm, name):
    with operating(kube) as (behaviour, _):
        behaviour.missing_pods = 1
        helm("slurm", "helm-slurm-cluster", name, {"clusterName": name, "slurmNodes": NODES})
        nodesets(helm, name, gpu=2)
        until(lambda: phase(kube, name) == "Available")
        until(lambda: kube.get(*NODESET, "gpu", name)["status"].get("replicas") == 1)
        behaviour.missing_pods = 0
        until(lambda: kube.get(*NODESET, "gpu", name)["status"].get("replicas") == 2)


def test_charts_with_operators_volumes_and_daemons_become_ready(kube, helm, name):
    with operating(kube):
        assert helm("soperator", "helm-soperator", "soperator-system", {"fullnameOverride": "soperator"})[0] == 0
        assert helm("cert-manager", "cert-manager", "cert-manager-system", {"crds": {"enabled": True}})[0] == 0
        submounts = [{"name": "data", "size": "1Ti", "filestoreDeviceName": "jail-submount-data"}]
        assert helm("storage", "helm-slurm-cluster-storage", name, {"volume": {"jailSubMounts": submounts}})[0] == 0
        claims = {one["metadata"]["name"]: one for one in kube.list("v1", "PersistentVolumeClaim", name)}
        assert set(claims) == {"jail-pvc", "controller-spool-pvc", "jail-submount-data-pvc"}


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        ("helm-slurm-cluster", {"slurmNodes": {"worker": {"size": 2}}}),
        ("helm-slurm-cluster", {"periodicChecks": {}}),
        ("helm-slurm-cluster", {"partitionConfiguration": {"rawConfig": ["NodeName=a"]}}),
        ("helm-nodesets", {"nodesets": [{"name": "gpu", "replicas": 1, "size": 1}]}),
    ],
)
def test_keys_that_the_chart_does_not_have_are_refused(helm, chart, values):
    code, text = helm("refused", chart, "refused", {"clusterName": "refused", **values})
    assert code == 1
    assert "don't meet the specifications of the schema" in text
