"""The services of monitoring: node_exporter on every machine, dcgm-exporter on those with GPUs, Prometheus and
Alertmanager on the controller or on a machine of their own, and the exporter of this set-up on both.

All but the last are packages with their own units: those of the distribution read their arguments from /etc/default.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from interface import (
    ALERTMANAGER_PORT,
    FIREWALL,
    GPU_EXPORTER_PORT,
    NODE_EXPORTER_PORT,
    GpuExporter,
    MonitoringInput,
    OpsAgent,
    WebInput,
)
from system.host import (
    STARTED,
    SetupError,
    forget,
    has_user,
    log,
    read_json,
    remove,
    run,
    service,
    stop_services,
    unread_units,
    write,
    write_unit,
)

NODE_EXPORTER, PROMETHEUS, ALERTMANAGER = "prometheus-node-exporter", "prometheus", "prometheus-alertmanager"
GPU_EXPORTER = "nvidia-dcgm-exporter"
EXPORTER = "hpc-metrics"
AGENT = Path("/etc/hpc/ops-agent.json")  # the platform's agent, and its configuration in the image
DEFAULTS = Path("/etc/default")
ETC = Path("/etc/prometheus")
ALERTING = "alertmanager.yml"
WEB, CERTIFICATE, PASSWORD = WEB_FILES = ("web.yml", "web.pem", "web.password")
"""Files below ETC if Prometheus listens for other machines too: exporter-toolkit's configuration, with the user and the
hash of the password; the certificate with its key; the password, for queries on this machine. Prometheus reads a
changed file by itself."""
SECRETS = Path("/etc/hpc/alerts")
SETTINGS = Path("/etc/hpc/metrics.json")
UNIT = Path(f"/etc/systemd/system/{EXPORTER}.service")
TEXTFILES = Path("/var/lib/prometheus/node-exporter")
DATA = Path("/var/lib/prometheus")
USER = "prometheus"
UNITS = Path("/etc/systemd/system")
GPU_UNITS = (UNITS, Path("/usr/lib/systemd/system"), Path("/lib/systemd/system"))
"""Folders where NVIDIA's package, or a rehearsal, has the unit of dcgm-exporter."""
GPU_FIELDS = Path("/etc/hpc/gpu-fields.csv")
GPU_DEVICES = Path("/dev")
GPU_DROP_IN = """\
# Written by the cluster's set-up.
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=
ExecStart=/usr/bin/dcgm-exporter {arguments} --collectors {fields} --hpc-job-mapping-dir /run/hpc-gpu-jobs
# The package's own unit writes into a file that nobody rotates, and does not start it again where it came before DCGM.
StandardOutput=journal
StandardError=journal
Restart=always
RestartSec=10
# It may not end by itself (NVIDIA/dcgm-exporter, issue 606).
TimeoutStopSec=10
"""
SERVICE = f"""\
# Written by the cluster's set-up.
[Unit]
Description=Collect metrics of the Slurm cluster for node_exporter
After=slurmctld.service {NODE_EXPORTER}.service

[Service]
Environment=PYTHONPATH={Path(__file__).parents[1]}
ExecStart=/usr/bin/python3 -S -m monitoring.exporter
Restart=always
RestartSec=5
Nice=10

[Install]
WantedBy=multi-user.target
"""

RULES = (
    "type filter hook output priority 0;",
    f"oif lo tcp dport {{ {ALERTMANAGER_PORT}, {NODE_EXPORTER_PORT}, {GPU_EXPORTER_PORT} }}",
    f"meta skuid != {{ root, {USER} }} reject with tcp reset;",
)
FIREWALL_UNIT = f"""\
# Written by the cluster's set-up.
[Unit]
Description=Keep users of this machine from Alertmanager and the exporters, which ask for no password
# That one removes all rules at its start.
After=nftables.service
Before={ALERTMANAGER}.service {NODE_EXPORTER}.service {GPU_EXPORTER}.service

[Service]
Type=oneshot
RemainAfterExit=yes
# In one transaction: the table as it was, if there is one, goes, and this one comes.
ExecStart=/usr/sbin/nft "add table inet {FIREWALL}; delete table inet {FIREWALL}; \\
    table inet {FIREWALL} {{ chain output {{ {" ".join(RULES)} }}; }}"
ExecStop=/usr/sbin/nft delete table inet {FIREWALL}

[Install]
WantedBy=multi-user.target
"""
"""Alertmanager takes silences and alerts from whoever connects, and exporters have Go's profiler at /debug/pprof.

`oif lo` is the way to each address of this machine. A connection to another machine is left alone.
"""


