"""`./hpc job`, `./hpc reliability` and `./hpc topology`: what they make of a controller's answers."""

import json
from pathlib import Path

import pytest

from cluster.observe import reliability
from scripts.node.slurm import job_report
from tests.cli.conftest import Hpc, Tool

SINCE, UNTIL = 1_790_000_000, 1_792_419_200
ROW = {
    "JobIDRaw": "7", "JobID": "7", "JobName": "a\x1b[31mb", "User": "alice", "State": "NODE_FAIL", "ExitCode": "0:0",
    "Submit": str(SINCE + 50), "Eligible": str(SINCE + 50), "Start": str(SINCE + 100), "End": str(SINCE + 86500),
    "ElapsedRaw": "86400", "NodeList": "dev-gpu-[0-1]", "AllocTRES": "cpu=4,gres/gpu=4,node=2", "CPUTimeRAW": "0",
}  # fmt: skip
EVENTS = f"""\
|{SINCE - 5}|Unknown|||cpu=4,gres/gpu=4,node=2|dev-gpu-[0-1]|Cluster Registered TRES
dev-gpu-0|{SINCE + 86501}|{SINCE + 90101}|DOWN*|slurm(64030)|cpu=2,gres/gpu=2||Not responding
""".replace("|||", "||").replace("|slurm(64030)", "")


def rows(fields: tuple[str, ...]) -> str:
    return "MARK".join(ROW.get(field, "") for field in fields) + "MARK\n"


@pytest.fixture(autouse=True)
def controller(up: None, tool: Tool, tmp_path: Path) -> Path:
    """A controller that answers with the text of a file, and with the mark that it was asked with."""
    text = tmp_path / "answer"
    find = "mark=$(printf '%s' \"$*\" | grep -oE '[0-9a-f]{24}' | head -n 1)"
    tool("ssh", f'case "$*" in *hosts=*) exit 0 ;; esac; {find}; sed "s/MARK/$mark/g" {text}')
    return text


def test_a_job_and_no_escape_sequence_of_its_name(hpc: Hpc, controller: Path):
    controller.write_text(rows(job_report.FIELDS) + "MARK-\n" * 3)
    lines = hpc("job", "dev", "7").out.splitlines()
    assert lines[0] == "job 7 'a\\x1b[31mb' of alice"
    assert lines[1].split() == ["state", "NODE_FAIL,", "exit", "code", "0:0"]
    document = json.loads(hpc("job", "dev", "7", "--json").out)
    assert document["jobs"][0]["allocated"] == {"nodes": 2, "cpus": 4, "gpus": 4}


def test_a_job_that_is_not_there_and_what_is_no_number(hpc: Hpc, controller: Path):
    controller.write_text("MARK-\n" * 3)
    assert hpc("job", "dev", "8").error.startswith("error: neither slurmctld nor the database has a job 8")
    assert "Allowed: 7 (a job), 7_3" in hpc("job", "dev", "$(id)").error


def test_what_a_lost_node_cost(hpc: Hpc, controller: Path):
    """A day of two nodes, and an hour until one of them is back; half an hour of 4 GPUs is lost."""
    text = f"{SINCE} {UNTIL}\n{rows(reliability.FIELDS)}MARK-\nMARK-\n{EVENTS}MARK-\nMARK-\n"
    controller.write_text(text)
    found = json.loads(hpc("reliability", "dev", "--json").out)
    assert (found["failures"], found["kinds"][0]["kind"], found["mttf_node_days"]) == (1, "node-down", 2.0)
    assert found["mttr_hours"] == 1.0
    assert (found["hours"]["lost_to_faults"], found["hours"]["nodes_out_by_faults"]) == (2.0, 2.0)
    table = [" ".join(line.split()) for line in hpc("reliability", "dev", "--since", "28d").out.splitlines()]
    assert "MTTF of a job of 2 nodes, hours 24" in table
    assert "node-down 1 2 2" in table
    assert hpc("reliability", "dev", "--checkpoint", "often").error.startswith("error: --checkpoint 'often'")


def test_the_switches_and_how_far_apart_a_jobs_nodes_are(hpc: Hpc, controller: Path):
    tree = "SwitchName=ns-a Level=0 Nodes=dev-a-[0-1]\nSwitchName=ns-b Level=0 Nodes=dev-b-0\n"
    tree += "SwitchName=root Level=1 Nodes=dev-a-[0-1],dev-b-0 Switches=ns-[a-b]\n"
    controller.write_text(f"{tree}MARK\nMARK\nNodeName=dev-a-0 State=IDLE\nMARK\n7|dev-a-[0-1]\nMARK\nSwitchName=x\n")
    assert "refused topology.conf" in hpc("topology", "dev", "--job", "7").err
    lines = hpc("topology", "dev", "--job", "7").out.splitlines()
    assert lines[2].split() == ["ns-a", "2", "2", "1", "idle,", "1", "unknown", "dev-a-[0-1]"]
    assert lines[-1] == "Job 7: 2 nodes, 1 leaf switch, below ns-a: all below one leaf switch."
    document = json.loads(hpc("topology", "dev", "--json").out)
    assert document["nodes"]["dev-b-0"] == {"switch": "ns-b", "state": "unknown"}
    assert "Allowed: 7 (a job)" in hpc("topology", "dev", "--job", "$(id)").error
    controller.write_text("MARK\n" * 3)
    assert "slurmctld has no topology" in hpc("topology", "dev").error
