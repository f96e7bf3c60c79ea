"""Each alert fires and clears by Prometheus' own test of rules, says who acts and what helps; files are valid."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from health import nvlink

from cluster.monitoring import alerts, files
from cluster.monitoring.alerts import ALERTS, WATCHDOG, Alert, alerts_for, rules
from cluster.platforms.nebius.monitoring import OWN_ALERTS
from scripts.node.judge.kinds import FINDING_ALERT, KINDS
from tests.architecture.test_sources import ROOT
from tests.cluster.stacks import STACKS, config

Tool = Callable[..., str]
VALUES = yaml.safe_load(Path(__file__).with_name("alerts.yml").read_text())
EVERY = (*ALERTS, *OWN_ALERTS)
STACK = "prod"
SPARE = 7
"""Minutes more than an alert needs to fire, or to clear: a series without values ends after five."""


def values(alert: Alert) -> dict[str, Any]:
    """Values of series that set an alert off and clear it, and its labels then."""
    if alert.name in VALUES:
        return dict(VALUES[alert.name])
    # A health check of one kind.
    kind = re.findall('kind="(.+)"', alert.expression)[0]
    series = f'hpc_health_check_failed{{node="dev-gpu-0",kind="{kind}"}}'
    return {series: ["1", "_"], "labels": {"node": "dev-gpu-0", "kind": kind}}


def without_texts(interval: int, alert: Alert) -> dict[str, Any]:
    """The rules of one alert without annotations, which a test would have to repeat."""
    found = rules(interval, [alert], stack=STACK)
    del found["groups"][0]["rules"][0]["annotations"]
    return found


def run(promtool: Tool, folder: Path, found: dict[str, Any], tests: list[dict[str, Any]], interval: str = "1m") -> None:
    """Run tests of rules, which are evaluated at this interval."""
    (folder / "rules.yml").write_text(yaml.safe_dump(found))
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": tests}))
    promtool("test", "rules", path)


def write_test(alert: Alert, folder: Path) -> Path:
    """Write a test of one alert, and its rule: it fires when it has held for long enough, and not a minute sooner than
    that; then it is gone."""
    (folder / f"{alert.name}.yml").write_text(yaml.safe_dump(without_texts(30, alert)))
    units = {"m": 1, "h": 60}
    longest = max((int(n) * units[unit] for n, unit in re.findall(r"\[(\d+)([mh])[\]:]", alert.expression)), default=0)
    fires, clear = longest + alert.minutes + SPARE, longest + SPARE
    series = values(alert)
    labels = {"severity": alert.severity, "actor": alert.actor.value, **series.pop("labels", {})}
    rows = [
        {
            "eval_time": f"{fires}m",
            "exp_alerts": [{"exp_labels": {key: value for key, value in labels.items() if value}}],
        },
        {"eval_time": f"{fires + clear}m", "exp_alerts": []},
    ]
    if alert.minutes:
        rows.insert(0, {"eval_time": f"{alert.minutes - 1}m", "exp_alerts": []})
    test = {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": f"{bad}x{fires} {good}x{clear}"} for name, (bad, good) in series.items()
        ],
        "alert_rule_test": [{"alertname": alert.name, **row} for row in rows],
    }
    path = folder / f"{alert.name}-test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [f"{alert.name}.yml"], "evaluation_interval": "1m", "tests": [test]}))
    return path


@pytest.mark.slow
def test_each_alert_fires_and_clears(promtool: Tool, tmp_path: Path):
    promtool("test", "rules", *(write_test(alert, tmp_path) for alert in EVERY))


@pytest.mark.slow
def test_a_finding_pages_with_its_latest_words_and_its_command(promtool: Tool, tmp_path: Path):
    """Also where the words have changed, and once it is gone."""
    place = 'id="disk-full",where="dev-login-0"'
    texts = [
        f'hpc_finding_text{{{place},what="/ is full: {used}",todo="./hpc ssh {STACK} x"}}' for used in ("96%", "97%")
    ]
    labels = {"id": "disk-full", "where": "dev-login-0", "severity": "critical", "actor": "administrator"}

    def fires(minute: int, words: str, todo: str) -> dict[str, Any]:
        texts = {"summary": f"dev-login-0: {words}", "todo": todo}
        return {
            "eval_time": f"{minute}m",
            "alertname": FINDING_ALERT,
            "exp_alerts": [{"exp_labels": labels, "exp_annotations": texts}],
        }

    test = {
        "interval": "1m",
        "input_series": [
            {"series": f'hpc_finding{{{place},severity="critical"}}', "values": "0x9 1x10 _x20"},
            {"series": texts[0], "values": "1x9 _x30"},
            {"series": texts[1], "values": "_x9 1x6 _x24"},
        ],
        "alert_rule_test": [
            {"eval_time": "9m", "alertname": FINDING_ALERT, "exp_alerts": []},
            fires(15, "/ is full: 97%", f"./hpc ssh {STACK} x"),
            # Its text could not be collected for longer than the finding itself.
            fires(22, "disk-full", f"./hpc status {STACK}"),
            {"eval_time": "30m", "alertname": FINDING_ALERT, "exp_alerts": []},
        ],
    }
    run(promtool, tmp_path, rules(30, stack=STACK), [test])


@pytest.mark.slow
@pytest.mark.parametrize("stack", [name for name in STACKS if config(name).monitoring])
def test_prometheus_and_alertmanager_accept_their_files(stack: str, promtool: Tool, amtool: Tool, tmp_path: Path):
    cluster = config(stack)
    assert cluster.monitoring
    for name, text in files.render(cluster, cluster.monitoring, stack).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        there = text.replace("/etc/prometheus", str(tmp_path))
        for secret in cluster.monitoring.receivers.secrets:
            there = there.replace(files.secret_placeholder(secret), "https://example.org/it''s")
        (tmp_path / name).write_text(there)
    assert f"{len(alerts_for(cluster))} rules found" in promtool("check", "rules", tmp_path / files.RULES)
    promtool("check", "config", tmp_path / "prometheus.yml")
    amtool("check-config", tmp_path / "alertmanager.yml")
    route = ("config", "routes", "test", f"--config.file={tmp_path / 'alertmanager.yml'}")
    assert amtool(*route, "alertname=HealthDisk", "severity=critical").split() == ["cluster"]
    own = "watchdog" if cluster.monitoring.receivers.watchdog else "cluster"
    assert amtool(*route, "alertname=Watchdog", "severity=none").split() == [own]


@pytest.mark.slow
def test_the_ops_agent_collects_what_prometheus_does_in_the_form_that_it_takes(promtool: Tool, tmp_path: Path):
    cluster = config("example-gcp")
    assert cluster.monitoring
    agent = (files.monitoring(cluster, STACK, "monitoring") or {})["ops_agent"]
    given = yaml.safe_load("\n".join(agent["lines"]))["metrics"]
    assert given["service"]["pipelines"]["slurm_cluster"]["receivers"] == list(given["receivers"])
    receiver = given["receivers"]["slurm_cluster"]
    # Prometheus' own, of which the agent's receiver takes less (confgenerator/prometheus.go, validatePrometheus).
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(receiver["config"]))
    promtool("check", "config", tmp_path / "prometheus.yml")
    assert (receiver["type"], list(receiver["config"])) == ("prometheus", ["scrape_configs"])
    wanted = yaml.safe_load(files.render(cluster, cluster.monitoring, STACK)["prometheus.yml"])
    named = {job["job_name"] for job in wanted["scrape_configs"]} - set(files.OWN_JOBS)
    assert {job["job_name"] for job in receiver["config"]["scrape_configs"]} == named
    for job in receiver["config"]["scrape_configs"]:
        assert not {"honor_labels", "file_sd_configs"} & set(job)
        assert {"scrape_interval", "static_configs"} <= set(job)
        labels = {label for group in job["static_configs"] for label in group["labels"]}
        assert not {"location", "namespace", "cluster"} & labels
        assert labels >= {"slurm_cluster"}
        for rule in (*job.get("relabel_configs", ()), *job.get("metric_relabel_configs", ())):
            assert rule.get("target_label") not in ("location", "namespace", "cluster", "__name__")


INTERVALS = (10, 30, 60, 120, 300)
"""Intervals of collection in seconds, of those that `monitoring.interval_seconds` may have."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


