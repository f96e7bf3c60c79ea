"""`./hpc job`, `topology`, `usage` and `reliability`: what they print of the controller's answers."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.config.accounting import Accounting
from cluster.load import parse
from cluster.observe import reliability
from cluster.observe.money import NodePrice
from components.deploy import config_text
from scripts.node.slurm import job_report
from scripts.node.slurm.hours import Hours
from tests.cli.conftest import OUTPUTS, Hpc, Tool, patch_outputs
from tests.cluster.stacks import load

SINCE, UNTIL = 1_790_000_000, 1_792_419_200
ROW = {
    "JobIDRaw": "7", "JobID": "7", "JobName": "a\x1b[31mb", "User": "alice", "State": "NODE_FAIL", "ExitCode": "0:0",
    "Submit": str(SINCE + 50), "Eligible": str(SINCE + 50), "Start": str(SINCE + 100), "End": str(SINCE + 86500),
    "ElapsedRaw": "86400", "NodeList": "dev-gpu-[0-1]", "AllocTRES": "cpu=4,gres/gpu=4,node=2", "CPUTimeRAW": "0",
}  # fmt: skip
EVENTS = f"""\
|{SINCE - 5}|Unknown||cpu=4,gres/gpu=4,node=2|dev-gpu-[0-1]|Cluster Registered TRES
dev-gpu-0|{SINCE + 86501}|{SINCE + 90101}|DOWN*|cpu=2,gres/gpu=2||Not responding
"""
USE = '{"job": "7", "seconds": 345600.0, "until": 1.0, "gpus": 4, "busy": 259200.0, "memory_mib": 9.0}\n'
USAGE = """\
2026-10-22T00:00:00 2026-11-21T00:00:00
1|alice|research|cpu|3600|billing=2,cpu=2,mem=2048M,node=1|1|COMPLETED|2026-11-01T00:00:00|2026-11-01T01:00:00|01:00:00|
2|bob|teaching|gpu|1800|cpu=1,gres/gpu:standin=2,gres/gpu=2|2|COMPLETED|2026-11-01T00:00:00|2026-11-01T00:30:00|00:00:00|
2.0|||gpu|1800|gres/gpu=2|2.0|COMPLETED|2026-11-01T00:00:00|2026-11-01T00:30:00|00:00:00|gres/gpuutil=150
"""
FIRST, *RECORDS = USAGE.splitlines()
USAGE = FIRST + "\n" + "".join(f"{line.replace('|', 'MARK')}MARK\n" for line in RECORDS) + "MARK-\n"


def rows(fields: tuple[str, ...]) -> str:
    return "MARK".join(ROW.get(field, "") for field in fields) + "MARK\n"


@pytest.fixture(autouse=True)
def controller(up: None, tool: Tool, tmp_path: Path) -> Path:
    """The file with the controller's answer, in which MARK stands for the mark of the question."""
    text = tmp_path / "answer"
    find = "mark=$(printf '%s' \"$*\" | grep -oE '[0-9a-f]{24}' | head -n 1)"
    tool("ssh", f'case "$*" in *hosts=*) exit 0 ;; esac; {find}; sed "s/MARK/$mark/g" {text}')
    text.write_text(USAGE)
    return text


def test_job_prints_the_report_and_escapes_the_jobs_name(hpc: Hpc, controller: Path):
    controller.write_text(rows(job_report.FIELDS) + "MARK-\n" * 3)
    lines = hpc("job", "dev", "7").out.splitlines()
    assert lines[0] == "job 7 'a\\x1b[31mb' of alice"
    assert lines[1].split(maxsplit=1) == ["state", "NODE_FAIL, exit code 0:0: slurmctld lost a node of it"]
    document = json.loads(hpc("job", "dev", "7", "--json").out)
    assert document["jobs"][0]["allocated"] == {"nodes": 2, "cpus": 4, "gpus": 4}