def export(arguments: str, *, required: bool = True) -> None:
    """Run node_exporter with these arguments, behind the firewall; stop both without any.

    It is not `required` on machines that get a new image, which contains it, after the controller.
    """
    if arguments and not required and not (DEFAULTS / NODE_EXPORTER).exists():
        log(f"no metrics before this machine is recreated with another image: it has no {NODE_EXPORTER}")
    elif arguments:
        _package(NODE_EXPORTER, arguments)
        write_unit(UNITS / f"{FIREWALL}.service", FIREWALL_UNIT)
        service(FIREWALL, settings=FIREWALL_UNIT, block=False)
    else:
        _stop(NODE_EXPORTER, FIREWALL)
        if remove(UNITS / f"{FIREWALL}.service"):
            unread_units()


def export_gpus(wanted: GpuExporter | None) -> None:
    """Run dcgm-exporter on a machine that has GPUs and the program; stop it without `wanted`."""
    drop_in = UNITS / f"{GPU_EXPORTER}.service.d" / "hpc.conf"
    if wanted is None:
        _stop(GPU_EXPORTER)
        if remove(drop_in):
            unread_units()
        remove(GPU_FIELDS)
        return
    if not any(GPU_DEVICES.glob("nvidia[0-9]*")):
        return
    if not any((folder / f"{GPU_EXPORTER}.service").exists() for folder in GPU_UNITS):
        log("no metrics of GPUs: this machine's image has no dcgm-exporter (package datacenter-gpu-manager-exporter)")
        return
    fields = "\n".join(wanted["fields"]) + "\n"
    write(GPU_FIELDS, fields)
    text = GPU_DROP_IN.format(arguments=wanted["arguments"], fields=GPU_FIELDS)
    write_unit(drop_in, text)
    service(GPU_EXPORTER, settings=text + fields, block=False)


def converge(wanted: MonitoringInput | None) -> None:
    """Run those of Prometheus, Alertmanager and the exporter that belong here; remove the others with their data."""
    if wanted is None:
        _remove()
        return
    if "prometheus" in wanted:
        _serve(wanted)
    elif _remove_servers():
        log(f"removed Prometheus and Alertmanager with their data: they are on {wanted.get('prometheus_on')} now")
    settings = {
        name: wanted.get(name, "") for name in ("stack", "interval_seconds", "leave_out", "idle", "prometheus_on")
    }
    text = json.dumps(settings) + "\n"
    write(SETTINGS, text)
    write_unit(UNIT, SERVICE)
    service(EXPORTER, settings=text + SERVICE + _version(), block=False)


def _serve(wanted: MonitoringInput) -> None:
    """Run Prometheus and Alertmanager with their files."""
    files = {name: "\n".join(lines) + "\n" for name, lines in wanted["files"].items()}
    if not has_user(USER):
        raise _missing(PROMETHEUS)
    for mark, path in wanted["secrets"].items():
        # The mark is in single quotes, in which YAML requires one character to be escaped.
        secret = Path(path).read_text().strip().replace("'", "''")
        files[ALERTING] = files[ALERTING].replace(mark, secret)
    # The texts that require a restart. Prometheus reads a changed list of targets by itself.
    restart_texts = json.dumps(
        {name: text for name, text in files.items() if not name.startswith("targets/")}, sort_keys=True
    )
    web = wanted.get("web")
    files |= _web(web) if web else {}
    kept = {*wanted["secrets"].values(), *((web["password"], web["certificate"]) if web else ())}
    for obsolete in {str(path) for path in SECRETS.glob("*")} - kept:
        remove(obsolete)
    for name, text in files.items():
        private = name in (ALERTING, *WEB_FILES)
        write(ETC / name, text, mode=0o600 if private else 0o644, owner=USER if private else "root")
    _package(ALERTMANAGER, wanted["alertmanager"], restart_texts)
    _package(PROMETHEUS, wanted["prometheus"], restart_texts)
    for name in WEB_FILES if not web else ():
        remove(ETC / name)
    _ops_agent(wanted.get("ops_agent"))