def ranges(text: str) -> list[int]:
    """The seconds of all ranges of PromQL in a text."""
    return [int(number) * _UNITS[unit] for number, unit in re.findall(r"\[([0-9]+)([a-z])[]:]", text)]


@pytest.mark.parametrize("interval", INTERVALS)
def test_ranges_have_four_intervals_and_are_as_written_at_short_ones(interval: int):
    for alert, rule in zip(EVERY, rules(interval, EVERY, stack=STACK)["groups"][0]["rules"], strict=True):
        written = ranges(alert.expression + alert.what + alert.todo)
        found = ranges(rule["expr"] + rule["annotations"]["summary"] + rule["annotations"]["todo"])
        assert found == [max(seconds, 4 * interval) for seconds in written]
    assert len(ranges(rules(interval, stack=STACK)["groups"][0]["rules"][0]["annotations"]["todo"])) == 1


@pytest.mark.parametrize("interval", INTERVALS)
def test_the_settings_of_machines_fit_the_interval(interval: int):
    """Prometheus' own lookback, the query of idle GPUs, and dcgm-exporter's window of Xids, which is longer
    than the time between two collections."""
    there = config("example-gcp")
    assert there.monitoring
    stack = there.model_copy(update={"monitoring": there.monitoring.model_copy(update={"interval_seconds": interval})})
    settings: dict[str, Any] = {**(files.monitoring(stack, STACK, "monitoring") or {})}
    (lookback,) = re.findall(r"--query.lookback-delta=([0-9]+)s", settings["prometheus"])
    assert int(lookback) == max(300, 4 * interval)
    assert ranges(settings["idle"]) == [max(60, 4 * interval)]
    assert f"\n  scrape_interval: {interval}s\n" in "\n".join(settings["files"]["prometheus.yml"])
    exporter = files.gpu_exporter(stack)
    assert exporter
    (window,) = re.findall("--xid-count-window-size ([0-9]+)", exporter["arguments"])
    assert max(300, 2 * interval) <= int(window) / 1000 <= 600