def test_job_refuses_an_unknown_or_invalid_number(hpc: Hpc, controller: Path):
    controller.write_text("MARK-\n" * 3)
    assert hpc("job", "dev", "8").error.startswith("error: neither slurmctld nor the database has a job 8")
    assert "Allowed: 7 (a job), 7_3" in hpc("job", "dev", "$(id)").error


def test_reliability_prints_what_a_lost_node_cost(hpc: Hpc, controller: Path):
    """A job of two nodes runs for a day, then one node is down for an hour. Half an hour of 4 GPUs is lost."""
    controller.write_text(
        f"{SINCE} {UNTIL}\n{rows(reliability.FIELDS)}MARK-\nMARK-\n{USE}MARK-\n{EVENTS}MARK-\nMARK-\n"
    )
    found = json.loads(hpc("reliability", "dev", "--json").out)
    assert (found["failures"], found["kinds"][0]["kind"], found["mttf_node_days"]) == (1, "node-down", 2.0)
    assert found["mttr_hours"] == 1.0
    assert (found["hours"]["lost_to_faults"], found["hours"]["nodes_out_by_faults"]) == (2.0, 2.0)
    assert (found["hours"]["idle_in_jobs"], found["measured_share"]) == (24.0, 1.0)
    shown = hpc("reliability", "dev", "--since", "28d")
    assert "Idle GPUs in jobs were measured in 100% of the allocated GPU hours." in shown.err
    table = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "MTTF of a job of 2 nodes, hours 24" in table
    assert "node-down 1 2 2" in table
    assert hpc("reliability", "dev", "--checkpoint", "often").error.startswith("error: --checkpoint 'often'")
    assert hpc("reliability", "dev", "--checkpoint", "²h").error.startswith("error: --checkpoint '²h'")


def test_topology_prints_switches_and_the_distance_of_a_jobs_nodes(hpc: Hpc, controller: Path):
    tree = "SwitchName=ns-a Level=0 Nodes=dev-a-[0-1]\nSwitchName=ns-b Level=0 Nodes=dev-b-0\n"
    tree += "SwitchName=root Level=1 Nodes=dev-a-[0-1],dev-b-0 Switches=ns-[a-b]\n"
    controller.write_text(f"{tree}MARK\nMARK\nNodeName=dev-a-0 State=IDLE\nMARK\n7|dev-a-[0-1]|\nMARK\nSwitchName=x\n")
    ended = hpc("topology", "dev", "--job", "7")
    assert "refused topology.conf" in ended.err
    lines = ended.out.splitlines()
    assert lines[2].split() == ["ns-a", "2", "2", "1", "idle,", "1", "unknown", "dev-a-[0-1]"]
    assert lines[-1] == "Job 7: 2 nodes, 1 leaf switch, below ns-a: all below one leaf switch."
    document = json.loads(hpc("topology", "dev", "--json").out)
    assert document["nodes"]["dev-b-0"] == {"switch": "ns-b", "state": "unknown"}
    assert "Allowed: 7 (a job)" in hpc("topology", "dev", "--job", "$(id)").error
    controller.write_text("MARK\n" * 3)
    assert "slurmctld has no topology" in hpc("topology", "dev").error


def test_usage_prints_a_table_with_a_total(hpc: Hpc):
    lines = [line.split() for line in hpc("usage", "dev").out.splitlines()]
    assert lines[1:] == [
        ["bob", "teaching", "gpu", "0.50", "0%", "1.00", "75%", "1"],
        ["alice", "research", "cpu", "2.00", "50%", "0.00", "-", "1"],
        ["total", "2.50", "40%", "1.00", "75%", "2"],
    ]


