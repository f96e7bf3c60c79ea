"""Examples of job scripts: for every stack file, scripts that fit its cluster, and a reason for each one left out."""

import ast
import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.config.validators import minutes
from cluster.jobs.examples import (
    EXAMPLES,
    KINDS,
    NCCL,
    PROGRAMS,
    examples,
    installed_files,
    parse_record,
    record,
)
from cluster.jobs.partition_facts import partition_facts
from cluster.jobs.script import BODIES, ENV
from cluster.platforms import registry
from tests.cluster import stacks
from tests.cluster.shell import shellcheck
from tests.cluster.stacks import cluster

FOLDER = BODIES / "examples"
ALL = {NCCL, *(f"{kind.name}.sh" for kind in KINDS)}
PACKAGES = {"image": {"base": "debian-13", "packages": ["python3-mpi4py", "python3-torch"]}}


@pytest.mark.parametrize("stack", stacks.EVERY)
class TestEveryStack:
    def test_each_example_fits_or_has_a_reason(self, stack: str):
        found = examples(stacks.config(stack))
        names = [script.name for script in found.scripts]
        assert {*names, *found.left_out} == ALL
        assert len(names) + len(found.left_out) == len(ALL)
        assert names
        assert all(found.left_out.values())

    def test_scripts_ask_for_what_the_cluster_has(self, stack: str):
        config = stacks.config(stack)
        rows = partition_facts(config)
        for script in examples(config).scripts:
            options = script.options
            kind, _, count = str(options.get("gpus-per-node", ":0")).partition(":")
            (row, *_) = [
                row
                for row in rows
                if row.name == options["partition"] and (not kind or (row.gpu and kind == row.gpu.type))
            ]
            assert int(options["nodes"]) <= len(row.nodes)
            assert int(count) <= (row.gpu.count if row.gpu else 0)
            assert int(options["ntasks-per-node"]) * int(options.get("cpus-per-task", 1)) <= row.cpus
            assert minutes(str(options["time"])) <= minutes(row.max_time)

    def test_steps_get_the_cpus_per_task_of_their_job(self, stack: str):
        """From Slurm 22.05 on srun reads SRUN_CPUS_PER_TASK, and SLURM_CPUS_PER_TASK no more."""
        scripts = [
            script
            for script in examples(stacks.config(stack)).scripts
            if "cpus-per-task" in script.options or "srun --mpi" in script.body
        ]
        assert [
            script.name for script in scripts if "srun " in script.body and "SRUN_CPUS_PER_TASK=" not in script.body
        ] == []

    def test_files_that_scripts_name_are_installed(self, stack: str):
        config = stacks.config(stack)
        files = installed_files(config, examples(config))
        for path, text in files.items():
            for named in re.findall(r"/opt/apps/hpc[a-z./-]*[a-z]", text):
                assert named in files or any(file.startswith(f"{named}/") for file in files), (path, named)

    def test_the_readme_lists_every_script_and_partition(self, stack: str):
        config = stacks.config(stack)
        readme = examples(config).files["README"]
        for script in examples(config).scripts:
            assert re.search(rf"^    {re.escape(script.name)} .*{re.escape(script.title)}$", readme, re.MULTILINE)
        assert all(f"partition {name}" in readme for name in config.partitions)
        assert not re.search(r"\{[a-z]+\}", readme)
        assert ("--container-image" in readme) == ("pyxis" in registry.get(config.platform).job_programs(config))


def test_rendered_scripts_are_clean_for_shellcheck(tmp_path: Path):
    files = {
        re.sub("^#SBATCH.*\n", "", text, flags=re.MULTILINE): f"{stack}-{name}"
        for stack in stacks.EVERY
        for name, text in examples(stacks.config(stack)).files.items()
        if name.endswith(".sh")
    }
    for text, name in files.items():
        (tmp_path / name).write_text(text)
    # SC1091: env.sh is another file, of the cluster. SC2016: what is for the shell of a task is in single quotes.
    assert shellcheck(*files.values(), options=("--exclude=SC1091,SC2016",), cwd=tmp_path) == ""


