"""Job scripts, and what they must know of partitions."""

from pathlib import Path

import pytest

from cluster.catalog import Gpu, fabrics
from cluster.jobs import script
from cluster.jobs.partition_facts import partition_facts
from cluster.jobs.script import JobScript, option_words, read_body
from tests.cluster.shell import shellcheck
from tests.cluster.stacks import EVERY, ROOT, config


class TestPartitionFacts:
    def test_facts_of_a3_mega(self):
        gpus, debug = partition_facts(config("a3mega"))
        assert (gpus.name, gpus.default, gpus.exclusive, gpus.fabric) == ("a3mega", True, True, fabrics.TCPXO)
        assert gpus.nodes == ("a3mega-a3mega-0", "a3mega-a3mega-1")
        assert gpus.gpu == Gpu(type="h100", count=8)
        assert (gpus.cpus, gpus.machine_type.name) == (208, "a3-megagpu-8g")
        assert (debug.name, debug.gpu, debug.fabric) == ("debug", None, fabrics.NONE)

    def test_attached_gpus_count(self):
        assert [row.gpu for row in partition_facts(config("classic"))] == [None, Gpu(type="t4", count=2)]

    @pytest.mark.parametrize("stack", EVERY)
    def test_the_default_partition_is_first_and_no_partition_is_left_out(self, stack: str):
        cluster = config(stack)
        rows = partition_facts(cluster)
        assert [row.default for row in rows] == sorted((row.default for row in rows), reverse=True)
        assert {row.name for row in rows} == set(cluster.partitions)
        assert all(row.nodes and row.cpus > 0 and row.memory_mib > 0 for row in rows)


class TestScripts:
    def test_options_are_before_the_first_command(self):
        job_script = JobScript(
            name="a.sh", title="Says\nhello.", options={"nodes": 2, "exclusive": True, "hold": False, "comment": "a b"},
            body="\nhostname\n",
        )  # fmt: skip
        assert job_script.text() == (
            "#!/bin/bash\n# Says hello.\n#SBATCH --nodes=2\n#SBATCH --exclusive\n"
            '#SBATCH "--comment=a b"\n\nset -euo pipefail\n\nhostname\n'
        )

    @pytest.mark.parametrize("options", [{"a b": 1}, {"N": 1}, {"comment": "a\n#SBATCH --uid=0"}, {"comment": 'a "b"'}])
    def test_invalid_options_are_refused(self, options: dict[str, str]):
        with pytest.raises(ValueError, match=r"option|value"):
            JobScript(name="a.sh", title="A", options=options, body="").text()

    def test_options_as_words(self):
        assert option_words({"nodes": 2, "exclusive": True, "hold": False}) == ["--nodes=2", "--exclusive"]

    def test_a_body_without_a_shell_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(script, "BODIES", tmp_path)
        (tmp_path / "a.sh").write_text("# shellcheck shell=bash\necho\n")
        (tmp_path / "b.sh").write_text("echo\n")
        assert read_body("a.sh") == "echo\n"
        with pytest.raises(ValueError, match=r"b\.sh: the first line"):
            read_body("b.sh")


def test_bodies_are_clean_for_shellcheck():
    assert shellcheck(*sorted((ROOT / "scripts" / "jobs").rglob("*.sh"))) == ""


def test_the_stand_in_of_the_prolog_has_the_fabrics_nics():
    text = (ROOT / "scripts" / "local" / "rxdm.sh").read_text()
    assert f"NCCL_FASTRAK_IFNAME={','.join(fabrics.TCPXO.nic_names)}\n" in text
    assert f"NCCL_FASTRAK_CTRL_DEV={fabrics.TCPXO.host_nics[0]}\n" in text
