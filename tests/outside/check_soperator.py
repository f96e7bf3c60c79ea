"""Soperator's charts, from a checkout of nebius/soperator with its tags: each version that a stack file may name is
rendered by Helm with this program's values and installed into a real API server, as the Kubernetes provider does."""

import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.findings import ConfigError
from cluster.load import parse
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.releases import BACKUP_SECRET, ChartRelease, CloudFacts, releases
from components.nebius.chart_sources import definitions
from tests import programs
from tests.outside.kubernetes import apiserver, binaries
from tests.outside.recorder import Recorder

STACK = Path(__file__).parents[2] / "Pulumi.nebius.yaml"
BACKUPS = {"name": "backups", "endpoint": "https://storage.example.com:443"}
FACTS = CloudFacts(stack="nebius", root_keys=["ssh-ed25519 AAAA"], allocation="vpcallocation-e00one", backups=BACKUPS)
KUBERNETES = "1.35.0"
"""Of the API server, as `helm template` is told, which asks nobody."""
MIB = 1 << 20
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

REFERENCES = {
    "secretName": "Secret", "secretKeyRef": "Secret", "secretRef": "Secret", "configMap": "ConfigMap",
    "configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap", "claimName": "PersistentVolumeClaim",
    "serviceAccountName": "ServiceAccount", "priorityClassName": "PriorityClass", "priorityClass": "PriorityClass",
}  # fmt: skip
"""Keys of a specification that name an object, as text or by its `name`."""
CLUSTER_WIDE = ("PriorityClass", "ClusterRole")


def _git(checkout: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(checkout), *arguments], check=True, capture_output=True).stdout


def _described(version: str, charts: str = "") -> dict[str, Any]:
    """The shipped stack file with a version of Soperator, elastic nodes and metrics."""
    config = yaml.safe_load(STACK.read_text(encoding="utf-8"))["config"]
    config["hpc:cluster"]["nebius"]["soperator"].update(version=version, **({"charts": charts} if charts else {}))
    config["hpc:cluster"]["nodesets"]["worker"]["count"] = {"min": 1, "max": 2}
    config["hpc:cluster"]["monitoring"] = {"interval_seconds": 20}
    return config


