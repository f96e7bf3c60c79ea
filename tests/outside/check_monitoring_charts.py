"""`monitoring-charts=FOLDER`: charts of metrics and logs on Nebius, by Helm with this program's values, in a real API
server with the definitions of VictoriaMetrics' operator.

The folder has each chart as `helm pull --untar` of its repository unpacks it, with its dependencies.
"""

import json
from pathlib import Path

import yaml

from cluster.load import parse
from cluster.platforms.nebius.names import ALERTMANAGER, MONITORING_NAMESPACE, VMSINGLE
from cluster.platforms.nebius.releases import ChartRelease, CloudFacts, releases
from tests.harness import ROOT
from tests.outside.check_soperator import MIB, Cluster, changed, rendered, template, unlisted
from tests.outside.kubernetes import apiserver, binaries
from tests.outside.recorder import Recorder

RECEIVERS = {
    "slack": "#alerts", "webhook": True, "watchdog": True,
    "mail": {"to": ["ops@example.org"], "sender": "slurm@example.org", "smarthost": "smtp.example.org:587",
             "username": "slurm"},
}  # fmt: skip


def charts(folder: Path) -> list[ChartRelease]:
    given = yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text(encoding="utf-8"))["config"]
    given["hpc:cluster"]["monitoring"] = {"receivers": RECEIVERS}
    every = releases(parse(given), CloudFacts(stack="nebius", root_keys=[]))
    found = [
        release for release in every if release.namespace == MONITORING_NAMESPACE and (folder / release.chart).is_dir()
    ]
    assert len(found) == 3, [release.chart for release in found]
    return found


def test_charts_have_every_key_that_they_are_given(artifact: Path, outside: Recorder) -> None:
    for release in charts(artifact):
        about = yaml.safe_load((artifact / release.chart / "Chart.yaml").read_text())
        if about["version"] != release.version:
            outside.differs(f"version-{release.chart}", f"{about['version']}, where {release.version} is installed")
        given = json.loads(json.dumps(dict(release.values)))
        listed = yaml.safe_load((artifact / release.chart / "values.yaml").read_text())
        paths, whole = list(unlisted(given, listed)), template(release, artifact, given)
        for path in paths:
            if all(template(release, artifact, other) == whole for other in changed(given, path)):
                outside.differs(f"key-{release.chart}", f"no {'.'.join(map(str, path))}")
        outside.did(f"{release.chart} {release.version}: {len(paths)} keys that its values.yaml does not list are read")
    outside.holds("monitoring-chart-keys")


def test_charts_install_with_the_names_that_others_ask_for(artifact: Path, outside: Recorder, tmp_path: Path) -> None:
    paths = binaries.ensure()
    with apiserver.running(tmp_path / "api", paths) as kubeconfig:
        cluster = Cluster(paths, kubeconfig)
        cluster.kubectl("create", "namespace", MONITORING_NAMESPACE)
        for crds in artifact.rglob("crds/crds/*.yaml"):
            cluster.kubectl("apply", "--server-side", f"--filename={crds}")
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        names: set[tuple[str, str]] = set()
        for release in charts(artifact):
            documents = rendered(cluster, release, artifact)
            for document in documents:
                # Fields that a definition does not have are refused here, where an installation drops them.
                if document["apiVersion"].startswith("operator.victoriametrics.com"):
                    cluster.kubectl(
                        "apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=json.dumps(document)
                    )
            names |= {(document["kind"], document["metadata"]["name"]) for document in documents}
            options = ["--install", "--values=-", "--no-hooks"]
            done = cluster.helm("upgrade", release.name, str(artifact / release.chart), *options, release=release)
            assert done.returncode == 0, done.stderr
            cluster.kubectl("delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "--all")
            record = f"secret/sh.helm.release.v1.{release.name}.v1"
            text = cluster.kubectl(
                "get", record, f"--namespace={release.namespace}", "--output=jsonpath={.data.release}"
            )
            outside.did(f"{release.chart}: its record has {len(text) * 3 // 4:,} of {MIB:,} bytes")
        # The operator's names of Services and StatefulSets are those of its objects behind the kind.
        for kind, name in (
            ("VMSingle", VMSINGLE.removeprefix("vmsingle-").partition(":")[0]),
            ("VMAlertmanager", ALERTMANAGER.removeprefix("vmalertmanager-")),
            ("Service", "victoria-logs-single-server"),
            ("Service", "victoria-metrics-k8s-stack-grafana"),
        ):
            if (kind, name) not in names:
                outside.differs(f"name-{name}", f"no {kind} of this name")
    outside.holds("monitoring-charts-install")