def test_usage_as_json_has_rows_and_a_total(hpc: Hpc):
    document = json.loads(hpc("usage", "dev", "--by", "account", "--user", "alice", "--json").out)
    assert (document["since"], document["until"]) == ("2026-10-22T00:00:00", "2026-11-21T00:00:00")
    figures = {
        "cpu_hours": 2.0, "gpu_hours": 0.0, "cpu_seconds": 7200, "gpu_seconds": 0, "jobs": 1, "cpu_efficiency": 0.5,
        "gpu_utilization": None,
    }  # fmt: skip
    assert document["rows"] == [{"account": "research", **figures}]
    assert document["total"] == figures


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs of stack `dev` have its configuration."""
    patch_outputs(monkeypatch, {**OUTPUTS, "config": config_text(parse(load("dev")))})


@pytest.mark.usefixtures("configured")
def test_usage_as_money_is_all_machine_hours_at_their_rate(hpc: Hpc, controller: Path, monkeypatch: pytest.MonkeyPatch):
    """A job of two nodes runs for a day of 28, then one node is down for an hour."""
    controller.write_text(
        f"{SINCE} {UNTIL}\n{rows(reliability.FIELDS)}MARK-\nMARK-\n{USE}MARK-\n{EVENTS}MARK-\nMARK-\n"
    )
    nodes = {f"dev-gpu-{number}": NodePrice(cpus=2, gpus=2, hour=10.0) for number in range(2)}
    monkeypatch.setattr("cluster.cost.nodes.node_prices", lambda _: ("EUR", nodes))
    document = json.loads(hpc("usage", "dev", "--money", "--by", "user", "--json").out)
    assert (document["currency"], document["total"]) == ("EUR", {"node_hours": 1344.0, "amount": 13440.0})
    sums = {(row["month"], row["kind"], row["user"]): row["amount"] for row in document["rows"]}
    assert sums["2026-09", "jobs", "alice"] == 480.0
    assert sums["2026-09", "faults", ""] == 10.0
    shown = hpc("usage", "dev", "--money", "--user", "alice").out.splitlines()
    assert [line.split() for line in shown] == [
        ["MONTH", "USER", "ACCOUNT", "PARTITION", "NODE", "HOURS", "EUR"],
        ["2026-09", "alice", "48.00", "480.00"],
        ["total", "48.00", "480.00"],
    ]
    assert "no user 'alic' used anything" in hpc("usage", "dev", "--money", "--user", "alic").error


@pytest.mark.usefixtures("configured")
def test_usage_as_money_needs_prices(hpc: Hpc):
    assert "no price of a node of dev is known" in hpc("usage", "dev", "--money").error


def test_usage_shows_the_share_of_hours_that_is_used(hpc: Hpc, monkeypatch: pytest.MonkeyPatch):
    rows = [Hours("research", "", "gres/gpu", 400.0, 388.0, 8.0), Hours("research", "bob", "cpu", 20_000.0, 0.0, 0.0)]
    monkeypatch.setattr("cli.commands.usage.read_hours", lambda _: rows)
    assert "SHARE" not in hpc("usage", "dev").out
    limited = SimpleNamespace(accounting=Accounting(period="monthly"))
    monkeypatch.setattr("cli.stack.stack_config.applied", lambda _: limited)
    lines = [line.split() for line in hpc("usage", "dev").out.splitlines()]
    assert lines[-2:] == [
        ["research", "all", "gres/gpu", "388", "8", "400", "97%"],
        ["research", "bob", "cpu", "0", "0", "20,000", "0%"],
    ]
    document = json.loads(hpc("usage", "dev", "--user", "alice", "--json").out)
    assert document["hours"] == [rows[0]._asdict()]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--user", "alise", "Did you mean alice?"),
        ("--account", "teachin", "Did you mean teaching?"),
        ("--until", "tomorow", "error: --until: 'tomorow' is no point in time. Allowed: a date (2026-11-21"),
    ],
)
def test_usage_refuses_a_value_with_a_typo(hpc: Hpc, option: str, value: str, message: str):
    assert message in hpc("usage", "dev", option, value).error