@pytest.mark.slow
@pytest.mark.parametrize("interval", [30, 300])
def test_gpus_are_idle_at_any_interval_though_a_collection_fails(interval: int, promtool: Tool, tmp_path: Path):
    labels = {"hpc_job": "7", "user": "alice", "account": "research", "severity": "warning", "actor": "user"}
    minutes = 10 + max(60, 4 * interval) // 60
    quarter = 600 // interval
    alert = next(alert for alert in ALERTS if alert.name == "GpusIdle")
    # Busy for a quarter of an hour and idle from then on; each third collection fails.
    idle, busy = f"0 0 _ {'0 0 _ ' * 4 * quarter}", f"{'80 80 _ ' * quarter}"
    series = {
        'DCGM_FI_DEV_GPU_UTIL{instance="dev-gpu-0",gpu="0",hpc_job="7"}': busy + idle,
        'hpc_job_gpus{hpc_job="7",user="alice",account="research"}': "1 1 _ " * 5 * quarter,
    }
    began = 3 * quarter * interval // 60
    rows = [
        {"eval_time": f"{began + 9}m", "alertname": alert.name, "exp_alerts": []},
        {
            "eval_time": f"{began + minutes + interval // 60}m",
            "alertname": alert.name,
            "exp_alerts": [{"exp_labels": labels}],
        },
    ]
    test = {
        "interval": f"{interval}s",
        "input_series": [{"series": name, "values": values.strip()} for name, values in series.items()],
        "alert_rule_test": rows,
    }
    run(promtool, tmp_path, without_texts(interval, alert), [test], f"{interval}s")


@pytest.mark.slow
@pytest.mark.parametrize("interval", [30, 120, 300])
@pytest.mark.parametrize("name", ["SlurmctldDown", "SlurmdbdDown"])
def test_one_failed_collection_is_no_daemon_that_is_down(name: str, interval: int, promtool: Tool, tmp_path: Path):
    (alert,) = (alert for alert in OWN_ALERTS if alert.name == name)
    metric = f"hpc_{name.removesuffix('Down').lower()}_up"
    rows = [{"eval_time": f"{at * interval}s", "alertname": name, "exp_alerts": []} for at in range(10, 40)]
    down = [{"exp_labels": {"severity": "critical", "actor": "administrator"}}]
    rows.append({"eval_time": f"{60 * interval}s", "alertname": name, "exp_alerts": down})
    test = {
        "interval": f"{interval}s",
        "input_series": [{"series": metric, "values": "1x19 0 1x19 0x40"}],
        "alert_rule_test": rows,
    }
    run(promtool, tmp_path, without_texts(interval, alert), [test], f"{interval}s")


@pytest.mark.slow
def test_the_watchdog_fires_at_once_and_always(promtool: Tool, tmp_path: Path):
    fires = {"alertname": "Watchdog", "exp_alerts": [{"exp_labels": {"severity": "none", "actor": "administrator"}}]}
    test = {"interval": "1m", "alert_rule_test": [{"eval_time": time, **fires} for time in ("0m", "1m", "7d")]}
    run(promtool, tmp_path, without_texts(30, WATCHDOG), [test])


