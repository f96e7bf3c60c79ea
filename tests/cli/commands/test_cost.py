"""`./hpc cost`: the price of a stack alone, beside another file's or that of the cluster that runs."""

import json
from pathlib import Path

from cluster.load import parse
from components.deploy import config_text
from engine import yamlfile
from tests.cli.conftest import CLOUD, Hpc, write_state

LARGER = CLOUD.replace("count: 1", "count: 3")


def write(root: Path, name: str, text: str) -> Path:
    file = root / f"Pulumi.{name}.yaml"
    file.write_text(text)
    return file


def test_each_part_has_its_rate_date_and_source(hpc: Hpc, root: Path):
    write(root, "small", CLOUD)
    ended = hpc("cost", "small")
    assert ended.code == 0, ended.err
    (line,) = [line for line in ended.out.splitlines() if line.startswith("nodeset cpu") and "n2-standard-2" in line]
    assert line.split()[-2:] == ["2026-08-20", "calculator"]
    assert "always on: " in ended.out
    assert "calculator: Cyclenerd/" in ended.out


def test_a_file_to_compare_with(hpc: Hpc, root: Path):
    write(root, "small", LARGER)
    other = write(root, "other", CLOUD)
    out = hpc("cost", "small", "--against", str(other)).out
    assert "this edit: +0.2" in out
    assert "nodeset cpu, n2-standard-2: " in out
    document = json.loads(hpc("cost", "small", "--against", str(other), "--json").out)
    assert document["always"]["hour"] > document["before"]["always"]["hour"]
    assert {row["part"] for row in document["rows"]} >= {"controller", "login", "nodeset cpu", "state disk"}


def test_the_cluster_that_runs_to_compare_with(hpc: Hpc, root: Path):
    write(root, "small", LARGER)
    refused = hpc("cost", "small", "--against", "deployed")
    assert refused.code == 1
    assert "has not been brought up" in refused.err
    state = write_state("small", "pulumi:pulumi:Stack")
    document = json.loads(state.read_text())
    running = parse(yamlfile.parse(CLOUD)["config"])
    document["checkpoint"]["latest"]["resources"][0] |= {"custom": False, "outputs": {"config": config_text(running)}}
    state.write_text(json.dumps(document))
    assert "this edit: +0.2" in hpc("cost", "small", "--against", "deployed").out


def test_what_can_not_be_compared_is_refused_in_words(hpc: Hpc, root: Path):
    write(root, "small", CLOUD)
    refused = hpc("cost", "small", "--against", "nothing.yaml")
    assert (refused.code, refused.err) == (
        1,
        "error: --against nothing.yaml: no such file, and not the word deployed.\n",
    )
    wrong = write(root, "wrong", CLOUD.replace("name: small", "name: UPPER"))
    assert f"{wrong}: 1 error" in hpc("cost", "small", "--against", str(wrong)).err


def test_a_cluster_on_this_machine_costs_nothing(hpc: Hpc):
    assert "costs nothing" in hpc("cost", "dev").err
    assert json.loads(hpc("cost", "dev", "--json").out)["rows"] == []