def _is_offered(version: str) -> bool:
    try:
        parse(_described(version))
    except ConfigError:
        return False
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each tag that is offered."""
    given = dict(pair.split("=", 1) for pair in metafunc.config.getoption("--outside") or ())
    checkout = Path(given["soperator"])
    tags = [word for word in _git(checkout, "tag").decode().split() if re.fullmatch(r"\d+\.\d+\.\d+", word)]
    commits = {tag: tag for tag in tags if _is_offered(tag)}
    metafunc.parametrize(("version", "commit"), commits.items())


@dataclass
class Cluster:
    """An API server with Helm."""

    paths: binaries.Paths
    kubeconfig: Path

    def run(self, program: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(program), f"--kubeconfig={self.kubeconfig}", *arguments]
        return programs.run(command, input=stdin)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(self.paths.kubectl, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def helm(self, *arguments: str, release: ChartRelease) -> subprocess.CompletedProcess[str]:
        place = [f"--namespace={release.namespace}"]
        return self.run(self.paths.helm, *arguments, *place, stdin=json.dumps(dict(release.values)))

    def built_in(self) -> set[tuple[str, str, str]]:
        """Priority classes that every API server has."""
        names = self.kubectl("get", "priorityclasses", "--output=name").split()
        return {("PriorityClass", "", name.partition("/")[2]) for name in names}

    def define(self, documents: list[dict[str, Any]]) -> list[str]:
        """Stand in for the definitions of other charts: kinds that these documents have and nobody serves."""
        served = set()
        for line in self.kubectl("api-resources", "--no-headers").splitlines():
            *_, version, _, kind = line.split()
            served.add((version.partition("/")[0], kind))
        lacking = {(document["apiVersion"], document["kind"]) for document in documents}
        lacking = {(api, kind) for api, kind in lacking if (api.partition("/")[0], kind) not in served and "/" in api}
        for api, kind in lacking:
            group, _, version = api.partition("/")
            schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
            names = {"kind": kind, "plural": f"{kind.lower()}s"}
            versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
            crd = {
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{names['plural']}.{group}"},
                "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
            }  # fmt: skip
            self.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(crd))
        if lacking:
            self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        return sorted(f"{kind} ({api})" for api, kind in lacking)


def test_charts_install_and_what_they_name_exists(
    artifact: Path, outside: Recorder, version: str, commit: str, tmp_path: Path
) -> None:
    charts = _charts(artifact, commit, tmp_path / "charts")
    config = parse(_described(version, str(charts)))
    every = releases(config, FACTS)
    ours = [release for release in every if (charts / release.chart / "Chart.yaml").is_file()]
    elsewhere = sorted(release.chart for release in every if release not in ours)
    outside.did(f"{version}: charts that are not in the checkout, whose definitions stand-ins replace: {elsewhere}")
    paths = binaries.ensure()
    with apiserver.running(tmp_path / "api", paths) as kubeconfig:
        cluster = Cluster(paths, kubeconfig)
        for name in dict.fromkeys([config.name, *(release.namespace for release in every)]):
            cluster.kubectl("create", "namespace", name)
        _crds_alone(cluster, charts, outside, version)
        [operator] = [our for our in ours if our.chart == "helm-soperator"]
        crds = definitions(operator.repo, operator.chart, version)
        cluster.kubectl("apply", "--server-side", "--filename=-", stdin=crds)
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "--filename=-", stdin=crds)
        objects = {our.name: rendered(cluster, our, charts) for our in ours}
        stood_in = cluster.define([document for rendered_ in objects.values() for document in rendered_])
        outside.did(f"{version}: kinds that stand-ins define: {', '.join(stood_in)}")
        for release in ours:
            _install(cluster, release, charts, outside, version)
        namespaces = set(cluster.kubectl("get", "namespaces", "--output=name").replace("namespace/", "").split())
        found = {_key(document, release): document for release in ours for document in objects[release.name]}
        there = set(found) | _made_later(found, config.name) | cluster.built_in()
        for text in sorted(
            {text for at, document in found.items() for text in _missing(at, document, there, namespaces)}
        ):
            outside.differs("soperator-reference", f"{version}: {text}")
        outside.did(f"{version}: {len(ours)} charts, {len(found)} objects, their namespaces and what they name")
    outside.holds("soperator-crds-exceed-a-release", "soperator-crds-in-its-chart")


def test_a_cluster_may_be_called_as_it_is_accepted(
    artifact: Path, outside: Recorder, version: str, commit: str, tmp_path: Path
) -> None:
    chart = _charts(artifact, commit, tmp_path / "charts") / "helm-soperator-activechecks"
    command = ["template", "checks", str(chart), "--namespace=other", "--set=slurmClusterRefName=other"]
    done = programs.run([binaries.ensure().helm, *command], check=True)
    documents = (document for document in yaml.load_all(done.stdout, Loader=_Loader) if document)
    named = {document["metadata"].get("namespace", "other") for document in documents} - {"other"}
    outside.did(f"{version}: active checks of a cluster `other` are in {sorted(named) or ['other']} too")
    if named != {versions.CLUSTER_NAME}:
        outside.differs("soperator-namespace", f"{version}: {sorted(named)}, not {versions.CLUSTER_NAME}")
    outside.holds("soperator-checks-namespace")


UNREAD = {
    # The condition of a dependency, which Helm itself reads.
    ("soperator", "kruise.installOperator"),
}
"""Values that no template reads, by release and path."""


def test_charts_have_every_key_that_they_are_given(
    artifact: Path, outside: Recorder, version: str, commit: str, tmp_path: Path
) -> None:
    """Helm ignores a key that no template reads, also one that the chart's values.yaml has: each value is changed, and
    the chart's objects must change with it. What a template passes on as it is, the API server refuses above."""
    charts = _charts(artifact, commit, tmp_path / "charts")
    every = releases(parse(_described(version, str(charts))), FACTS)
    for release in (candidate for candidate in every if (charts / candidate.chart / "Chart.yaml").is_file()):
        given = json.loads(json.dumps(dict(release.values)))
        paths = list(leaves(given)) if given else []
        whole = template(release, charts, given)
        for path in paths:
            dotted = ".".join(map(str, path))
            if (release.name, dotted) in UNREAD:
                continue
            # A value may be what the chart has anyway: another one shows whether it is read.
            if all(template(release, charts, changed) == whole for changed in changed(given, path)):
                outside.differs(f"soperator-key-{release.name}", f"{version}: {release.chart} does not read {dotted}")
        outside.did(f"{version}: {release.chart}: {len(paths)} values are read")
    outside.holds("soperator-chart-keys")