def test_the_watchdog_is_there_for_its_receiver_alone():
    """Without one, it would be a message to every other receiver."""
    assert WATCHDOG in alerts_for(config("example-full"))
    for stack in ("example-gcp", "dev"):
        assert alerts_for(config(stack)) == ALERTS


def test_commands_have_the_stacks_own_name():
    """In each rule's command, as in the settings of the exporter, which writes those of findings."""
    named = [row["annotations"]["todo"] for row in rules(30, EVERY, stack=STACK)["groups"][0]["rules"]]
    assert not [todo for todo in named if "STACK" in todo]
    assert named[0].endswith(f"./hpc status {STACK}{{{{ end }}}}")
    for role in ("controller", "monitoring"):
        assert (files.monitoring(config("example-gcp"), STACK, role) or {})["stack"] == STACK


BY_NVLINK = {
    "RECOVERY_ERROR_COUNT_TOTAL": ("0x20 1x20", "1 new errors"),
    "REPLAY_ERROR_COUNT_TOTAL": ("0+12000x40", "200 repaired errors a second"),
    "COUNT_RX_SYMBOL_ERRORS": ("0x20 1x20", "1 new errors"),
    "COUNT_LINK_RECOVERY_FAILED_EVENTS": ("0x20 2x20", "2 new errors"),
    "COUNT_EFFECTIVE_ERRORS": ("0+12000x40", "200 repaired errors a second"),
}
"""Values of DCGM's counters up to Hopper and from Blackwell on, and what the alert says of them."""
REPAIRED = {
    "REPLAY_ERROR_COUNT_TOTAL": "0x20 1x20",
    "CRC_FLIT_ERROR_COUNT_TOTAL": "0+60x40",
    "COUNT_EFFECTIVE_ERRORS": "0+600x40",
}
"""Those of links that are sound: a replay, an error or ten a second that are repaired."""


@pytest.mark.slow
def test_alerts_of_gpus_have_figure_machine_and_job(promtool: Tool, tmp_path: Path):
    tests: list[dict[str, Any]] = []
    place = 'instance="dev-gpu-0",gpu="3"'
    name = "GpuNvlinkErrors"
    for job in ("", "7"):
        having = f", which has job {job}," if job else ""
        in_job = f'{place},hpc_job="{job}"' if job else place
        util = {"series": f"DCGM_FI_DEV_GPU_UTIL{{{in_job}}}", "values": "90x40"}
        for counter, (values, said) in BY_NVLINK.items():
            alert = {
                "exp_labels": {
                    "instance": "dev-gpu-0",
                    "gpu": "3",
                    "errors": said.partition(" ")[2],
                    "severity": "critical",
                    "actor": "cloud support",
                },
                "exp_annotations": {
                    "summary": f"GPU number 3 of dev-gpu-0{having} has {said} on its NVLinks",
                    "todo": "./hpc nodes dev reboot dev-gpu-0",
                },
            }
            series = {"series": f"DCGM_FI_DEV_NVLINK_{counter}{{{in_job}}}", "values": values}
            row = {"eval_time": "30m", "alertname": name, "exp_alerts": [alert]}
            tests.append({"interval": "1m", "input_series": [util, series], "alert_rule_test": [row]})
        ecc = {"series": f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{in_job}}}", "values": "0x20 3x20"}
        labels = {"instance": "dev-gpu-0", "gpu": "3", "severity": "critical", "actor": "administrator"}
        summary = f"GPU number 3 of dev-gpu-0{having} has 3 new uncorrectable ECC errors"
        alert = {
            "exp_labels": labels,
            "exp_annotations": {"summary": summary, "todo": "./hpc nodes dev reboot dev-gpu-0"},
        }
        row = {"eval_time": "30m", "alertname": "GpuEccErrors", "exp_alerts": [alert]}
        tests.append({"interval": "1m", "input_series": [util, ecc], "alert_rule_test": [row]})
    check = 'node="dev-gpu-0",kind="disk"'
    failed = {"series": f"hpc_health_check_failed{{{check}}}", "values": "1x40"}
    for said, told in (("/ is full: 97%", "hpc_health_check_text"), ("", "other")):
        alert = {
            "exp_labels": {"node": "dev-gpu-0", "kind": "disk", "severity": "warning", "actor": "administrator"},
            "exp_annotations": {
                "summary": "The health check disk of dev-gpu-0 fails" + (f": {said}" if said else ""),
                "todo": "./hpc ssh dev dev-gpu-0 -- df -h",
            },
        }
        text = {"series": f'{told}{{{check},text="{said}"}}', "values": "1x40"}
        row = {"eval_time": "30m", "alertname": "HealthDisk", "exp_alerts": [alert]}
        tests.append({"interval": "1m", "input_series": [failed, text], "alert_rule_test": [row]})
    sound = [
        {"series": f"DCGM_FI_DEV_NVLINK_{counter}{{{place}}}", "values": values} for counter, values in REPAIRED.items()
    ]
    rows = [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for minute in range(40)]
    tests.append({"interval": "1m", "input_series": sound, "alert_rule_test": rows})
    run(promtool, tmp_path, rules(30, stack="dev"), tests)


