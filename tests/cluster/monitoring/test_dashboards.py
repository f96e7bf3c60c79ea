"""The table of dashboards: queries that no rehearsal has data for give some, and Grafana's own types take its files."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cli import bootstrap
from cluster.monitoring.dashboards import DASHBOARDS, ELASTIC, FABRIC, IMAGE, grafana_files
from tests import programs
from tests.architecture.test_sources import ROOT
from tests.e2e.test_health import NOT_HERE, expand_query

Tool = Callable[..., str]
GPU = '{instance="big-gpu-0",gpu="3",hpc_job="7"}'
SYNTHETIC = {
    **{
        f"DCGM_FI_DEV_{name}{GPU}": "60x10" for name in ("GPU_UTIL", "GPU_TEMP", "POWER_USAGE", "FB_FREE", "XID_ERRORS")
    },
    f"DCGM_FI_DEV_FB_USED{GPU}": "20x10",
    f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{GPU}": "0.4x10",
    f"DCGM_FI_DEV_THERMAL_VIOLATION{GPU}": "0+3e9x10",
    f"DCGM_FI_DEV_POWER_VIOLATION{GPU}": "0+6e9x10",
    'node_infiniband_port_data_received_bytes_total{instance="big-gpu-0",device="mlx5_0"}': "0+6e9x10",
    'node_infiniband_port_data_transmitted_bytes_total{instance="big-gpu-0",device="mlx5_0"}': "0+3e9x10",
    "hpc_reconcile_brakes": "1x10",
    "hpc_reconcile_cooling": "0x10",
    'hpc_reconcile_recent_actions{action="create"}': "3x10",
    "hpc_image_age_seconds": "86400x10",
}
"""Series that a rehearsal lacks, a value each minute: as dcgm-exporter 4.5 and node_exporter name them."""
VALUES = {
    ("gpus", "Tensor cores are active"): 0.4,
    ("gpus", "GPU memory in use"): 0.25,
    ("gpus", "Power"): 60.0,
    ("gpus", "Time with a lower clock"): 0.05,
    ("gpus", "Last Xid"): 60.0,
    ("job", "GPU memory in use"): 0.25,
    ("nodes", "Fabric"): 1e8,
    ("health", "Age of the image"): 86_400.0,
}
"""What the first query of some panels gives for these."""
PANELS = [(dashboard.name, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]


def test_panels_without_data_in_a_rehearsal_are_those_that_say_what_they_need():
    named: dict[str, set[str]] = {}
    for dashboard, panel in PANELS:
        if panel.needs in (FABRIC, ELASTIC, IMAGE) or panel.title == "Last Xid":
            named.setdefault(dashboard, set()).add(panel.title)
    assert named == NOT_HERE


@pytest.mark.slow
def test_queries_give_data_of_synthetic_series(promtool: Tool, tmp_path: Path):
    rows: list[dict[str, object]] = []
    for dashboard, panel in PANELS:
        for number, (query, _) in enumerate(panel.queries):
            text, value = (
                f"({expand_query(query, nodes='big-gpu-0|big-gpu-1', job='7')})",
                VALUES.get((dashboard, panel.title)),
            )
            if panel.title not in NOT_HERE.get(dashboard, ()) and value is None:
                # promtool reads it, which is all that there is to see here.
                text, expected = f"absent({text}) or vector(1)", 1.0
            elif number or value is None:
                text, expected = f"count({text}) > bool 0", 1.0
            else:
                text, expected = f"max({text})", value
            rows.append({"expr": text, "eval_time": "8m", "exp_samples": [{"labels": "{}", "value": expected}]})
    series = [{"series": name, "values": values} for name, values in SYNTHETIC.items()]
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": rows}]
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", tmp_path / "test.yml")


@pytest.mark.parametrize(("dashboard", "panel"), PANELS, ids=lambda value: getattr(value, "title", value))
def test_queries_use_existing_metrics_and_legends_their_labels(dashboard: str, panel: object):
    sources = "".join(path.read_text() for path in (ROOT / "scripts/node/monitoring").glob("*.py"))
    queries = next(value.queries for name, value in PANELS if (name, value) == (dashboard, panel))
    for query, legend in queries:
        for metric in re.findall(r"\b((?:hpc|slurm)_[a-z_]+)", query):
            words = re.sub(
                "^(slurm_(nodes|jobs|partition_jobs|user_jobs|account_jobs)|slurm|hpc_reconcile)_", "", metric
            )
            assert metric in sources or f'"{words}"' in sources, metric
        assert legend
        kept = re.findall(r"(?<!topk) by \(([a-z, ]+)\)", query)
        assert not kept or set(re.findall(r"\{\{(\w+)", legend)) <= set(kept[0].split(", ")), query


def test_ranges_of_panels_follow_the_interval():
    for _, panel in PANELS:
        for query, _ in panel.queries:
            assert set(re.findall(r"\[([^]]*)\]", query)) <= {"$__rate_interval"}, panel.title


def test_titles_of_a_dashboard_are_unique():
    for dashboard in DASHBOARDS:
        titles = [panel.title for panel in dashboard.panels]
        assert len(set(titles)) == len(titles)


_TYPES = """
import json, sys
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
plugins.register_default_plugins()
print(json.dumps([json.loads(JSONEncoder().encode(Dashboard.from_json(one))) for one in json.load(sys.stdin)]))
"""


def missing(given: object, kept: object, path: str = "") -> list[str]:
    """Return what a document has lost."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [lost for key, value in given.items() for lost in missing(value, kept.get(key), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = zip(given, kept, strict=True)
        return [lost for at, (item, other) in enumerate(pairs) for lost in missing(item, other, f"{path}[{at}]")]
    return [] if given == kept else [f"{path}: {given!r} became {kept!r}"]


@pytest.mark.slow
def test_grafanas_types_accept_the_dashboards():
    """Its typed SDK, which has a release for Grafana 11.6 as its newest."""
    documents = [document for name, document in grafana_files("dev", 30).items() if name.endswith(".json")]
    done = programs.run(
        [sys.executable, "-c", _TYPES],
        input=json.dumps(documents),
        env={"PYTHONPATH": str(bootstrap.tool("grafana-foundation-sdk"))},
        check=True,
    )
    assert missing(documents, json.loads(done.stdout)) == []


def test_grafana_gets_each_dashboard_with_its_source_and_panels_that_do_not_overlap():
    files = grafana_files("a-cluster-whose-name-is-as-long-as-may-be", 300)
    source = files["provisioning/datasources/hpc-a-cluster-whose-name-is-as-long-as-may-be.yaml"]["datasources"][0]
    documents = [document for name, document in files.items() if name.endswith(".json")]
    assert len({document["uid"] for document in documents}) == len(DASHBOARDS)
    for document, dashboard in zip(documents, DASHBOARDS, strict=True):
        assert [panel["title"] for panel in document["panels"]] == [panel.title for panel in dashboard.panels]
        assert {panel["datasource"]["uid"] for panel in document["panels"]} == {source["uid"]}
        assert len(document["uid"]) <= 40
        assert {target["interval"] for panel in document["panels"] for target in panel["targets"]} == {"300s"}
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in document["panels"])
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24
