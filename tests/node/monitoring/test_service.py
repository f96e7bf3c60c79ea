"""The units and files of metrics and alerts on a machine: written, with secrets in their places, and removed again."""

import getpass
import json
import re
import ssl
import subprocess
import time
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from interface import GpuExporter, MonitoringInput, WebInput
from monitoring import prometheus, service
from system.host import SetupError

WANTED: MonitoringInput = {
    "prometheus": "--config.file=/etc/prometheus/prometheus.yml",
    "alertmanager": "--config.file=/etc/prometheus/alertmanager.yml",
    "stack": "prod",
    "interval_seconds": 30,
    "leave_out": [],
    "idle": "",
    "secrets": {},
    "files": {
        "prometheus.yml": ["global: {}"],
        "alertmanager.yml": ["url: '@webhookUrl@'"],
        "rules/hpc.yml": ["groups: []"],
        "targets/hpc.json": ["[]"],
    },
}


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The units that were started or stopped, with the places of this machine's files below a folder."""
    done: list[str] = []
    for name in ("DEFAULTS", "ETC", "SECRETS", "TEXTFILES", "DATA", "STARTED", "UNITS", "GPU_DEVICES"):
        monkeypatch.setattr(service, name, tmp_path / name.lower())
        (tmp_path / name.lower()).mkdir()
    monkeypatch.setattr(service, "GPU_UNITS", (tmp_path / "units",))
    for name in ("SETTINGS", "UNIT", "GPU_FIELDS", "AGENT"):
        monkeypatch.setattr(service, name, tmp_path / name.lower())
    for name in (service.PROMETHEUS, service.ALERTMANAGER, service.NODE_EXPORTER):
        (tmp_path / "defaults" / name).write_text('ARGS=""\n')
    monkeypatch.setattr(service, "USER", getpass.getuser())

    def start(name: str, *, settings: str, block: bool = True) -> None:
        (tmp_path / "started" / name).write_text(settings)
        done.append(name)

    monkeypatch.setattr(service, "service", start)
    monkeypatch.setattr(service, "stop_services", lambda *names: done.extend(f"-{name}" for name in names))
    monkeypatch.setattr(service, "forget", lambda name: (tmp_path / "started" / name).unlink())
    return done


def test_a_secret_replaces_its_mark_in_a_private_file(tmp_path: Path, started: list[str]):
    secret = tmp_path / "secrets" / "webhookUrl"
    secret.write_text("https://example.org/it's\n")
    (tmp_path / "secrets" / "slackUrl").write_text("of a receiver that has gone\n")
    service.converge({**WANTED, "secrets": {"@webhookUrl@": str(secret)}})
    file = tmp_path / "etc" / "alertmanager.yml"
    assert yaml.safe_load(file.read_text()) == {"url": "https://example.org/it's"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in secret.parent.iterdir()] == ["webhookUrl"]
    assert started == [service.ALERTMANAGER, service.PROMETHEUS, service.EXPORTER]
    assert "--config.file=/etc/prometheus/prometheus.yml" in (tmp_path / "defaults" / "prometheus").read_text()


def create_certificate(key: Path, certificate: Path) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=dev -days 3"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)


@pytest.fixture
def with_web(tmp_path: Path, started: list[str]) -> MonitoringInput:
    """Settings with which Prometheus listens for other machines, with a certificate and a password."""
    assert not started
    secrets = tmp_path / "secrets"
    (secrets / "password").write_text("a password of 30 characters: ü\n")
    create_certificate(secrets / "key", secrets / "pem")
    (secrets / "pem").write_text((secrets / "key").read_text() + (secrets / "pem").read_text())
    web: WebInput = {"user": "grafana", "password": str(secrets / "password"), "certificate": str(secrets / "pem")}
    return {**WANTED, "web": web}