class TestWhatFits:
    def test_examples_need_their_programs(self):
        plain, more = examples(cluster()), examples(cluster(**PACKAGES))
        assert plain.left_out["mpi.sh"] == PROGRAMS["mpi"]
        assert "mpi.sh" in {script.name for script in more.scripts}
        assert "pi.py" in more.files
        assert "pi.py" not in plain.files

    def test_pytorch_of_the_distribution_runs_without_libuv(self):
        texts = [{script.name: script.body for script in examples(cluster(**more)).scripts} for more in ({}, PACKAGES)]
        assert ["USE_LIBUV=0" in text["pytorch.sh"] for text in texts] == [False, True]
        assert ["USE_LIBUV=0" in text["array.sh"] for text in texts] == [False, False]

    def test_examples_of_containers_need_pyxis_on_the_image(self):
        names = {
            name: {script.name for script in examples(stacks.config(name)).scripts} & {"container.sh", "apptainer.sh"}
            for name in ("a3mega", "classic", "nebius", "dev")
        }
        assert names == {
            "a3mega": {"container.sh", "apptainer.sh"},
            "classic": {"apptainer.sh"},
            "nebius": {"container.sh"},
            "dev": set(),
        }

    def test_examples_without_gpus_use_nodes_without_gpus(self):
        asked = {script.name: script.options for script in examples(stacks.config("a3mega")).scripts}
        assert asked["array.sh"]["partition"] == "debug"
        assert asked["single-gpu.sh"]["partition"] == "a3mega"
        assert asked["single-gpu.sh"]["gpus-per-node"] == "h100:1"
        assert asked["pytorch.sh"]["gpus-per-node"] == "h100:8"
        assert asked["pytorch.sh"]["ntasks-per-node"] == 8
        assert asked["torchrun.sh"]["ntasks-per-node"] == 1

    @pytest.mark.parametrize(
        ("limits", "missing"),
        [
            ({"max_nodes": 1}, "pytorch.sh"),
            ({"min_nodes": 2}, "hello.sh"),
        ],
    )
    def test_examples_keep_to_the_limits_of_a_partition(self, limits: dict[str, int], missing: str):
        found = examples(cluster(partitions={"cpu": {"nodesets": ["cpu"], "default": True, **limits}}))
        assert found.left_out[missing].startswith("no partition has ")
        assert found.scripts

    def test_examples_use_the_minimum_number_of_nodes_of_a_partition(self):
        wants = {"cpu": {"nodesets": ["cpu"], "default": True, "min_nodes": 3}}
        found = examples(cluster(nodesets={"cpu": {"count": 4}}, partitions=wants))
        assert {script.name: script.options["nodes"] for script in found.scripts}["pytorch.sh"] == 3

    @pytest.mark.parametrize("longest", ["00:05:00", "5", "INFINITE", "7-00:00:00"])
    def test_the_time_limit_is_the_partitions_where_that_is_shorter(self, longest: str):
        found = examples(cluster(partitions={"cpu": {"nodesets": ["cpu"], "default": True, "max_time": longest}}))
        (hello,) = (script for script in found.scripts if script.name == "hello.sh")
        assert hello.options["time"] == (longest if minutes(longest) < 10 else "00:10:00")


class TestFiles:
    def test_every_body_and_program_is_part_of_an_example(self):
        bodies = {body for kind in KINDS for body in kind.bodies} | {"libuv.sh"}
        assert bodies == {path.name for path in FOLDER.glob("*.sh")}
        assert {name for kind in KINDS for name in kind.files} == {
            path.name for path in (FOLDER / "programs").iterdir()
        }

    @pytest.mark.parametrize("path", sorted((FOLDER / "programs").glob("*.py")), ids=lambda path: path.name)
    def test_programs_are_python_of_the_oldest_release(self, path: Path):
        ast.parse(path.read_text(), feature_version=(3, 10))

    def test_scripts_source_the_environment_of_jobs_where_processes_talk_to_each_other(self):
        texts = examples(stacks.config("a3mega")).files
        assert {name for name, text in texts.items() if f". {ENV}\n" in text} == {
            "full-node.sh", "mpi-container.sh", "mpi.sh", "nccl.sh", "pytorch-container.sh", "pytorch.sh", "requeue.sh",
            "single-gpu.sh", "torchrun.sh",
        }  # fmt: skip

    def test_all_files_are_below_the_folder(self):
        paths = set(installed_files(cluster(), examples(cluster())))
        assert {path for path in paths if not path.startswith(f"{EXAMPLES}/")} == {ENV}

    @given(
        st.dictionaries(
            st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", fullmatch=True),
            st.text(alphabet=st.characters(codec="utf-8")),
        )
    )
    def test_a_record_round_trips(self, files: dict[str, str]):
        hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
        assert parse_record(record(files)) == hashes

    @pytest.mark.parametrize("line", ["../../etc/passwd", "-rf", ".hidden", "a b", "a\0b", ""])
    def test_lines_of_a_record_with_other_names_are_left_out(self, line: str):
        assert parse_record(f"{'0' * 64}  {line}\n") == {}
