"""`kruise=CHECKOUT`: OpenKruise's chart from a checkout of openkruise/charts, by Helm with this program's values."""

import json
from pathlib import Path

import yaml

from cluster.load import parse
from cluster.platforms.nebius.releases import CloudFacts, releases
from tests import programs
from tests.harness import ROOT
from tests.outside.kubernetes import binaries
from tests.outside.recorder import Recorder


def test_webhooks_see_the_slurm_namespace_alone(artifact: Path, outside: Recorder) -> None:
    config = parse(yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text(encoding="utf-8"))["config"])
    kruise = next(
        release for release in releases(config, CloudFacts(stack="nebius", root_keys=[])) if release.name == "kruise"
    )
    chart = artifact / "versions" / "kruise" / kruise.version
    done = programs.run(
        [binaries.ensure().helm, "template", "kruise", chart, "--values=-", "--post-renderer", kruise.post_renderer],
        input=json.dumps(dict(kruise.values)),
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    objects = [
        document
        for document in yaml.safe_load_all(done.stdout)
        if document and document["kind"].endswith("WebhookConfiguration")
    ]
    seen = {
        hook["name"]: hook["namespaceSelector"]["matchExpressions"]
        for document in objects
        for hook in document["webhooks"]
        if "namespaceSelector" in hook
    }
    outside.did(f"{kruise.version}: {len(seen)} webhooks of {len(objects)} objects have a namespace selector")
    assert "mpod.kb.io" in seen
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [config.name]}
    for name, expressions in seen.items():
        if only not in expressions:
            outside.differs("kruise-webhook", f"{name}: {expressions}")
    outside.holds("soperator-kruise-webhooks")