def slurm_of(makefile: str) -> str:
    """Slurm's version in the images of a version."""
    found = re.search(r"(?m)^SLURM_VERSION\s*:?=\s*(\S+)$", makefile)
    return found[1] if found else ""


def test_images_have_the_slurm_of_the_catalog(artifact: Path, outside: Recorder, version: str, commit: str) -> None:
    if (found := slurm_of(_git(artifact, "show", f"{commit}:Makefile").decode())) != versions.SLURM:
        outside.differs("soperator-images", f"{version}: Slurm is {found}, and {versions.SLURM} in the catalog")
    outside.did(f"{version}: Slurm")
    outside.holds("soperator-slurm-of-versions")


POWER = {
    "cmd/powermanager/main.go": ("powerState.Spec.ActiveNodes", "Spec.EphemeralNodes"),
    "internal/controller/nodesetcontroller/reconcile.go": ("nodeSet.Spec.InitialNumberEphemeralNodes",),
    "internal/render/worker/statefulset.go": ("calculateReplicasAndReserveOrdinals(nodeSet.ActiveNodes)",),
    "internal/render/common/configmap.go": (
        "/opt/soperator/bin/power_resume.sh", "/opt/soperator/bin/power_suspend.sh", "buildSuspendExcNodes(cluster)",
        "idle_on_node_suspend", "State=CLOUD",
    ),
    "api/v1/slurmcluster_types.go": ("default=1000000000",),
    "images/slurm_check_job/slurm_submit_jobs.sh": ("POWERED_DOWN", "No nodes to run on"),
    "helm/soperator-activechecks/scripts/ensure-healthy-nodes.sh": ('test("DOWN|DRAIN|FAIL")',),
}  # fmt: skip
"""What Soperator's sources say of elastic nodes, by file."""


def test_soperator_powers_nodes_up_and_down(artifact: Path, outside: Recorder, version: str, commit: str) -> None:
    for file, texts in POWER.items():
        source = _git(artifact, "show", f"{commit}:{file}").decode()
        for text in texts:
            if text not in source:
                outside.differs("soperator-power", f"{version}: {file} has no {text}")
    config = _git(artifact, "show", f"{commit}:internal/render/common/configmap.go").decode()
    (late,) = (fault for fault in versions.FAULTS if fault.pull == 2859)
    if ("ResumeFailProgram" in config) is (versions.parse(version) < late.corrected):
        outside.differs("soperator-resume-fails", f"{version}: ResumeFailProgram")
    outside.did(f"{version}: {sum(map(len, POWER.values()))} statements of Soperator's sources on elastic nodes")
    outside.holds(
        "soperator-power-saving",
        "soperator-suspends-by-slurm-conf",
        "soperator-late-nodes",
        "soperator-checks-skip-sleeping-nodes",
    )