def _ops_agent(wanted: OpsAgent | None) -> None:
    """Run the platform's agent with this configuration added to its built-in one; without any, with the image's."""
    before = read_json(AGENT, {})
    if wanted is not None:
        file, text = Path(wanted["file"]), "\n".join(wanted["lines"]) + "\n"
        if not file.parent.exists():
            raise SetupError(
                f"`monitoring.ops_agent` needs the package {wanted['unit']}, which this machine does not have: make "
                "another image (image.snapshot), or name one that has it, or leave ops_agent out"
            )
        if not before:
            image = file.read_text() if file.exists() else ""
            write(
                AGENT, json.dumps({"unit": wanted["unit"], "file": wanted["file"], "image": image}) + "\n", quiet=True
            )
        write(file, text)
        service(wanted["unit"], settings=text, block=False)
    elif before:
        write(before["file"], before["image"])
        run("systemctl", "restart", "--no-block", before["unit"])
        forget(before["unit"])
        remove(AGENT)


def has_web_listener() -> bool:
    """Return whether Prometheus listens for other machines, with TLS and a password."""
    return (ETC / WEB).exists()


def _web(web: WebInput) -> dict[str, str]:
    """Return the texts of WEB_FILES. An unchanged password keeps its hash, since a new one would have another salt."""
    password, pem = Path(web["password"]).read_text().strip(), Path(web["certificate"]).read_text()
    before = json.loads((ETC / WEB).read_text())["basic_auth_users"].get(web["user"], "") if has_web_listener() else ""
    hashed = before if before and _crypt(password, before) == before else _crypt(password, f"$2b$10${_salt()}")
    import ssl  # slow to import, and other machines do not need it

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(web["certificate"], password="")
    except (ssl.SSLError, ValueError) as error:
        raise SetupError(f"the certificate {web['certificate']} and its key can't be used: {error}") from None
    listener = {
        "tls_server_config": dict.fromkeys(("cert_file", "key_file"), str(ETC / CERTIFICATE)),
        "basic_auth_users": {web["user"]: hashed},
    }
    # JSON is valid YAML.
    return {PASSWORD: f"{password}\n", CERTIFICATE: pem, WEB: json.dumps(listener, indent=1) + "\n"}


def _salt() -> str:
    """Return 16 random bytes in bcrypt's alphabet: 22 characters, of which the last one has two bits."""
    import secrets

    letters = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return "".join(secrets.choice(letters) for _ in range(21)) + secrets.choice(".Oeu")


def _crypt(text: str, setting: str) -> str:
    """Return the result of crypt(3). Python 3.13 has no module for it any more."""
    import ctypes

    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    return (crypt(text.encode(), setting.encode()) or b"").decode()


def units() -> list[str]:
    """Return the units of monitoring that the set-up has started on this machine."""
    names = (PROMETHEUS, ALERTMANAGER, EXPORTER, NODE_EXPORTER, FIREWALL, GPU_EXPORTER)
    return [name for name in names if (STARTED / name).exists()]


def _package(name: str, arguments: str, files: str = "") -> None:
    """Run a packaged daemon with these arguments. It is restarted if they or `files`, the text of its files, change."""
    if not (DEFAULTS / name).exists():
        raise _missing(name)
    text = f'# Written by the cluster\'s set-up.\nARGS="{arguments}"\n'
    write(DEFAULTS / name, text)
    service(name, settings=text + files, block=False)


def _missing(name: str) -> SetupError:
    return SetupError(
        f"`monitoring` needs the package {name}, which this machine does not have: leave image.name out, so that the "
        "image is made with it, or name an image that has it"
    )


def _stop(*names: str) -> None:
    """Stop those of the units that this set-up has started, and no others."""
    if started := [name for name in names if (STARTED / name).exists()]:
        stop_services(*started)
        for name in started:
            forget(name)


def _remove_servers() -> bool:
    """Stop Prometheus and Alertmanager, and remove their data; return whether they were here."""
    _stop(PROMETHEUS, ALERTMANAGER)
    _ops_agent(None)
    mark = ETC / "targets/hpc.json"  # removed last, so that the next run completes an interrupted removal
    if not mark.exists():
        return False
    import shutil

    shutil.rmtree(DATA / "metrics2", ignore_errors=True)
    files = (ETC / name for name in (ALERTING, *WEB_FILES))
    for path in (*SECRETS.glob("*"), *files, ETC / "rules/hpc.yml", ETC / "targets/hpc-gpus.json", mark):
        remove(path)
    return True


def _remove() -> None:
    _stop(EXPORTER)
    _remove_servers()
    if not SETTINGS.exists():
        return
    unread_units()
    for path in (TEXTFILES / "hpc.prom", UNIT, SETTINGS):
        remove(path)
    log("removed metrics and alerts: the stack has no section `monitoring` any more")


def _version() -> str:
    """Return a hash of the exporter's own files, so that it is restarted with new ones."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
