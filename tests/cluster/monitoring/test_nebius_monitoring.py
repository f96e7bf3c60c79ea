"""`monitoring` on Nebius: rules and panels are of metrics that there are, and recorded ones are what they say."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cluster.monitoring.alerts import ALERTS
from cluster.monitoring.dashboards import DASHBOARDS
from cluster.platforms.nebius import monitoring
from cluster.platforms.nebius.names import MONITORING_NAMESPACE
from cluster.platforms.nebius.request import describe_request, request
from tests.cluster.nebius.clusters import config, described, findings, releases_of, settings

Tool = Callable[..., str]
MAIL = {"to": ["ops@example.org"], "sender": "a@example.org", "smarthost": "smtp.example.org:587", "username": "slurm"}
RECEIVERS = {"mail": MAIL, "slack": "#alerts", "webhook": True, "watchdog": True}


def cluster(version="4.1.7", **more):
    return described(version, monitoring={"receivers": RECEIVERS, **more})


CHARTS = ("victoria-metrics-k8s-stack", "victoria-logs-single", "opentelemetry-collector",
          "soperator-monitoring-dashboards")  # fmt: skip


class TestReleases:
    def test_charts_of_monitoring_are_installed_with_the_field_monitoring(self):
        assert not {*CHARTS} & {*releases_of(described())}
        every = releases_of(cluster())
        assert {*CHARTS} <= {*every}
        assert {every[name].namespace for name in CHARTS} == {MONITORING_NAMESPACE}

    def test_days_disks_and_intervals_are_those_of_the_stack_file(self):
        every = releases_of(cluster(retention_days=30, disk_gb=40, interval_seconds=20))
        stack, logs = (every[name].values for name in CHARTS[:2])
        assert stack["vmsingle"]["spec"]["retentionPeriod"] == logs["server"]["retentionPeriod"] == "30d"
        assert stack["vmsingle"]["spec"]["storage"]["resources"]["requests"]["storage"] == "40Gi"
        assert logs["server"]["persistentVolume"]["size"] == "40Gi"
        assert stack["vmagent"]["spec"]["scrapeInterval"] == stack["vmalert"]["spec"]["evaluationInterval"] == "20s"
        scrape = every["slurm-cluster"].values["slurmNodes"]["controller"]["openMetrics"]["serviceMonitor"]
        # The interval may not be shorter than what an answer may take.
        assert scrape == {"interval": "20s", "scrapeTimeout": "20s", "endpoints": ["nodes", "scheduler"]}

    def test_a_preview_and_the_check_of_quotas_count_both_disks(self):
        plain, kept = config(described()), config(cluster(disk_gb=512))
        sizes = [
            request(stack, settings(stack))["quotas"]["compute.disk.size.network-ssd"] >> 30 for stack in (plain, kept)
        ]
        assert sizes[1] - sizes[0] == 1024
        assert [line for line in describe_request(plain) if line.startswith("disks")] != [
            line for line in describe_request(kept) if line.startswith("disks")
        ]

    def test_secrets_are_in_no_value(self):
        stack = releases_of(cluster())["victoria-metrics-k8s-stack"].values["alertmanager"]
        receiver, watchdog = stack["config"]["receivers"]
        assert stack["spec"]["secrets"] == [monitoring.SECRET]
        folder = f"/etc/vm/secrets/{monitoring.SECRET}/"
        assert receiver["email_configs"][0]["auth_password_file"] == f"{folder}mailPassword"
        assert receiver["slack_configs"][0]["api_url_file"] == f"{folder}slackUrl"
        assert receiver["webhook_configs"][0]["url_file"] == f"{folder}webhookUrl"
        assert watchdog["webhook_configs"] == [{"url_file": f"{folder}watchdogUrl", "send_resolved": False}]
        assert "@" not in json.dumps(stack["config"]).replace("@example.org", "")


class TestMetrics:
    def test_each_expression_is_of_metrics_that_are_exported_or_recorded_before(self):
        there, stack = set(monitoring.EXPORTED), config(cluster())
        for name, expression in monitoring.recording_rules(stack, 30).items():
            assert monitoring.metrics_of(expression) <= there | {name}, name
            there.add(name)
        assert there == monitoring.metrics(stack)
        for alert in monitoring.alerts(stack):
            assert monitoring.metrics_of(alert.expression) <= there
        for dashboard in monitoring.dashboards(stack):
            for panel in dashboard.panels:
                assert all(monitoring.metrics_of(query) <= there for query, _ in panel.queries)

    @pytest.mark.parametrize(
        ("expression", "wanted"),
        [
            ("max by (a, b) (x{c=~\"d|e\"}) - on (f) group_left (g) rate(y[5m]) > 10e6", {"x", "y"}),
            ("sum(x) by (a) or vector(0) and on () z offset 5m", {"x", "z"}),
            ('label_replace(up{job="node"} == 1, "machine", "$1", "instance", "(.+)")', {"up"}),
            ("increase((max by (i) (a_b))[15m:1m]) > bool 0", {"a_b"}),
        ],
    )  # fmt: skip
    def test_metrics_of_an_expression(self, expression, wanted):
        assert monitoring.metrics_of(expression) == wanted

    def test_commands_of_alerts_are_for_pods(self):
        for alert in monitoring.alerts(config(cluster())):
            assert "systemctl" not in alert.todo
            assert "journalctl" not in alert.todo
            assert "ssh STACK controller" not in alert.todo
        assert set(monitoring._HELPS) <= {alert.name for alert in ALERTS}

    def test_commands_have_the_stacks_own_name(self):
        rules = releases_of(cluster())["victoria-metrics-k8s-stack"].values
        assert "./hpc status nebius" in str(rules)
        assert "STACK" not in str(rules)

    @pytest.mark.slow
    def test_recorded_metrics_have_the_values_of_soperators(self, promtool: Tool, tmp_path: Path):
        """As Prometheus evaluates them; that of the longest wait is MetricsQL."""
        records = {
            name: text
            for name, text in monitoring.recording_rules(config(cluster()), 60).items()
            if "label_value" not in text
        }
        groups = [{"name": "records", "rules": [{"record": name, "expr": text} for name, text in records.items()]}]
        down = "".join(f',{key}="true"' for key in ("is_unavailable",))
        (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
        node = 'slurm_node_info{node_name="worker-%s",state_base="%s",state_is_drain="%s"%s}'
        job = 'slurm_job_info{job_id="%s",job_state="%s",job_state_reason="%s",slurm_partition="main",user_name="%s"}'
        series = {
            node % (0, "DOWN", "false", down): "_x4 1x20",
            node % (1, "IDLE", "true", ',is_unavailable="true"'): "1x24",
            node % (2, "DOWN", "false", ',state_is_powered_down="true"'): "1x24",
            node % (3, "MIXED", "false", ""): "1x24",
            node % (4, "DOWN", "false", f'{down},state_is_maintenance="true"'): "1x24",
            job % (7, "RUNNING", "None", "alice"): "1x24",
            job % (8, "PENDING", "Resources", "alice"): "1x24",
            job % (9, "PENDING", "JobHeldAdmin", "bob"): "1x24",
            job % (10, "PENDING", "JobHeldUser", "bob"): "1x24",
            job % (11, "PENDING", "ReqNodeNotAvail,_UnavailableNodes:worker-1", "bob"): "1x24",
            'slurm_nodes{job="x"}': "4x24",
            'slurm_node_cpus{node="worker-3"}': "128x24",
            'kube_pod_container_status_ready{namespace="soperator",container="accounting"}': "1x24",
            'kube_pod_container_status_ready{namespace="soperator",container="mariadb"}': "0x24",
            'DCGM_FI_DEV_GPU_UTIL{instance="worker-3",gpu="0",hpc_job="7"}': "90x24",
            'DCGM_FI_DEV_GPU_UTIL{instance="worker-3",gpu="1",hpc_job="7"}': "90x24",
            'node_filesystem_size_bytes{fstype="virtiofs",mountpoint="/mnt/jail",instance="a"}': "100x24",
            'node_filesystem_size_bytes{fstype="virtiofs",mountpoint="/mnt/cloud-metadata",instance="a"}': "9x24",
        }  # fmt: skip
        wanted = {
            'hpc_node_unavailable_seconds{node="worker-0",state="down"}': 16 * 60,
            'hpc_node_unavailable_seconds{node="worker-1",state="drained"}': 20 * 60,
            "slurm_jobs_running": 1, "slurm_jobs_pending": 4, "slurm_jobs_hold": 2, "hpc_jobs_held": 1,
            "hpc_jobs_waiting": 2, 'hpc_partition_jobs_waiting{partition="main"}': 2,
            'hpc_partition_jobs_blocked{partition="main"}': 1,
            'slurm_user_jobs_pending{username="bob"}': 3, 'slurm_user_jobs_running{username="bob"}': 0,
            'hpc_job_gpus{hpc_job="7",user="alice"}': 2, "hpc_slurmctld_up": 1, "hpc_slurmdbd_up": 0,
            'slurm_node_gpus{node="worker-3"}': 8, 'slurm_node_gpus_alloc{node="worker-3"}': 2,
            'hpc_shared_filesystem_size_bytes{mountpoint="/mnt/jail"}': 100,
        }  # fmt: skip
        rows = [
            {"expr": name, "eval_time": "20m", "exp_samples": [{"labels": name, "value": value}]}
            for name, value in wanted.items()
        ] + [{"expr": "count(hpc_node_unavailable_seconds)", "eval_time": "20m",
              "exp_samples": [{"labels": "{}", "value": 2}]}]  # fmt: skip
        test = {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": rows,
        }
        path = tmp_path / "test.yml"
        path.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}))
        promtool("test", "rules", path)


def test_the_guide_names_what_is_left_out(table_in_page):
    stack = config(cluster())
    kept = {alert.name for alert in monitoring.alerts(stack)}
    alerts = [
        f"`{alert.name}`"
        for alert in ALERTS
        if alert.name not in kept and "hpc_health_check_failed" not in alert.expression
    ]
    shown = {(kind.name, panel.title) for kind in monitoring.dashboards(stack) for panel in kind.panels}
    panels = [
        (kind.title, ", ".join(lost))
        for kind in DASHBOARDS
        if (lost := [panel.title for panel in kind.panels if (kind.name, panel.title) not in shown])
    ]
    rows = [("of", "left out"), ("alerts", ", ".join(["`Health...`", *alerts])), *panels]
    table_in_page("guides/nebius.md", "what is left out", rows)


class TestTopology:
    def test_settings_that_soperator_supports_are_taken_over(self):
        for given, plugin in (("places", "topology/tree"), ("none", "topology/default")):
            values = releases_of(described(slurm={"topology": given}))["slurm-cluster"].values["slurmConfig"]
            assert values["topologyPlugin"] == plugin

    def test_what_it_cannot_is_refused(self):
        found = findings(slurm={"topology": "nodesets"})["slurm.topology"]
        assert found.id == "nebius-topology"
        assert str(found.allowed).startswith("places, none")