EXPORTER = {
    "internal/exporter/collector.go": (
        *(f'"{name}"' for name in ("slurm_node_info", "slurm_job_info", "node_name", "state_base", "state_is_drain")),
        *(f'"{name}"' for name in ("state_is_powered_down", "state_is_powering_down", "is_unavailable", "job_id")),
        *(f'"{name}"' for name in ("job_state", "job_state_reason", "slurm_partition", "user_name", "submit_time")),
    ),
    "internal/render/controller/service_monitor.go": ('"/metrics/" + name', '"nodes"', '"scheduler"', "cfg.Endpoints"),
    "internal/render/common/configmap.go": ('"MetricsType", "metrics/openmetrics"',),
    "internal/consts/service.go": ('AccountingName        = "accounting"',),
    "helm/slurm-cluster/slurm_scripts/map_job_dcgm.sh": ("/var/run/nebius/slurm", "SLURM_JOB_ID"),
}  # fmt: skip
"""What Soperator's sources say of metrics, by file."""


def test_soperator_exports_what_rules_are_of(artifact: Path, outside: Recorder, version: str, commit: str) -> None:
    for file, texts in EXPORTER.items():
        source = _git(artifact, "show", f"{commit}:{file}").decode()
        for text in texts:
            if text not in source:
                outside.differs("soperator-metrics", f"{version}: {file} has no {text}")
    outside.did(f"{version}: {sum(map(len, EXPORTER.values()))} statements of Soperator's sources on metrics")
    outside.holds("soperator-metrics")