def test_the_hash_of_a_password_changes_with_the_password(tmp_path: Path, with_web: MonitoringInput):
    service.converge(with_web)
    listener, made = tmp_path / "etc" / "web.yml", (tmp_path / "etc" / "web.yml").read_text()
    hashed = yaml.safe_load(made)["basic_auth_users"]["grafana"]
    assert re.fullmatch(r"\$2b\$10\$[./A-Za-z0-9]{53}", hashed)
    service.converge(with_web)
    assert listener.read_text() == made
    (tmp_path / "secrets" / "password").write_text("another\n")
    service.converge(with_web)
    assert yaml.safe_load(listener.read_text())["basic_auth_users"]["grafana"] != hashed
    assert {(tmp_path / "etc" / name).stat().st_mode & 0o777 for name in service.WEB_FILES} == {0o600}
    service.converge(WANTED)
    assert not service.has_web_listener()
    assert [name for name in service.WEB_FILES if (tmp_path / "etc" / name).exists()] == []


def test_a_certificate_of_another_key_is_refused(tmp_path: Path, with_web: MonitoringInput):
    service.converge(with_web)
    before = (tmp_path / "etc" / service.CERTIFICATE).read_text()
    other = before.replace("PRIVATE KEY-----\nM", "PRIVATE KEY-----\nN")
    (tmp_path / "secrets" / "pem").write_text(other)
    with pytest.raises(SetupError, match="can't be used"):
        service.converge(with_web)
    assert (tmp_path / "etc" / service.CERTIFICATE).read_text() == before