def test_counters_of_nvlinks_are_collected_and_are_those_of_the_health_check():
    """Each counter that can fail the health check has one of DCGM, and the figure that fails it is the same."""
    known = {name.removeprefix("DCGM_FI_DEV_NVLINK_") for name, _, _ in files.GPU_FIELDS}
    assert set(alerts.NVLINK_LOST + alerts.NVLINK_REPAIRED) <= known
    count = {meaning: sum(value == meaning for value in nvlink.COUNTERS.values()) for meaning in ("lost", "repaired")}
    assert count == {"lost": len(alerts.NVLINK_LOST), "repaired": len(alerts.NVLINK_REPAIRED)}
    assert alerts.REPAIRED_A_SECOND == nvlink.REPAIRED_A_SECOND


def test_names_of_alerts_are_unique():
    names = [alert.name for alert in EVERY]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("alert", EVERY, ids=lambda alert: alert.name)
def test_alerts_use_existing_metrics_and_have_a_command(alert: Alert):
    """Every metric of ours is written by the exporter, and has its values in the row's test."""
    sources = "".join(path.read_text() for path in (ROOT / "scripts/node/monitoring").glob("*.py"))
    for metric in re.findall(r"\b((?:hpc|slurm)_[a-z_]+)", alert.expression):
        # Some are put together from a beginning and a word of a table.
        words = re.sub("^(slurm_nodes|slurm_jobs|slurm|hpc_reconcile)_", "", metric)
        assert metric in sources or f'"{words}"' in sources
    assert values(alert)
    assert not alert.what.endswith(".")
    assert "|" not in _plain(alert.what + alert.todo) or alert.name == FINDING_ALERT
    assert alert.todo.startswith(("./hpc ", "set ")) or alert.name == FINDING_ALERT
    assert set(alert.findings.split()) <= set(KINDS)


PAGE = ROOT / "docs" / "reference" / "alerts.md"


COLUMNS = ("alert", "severity", "who acts", "holds for", "what", "what helps")


def table() -> list[tuple[str, ...]]:
    """The alerts as rows of docs/reference/alerts.md."""
    return [
        (
            f"`{alert.name}`",
            alert.severity,
            alert.actor.value,
            f"{alert.minutes} min" if alert.minutes else "at once",
            _plain(alert.what),
            f"`{_plain(alert.todo)}`" if "./hpc" in alert.todo else _plain(alert.todo),
        )
        for alert in ALERTS
        if alert.name != FINDING_ALERT
    ]


def _plain(text: str) -> str:
    """A text with names of labels in place of their values, without what is queried."""
    text = re.sub(r"\{\{ with .*?\{\{ end \}\}", "", text) if "{{ else }}" not in text else text
    text = re.sub(r"\{\{ [^}]*\$value[^}]* \}\}", "N", text).replace("PROMETHEUS", "controller")
    return re.sub(r"\{\{ \$labels\.([a-z_]+) \}\}", lambda found: found[1].upper(), text)


def test_the_page_has_the_table_of_alerts(table_in_page):
    table_in_page("reference/alerts.md", "alerts", [COLUMNS, *table()])


def test_the_page_has_the_table_of_findings_that_page(table_in_page):
    rows = [
        (f"`{name}`", kind.severity, f"{kind.minutes} min" if kind.minutes else "at once")
        for name, kind in KINDS.items()
        if kind.minutes is not None
    ]
    table_in_page("reference/alerts.md", "findings", [("finding", "severity", "lasts for"), *rows])