def unlisted(given: Any, listed: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of the uppermost keys that a chart's values.yaml does not have."""
    if isinstance(given, list):
        example = listed[0] if isinstance(listed, list) and listed else None
        for position, member in enumerate(given):
            yield from unlisted(member, example, (*path, position))
    elif isinstance(given, dict):
        for key, value in given.items():
            if isinstance(listed, dict) and key in listed:
                yield from unlisted(value, listed[key], (*path, key))
            else:
                yield (*path, key)


def leaves(given: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all values that are no mappings, and of lists whose members are none."""
    if isinstance(given, dict) and given:
        for key, value in given.items():
            yield from leaves(value, (*path, key))
    elif isinstance(given, list) and given and all(isinstance(member, dict) for member in given):
        for position, member in enumerate(given):
            yield from leaves(member, (*path, position))
    else:
        yield path


def changed(given: Any, path: tuple[str | int, ...]) -> Iterator[Any]:
    """Values without what is at a path, and with another value there."""
    step, *rest = path
    if rest:
        for below in changed(given[step], tuple(rest)):
            copy = given.copy()
            copy[step] = below
            yield copy
        return
    yield {key: value for key, value in given.items() if key != step}
    value = given[step]
    others: tuple[Any, ...] = ("other", {"other": "other"}, [{"name": "other"}])
    if isinstance(value, bool):
        others = (not value,)
    elif isinstance(value, (int, str)):
        others = (value + 1,) if isinstance(value, int) else (f"{value}x",)
    for other in others:
        yield {**given, step: other}


def template(release: ChartRelease, charts: Path, values: dict[str, Any]) -> str:
    """All objects of a chart with these values, or why it can't be rendered with them."""
    command = [binaries.ensure().helm, "template", release.name, str(charts / release.chart), "--values=-"]
    options = [f"--namespace={release.namespace}", f"--kube-version={KUBERNETES}"]
    done = programs.run([*command, *options], input=json.dumps(values))
    return done.stdout or done.stderr


def _charts(checkout: Path, commit: str, folder: Path) -> Path:
    """The charts of a commit, each in a folder of the name that it has in the registry."""
    with tarfile.open(fileobj=BytesIO(_git(checkout, "archive", commit, "helm"))) as archive:
        archive.extractall(folder, filter="data")
    for chart in (folder / "helm").glob("*/Chart.yaml"):
        about = yaml.safe_load(chart.read_text())
        # Charts of others, which Helm drops where values disable them, as this program's do: no checkout has them.
        if about.pop("dependencies", None):
            chart.write_text(yaml.safe_dump(about))
        (folder / f"helm-{chart.parent.name}").symlink_to(chart.parent)
    return folder


def rendered(cluster: Cluster, release: ChartRelease, charts: Path) -> list[dict[str, Any]]:
    """All objects of a release, those of hooks too."""
    options = ["--values=-", f"--kube-version={KUBERNETES}"]
    done = cluster.helm("template", release.name, str(charts / release.chart), *options, release=release)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.load_all(done.stdout, Loader=_Loader) if isinstance(document, dict)]


def _install(cluster: Cluster, release: ChartRelease, charts: Path, outside: Recorder, version: str) -> None:
    """Install, without hooks and webhooks: there is nothing here that would run their Jobs, or answer."""
    cluster.kubectl("delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "--all")
    chart = str(charts / release.chart)
    options = ["--install", "--values=-", "--no-hooks"]
    done = cluster.helm("upgrade", release.name, chart, *options, release=release)
    if done.returncode:
        outside.differs(f"soperator-install-{release.name}", f"{version}: {done.stderr.strip()[-500:]}")
        return
    record = f"secret/sh.helm.release.v1.{release.name}.v1"
    text = cluster.kubectl("get", record, f"--namespace={release.namespace}", "--output=jsonpath={.data.release}")
    size = len(text) * 3 // 4
    outside.did(f"{version}: {release.chart} is installed; its record has {size:,} of {MIB:,} bytes")
    for warning in sorted({line for line in done.stderr.splitlines() if "deprecated" in line}):
        outside.differs(f"soperator-deprecated-{release.name}", f"{version}: {warning}")


def _crds_alone(cluster: Cluster, charts: Path, outside: Recorder, version: str) -> None:
    """The chart that this program does not install."""
    done = cluster.run(
        cluster.paths.helm, "install", "crds", str(charts / "helm-soperator-crds"), "--namespace=default"
    )
    assert done.returncode, f"helm-soperator-crds {version} can be installed after all"
    assert "Too long" in done.stderr, done.stderr
    outside.did(f"{version}: helm-soperator-crds is refused: {done.stderr.strip().splitlines()[-1][-160:]}")


def _key(document: dict[str, Any], release: ChartRelease) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace") or release.namespace, metadata["name"]


def _missing(
    at: tuple[str, str, str], document: dict[str, Any], found: set[tuple[str, str, str]], namespaces: set[str]
) -> Iterator[str]:
    """What an object names and nobody creates."""
    kind, namespace, name = at
    if namespace not in namespaces:
        yield f"{kind} {name} is in the namespace {namespace}, which nobody creates"
    wide = {(kind, name) for kind, _, name in found if kind in CLUSTER_WIDE}
    for wanted, there in _references(document):
        place = (wanted, there) in wide if wanted in CLUSTER_WIDE else (wanted, namespace, there) in found
        if not place:
            yield f"{kind} {namespace}/{name} names {wanted} {there}"


def _references(node: Any) -> Iterator[tuple[str, str]]:
    """Kinds and names of objects that must exist."""
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    if not isinstance(node, dict):
        return
    if node.get("apiGroup") == "rbac.authorization.k8s.io" and node.get("kind") in ("Role", "ClusterRole"):
        yield node["kind"], node["name"]
    for key, value in node.items():
        named = value.get("name") if isinstance(value, dict) else value
        optional = isinstance(value, dict) and bool(value.get("optional"))
        if key in REFERENCES and isinstance(named, str) and named and not optional:
            yield REFERENCES[key], named
        yield from _references(value)


def _made_later(found: dict[tuple[str, str, str], dict[str, Any]], cluster: str) -> set[tuple[str, str, str]]:
    """What charts do not create themselves: cert-manager from Certificates, Soperator for its cluster
    (internal/naming), and this program's Secret of backups."""
    certificates = {
        ("Secret", at[1], document["spec"]["secretName"]) for at, document in found.items() if at[0] == "Certificate"
    }
    own = {("Secret", cluster, f"{cluster}-munge"), ("ConfigMap", cluster, f"{cluster}-slurm-configs")}
    return {*certificates, *own, ("Secret", cluster, BACKUP_SECRET)}