class Served(BaseHTTPRequestHandler):
    """Prometheus' answers: one that fires and the watchdog, to whoever has the password."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"Basic {b64encode('grafana:ü'.encode()).decode()}"
        self.send_response(200 if known else 401)
        self.end_headers()
        if known:
            names = ("Up", "Watchdog")
            rows = [
                {"state": "firing", "activeAt": "now", "labels": {"alertname": name}, "annotations": {}}
                for name in names
            ]
            self.wfile.write(json.dumps({"data": {"alerts": rows}}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


def test_queries_use_password_and_pinned_certificate(
    tmp_path: Path, with_web: MonitoringInput, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "secrets" / "password").write_text("ü\n")
    service.converge(with_web)
    server = HTTPServer(("127.0.0.1", 0), Served)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "etc" / service.CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setattr(prometheus, "PORT", server.server_port)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert [alert["name"] for alert in prometheus.firing()] == ["Up"]
        assert 2 * 86_400 < prometheus.certificate_end() - time.time() < 3 * 86_400
        (tmp_path / "etc" / service.PASSWORD).write_text("other\n")
        with pytest.raises(OSError, match="401"):
            prometheus.firing()
        # A server with another key is refused.
        create_certificate(tmp_path / "key", tmp_path / "etc" / "web.pem")
        with pytest.raises(ssl.SSLError):
            prometheus.firing()
    finally:
        server.shutdown()
        server.server_close()


def test_the_ops_agents_configuration_is_set_and_restored(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "google" / "config.yaml"
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(service, "run", lambda *command: ran.append(command))
    wanted: MonitoringInput = {**WANTED, "ops_agent": {"unit": "agent", "file": str(file), "lines": ["metrics: {}"]}}
    with pytest.raises(SetupError, match=r"monitoring\.ops_agent"):
        service.converge(wanted)
    file.parent.mkdir()
    file.write_text("of the image\n")
    for _ in range(2):
        service.converge(wanted)
        assert file.read_text() == "metrics: {}\n"
    assert "agent" in started
    service.converge(WANTED)
    assert (file.read_text(), [path.name for path in file.parent.iterdir()]) == ("of the image\n", ["config.yaml"])
    service.converge(WANTED)
    assert ran == [("systemctl", "restart", "--no-block", "agent")]


def test_only_units_of_the_set_up_are_removed(tmp_path: Path, started: list[str]):
    service.converge(None)
    service.export("")
    assert started == []
    service.converge(WANTED)
    service.export("--web.listen-address=:9100")
    (tmp_path / "etc" / "rules" / "ours.yml").write_text("groups: []\n")
    (tmp_path / "data" / "metrics2").mkdir()
    expected = [service.PROMETHEUS, service.ALERTMANAGER, service.EXPORTER, service.NODE_EXPORTER, service.FIREWALL]
    assert service.units() == expected
    unit = tmp_path / "units" / f"{service.FIREWALL}.service"
    assert unit.read_text() == service.FIREWALL_UNIT
    started.clear()
    service.converge(None)
    service.export("")
    names = [service.EXPORTER, service.PROMETHEUS, service.ALERTMANAGER, service.NODE_EXPORTER, service.FIREWALL]
    assert started == [f"-{name}" for name in names]
    assert service.units() == []
    assert [path.name for path in (tmp_path / "etc" / "rules").iterdir()] == ["ours.yml"]
    assert not (tmp_path / "data" / "metrics2").exists()
    assert not service.SETTINGS.exists()
    assert not unit.exists()


def test_prometheus_leaves_the_controller_for_its_own_machine(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
):
    secret = tmp_path / "secrets" / "webhookUrl"
    secret.write_text("https://example.org\n")
    service.converge({**WANTED, "secrets": {"@webhookUrl@": str(secret)}})
    (tmp_path / "data" / "metrics2").mkdir()
    exporter: MonitoringInput = {
        "stack": "prod", "interval_seconds": 30, "leave_out": [], "idle": "", "prometheus_on": "dev-monitoring",
    }  # fmt: skip

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            service.converge(exporter)
    started.clear()
    service.converge(exporter)
    assert service.units() == [service.EXPORTER]
    assert started == [service.EXPORTER]
    left = {path.name for folder in ("etc", "secrets", "data") for path in (tmp_path / folder).rglob("*.*")}
    assert left == {"prometheus.yml"}
    assert not (tmp_path / "data" / "metrics2").exists()
    assert json.loads(service.SETTINGS.read_text())["prometheus_on"] == "dev-monitoring"
    service.converge(WANTED)
    assert service.units() == [service.PROMETHEUS, service.ALERTMANAGER, service.EXPORTER]
    assert json.loads(service.SETTINGS.read_text())["prometheus_on"] == ""


def test_a_missing_package_is_an_error(tmp_path: Path, started: list[str]):
    (tmp_path / "defaults" / service.NODE_EXPORTER).unlink()
    with pytest.raises(SetupError, match=r"image\.name"):
        service.export("--web.listen-address=:9100")
    assert started == []


def test_dcgm_exporter_needs_gpus_and_its_package(
    tmp_path: Path, started: list[str], capsys: pytest.CaptureFixture[str]
):
    wanted: GpuExporter = {"arguments": "--address :9400", "fields": ["DCGM_FI_DEV_GPU_UTIL, gauge, busy"]}
    service.export_gpus(wanted)
    assert (started, capsys.readouterr().out) == ([], "")
    (tmp_path / "gpu_devices" / "nvidia0").touch()
    service.export_gpus(wanted)
    assert (started, "datacenter-gpu-manager-exporter" in capsys.readouterr().out) == ([], True)
    (tmp_path / "units" / f"{service.GPU_EXPORTER}.service").touch()
    service.export_gpus(wanted)
    assert started == [service.GPU_EXPORTER]
    drop_in = tmp_path / "units" / f"{service.GPU_EXPORTER}.service.d" / "hpc.conf"
    assert f"ExecStart=/usr/bin/dcgm-exporter --address :9400 --collectors {service.GPU_FIELDS}" in drop_in.read_text()
    assert service.GPU_FIELDS.read_text() == "DCGM_FI_DEV_GPU_UTIL, gauge, busy\n"
    service.export_gpus(None)
    assert (started[1:], drop_in.exists(), service.GPU_FIELDS.exists()) == ([f"-{service.GPU_EXPORTER}"], False, False)
