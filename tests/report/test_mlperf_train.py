"""The training jobs of MLPerf in a real bash, with a stand-in for srun."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.jobs import mlperf
from cluster.jobs.environment import environment
from cluster.jobs.mlperf import Training, diffusion_script, gpt3_script
from tests.cluster.stacks import config

SRUN = """\
if [[ $1 == --help ]]; then [[ -n ${NO_PYXIS:-} ]] || echo "--container-image=IMAGE"; exit; fi
python3 - "$@" <<'END'
import json, os, sys
names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "DIFFUSERS_OFFLINE", "HF_HOME",
         "SRUN_CPUS_PER_TASK")
with open(os.environ["CALLS"], "a") as file:
    print(json.dumps([sys.argv[1:], {name: os.environ.get(name) for name in names}]), file=file)
END
exit ${FAILS:-0}
"""


class Node:
    """A node in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.data.mkdir()
        for name, text in {"srun": SRUN, "scontrol": "echo worker-0", "ip": "true"}.items():
            file = folder / "bin" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/bash\n{text}\n")
            file.chmod(0o755)
        (folder / "env.sh").write_text(environment(config("nebius")).replace("/sys/class/net", f"{folder}/net"))

    def wish(self, nodes: int) -> Training:
        row = mlperf.gpu_partition(config("nebius"), "", 2)
        return Training(data=str(self.data), partition=row, nodes=nodes, image="/images/x.sqsh")

    def run(self, script: str, **more: str) -> "subprocess.CompletedProcess[str]":
        variables = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "CALLS": str(self.folder / "calls"), "USER": "alice",
            "SLURM_JOB_ID": "12", "SLURM_JOB_PARTITION": "main", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2",
            "SLURM_JOB_NODELIST": "worker-[0-1]", "SLURM_CPUS_PER_TASK": "8", **more,
        }  # fmt: skip
        text = script.replace("/opt/apps/hpc/env.sh", str(self.folder / "env.sh"))
        return subprocess.run(["bash", "-c", text], env=variables, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        return [tuple(json.loads(line)) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def option(words: list[str], name: str) -> str:
    (found,) = [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
    return found


def test_stable_diffusion_is_started_as_its_readme_says(node: Node) -> None:
    stats = node.data / "datasets/coco2014/val2014_30k_stats.npz"
    stats.parent.mkdir(parents=True)
    stats.touch()
    script = diffusion_script(node.wish(2), mlperf.diffusion_config("", 2)).text()
    for _ in range(2):
        done = node.run(script)
        assert (done.returncode, done.stderr) == (0, "")
    words, variables = node.calls[0]
    assert words[words.index("./run_and_time.sh") :] == [
        "./run_and_time.sh", "--num-nodes", "2", "--gpus-per-node", "8",
        "--checkpoint", "/checkpoints/sd/512-base-ema.ckpt", "--results-dir", "/results",
        "--config", "configs/train_02x08x08.yaml",
    ]  # fmt: skip
    assert option(words, "container-image") == "/images/x.sqsh"
    assert option(words, "container-workdir") == "/workdir"
    mounts = dict(one.split(":")[:2] for one in option(words, "container-mounts").split(","))
    assert mounts == {
        f"{node.data}/training/stable_diffusion": "/workdir",
        f"{node.data}/datasets/laion-400m": "/datasets/laion-400m",
        f"{node.data}/datasets/coco2014": "/datasets/coco2014",
        f"{node.data}/checkpoints": "/checkpoints",
        f"{node.data}/hf_home": "/hf_home",
        f"{node.data}/results": "/results",
        "/opt/apps/hpc": "/opt/apps/hpc",
    }
    assert {"MASTER_ADDR", "MASTER_PORT", "HF_HOME"} <= set(option(words, "container-env").split(","))
    assert variables == {
        "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DIFFUSERS_OFFLINE": "1",
        "HF_HOME": "/hf_home", "SRUN_CPUS_PER_TASK": "8",
    }  # fmt: skip
    # The configurations and the published file have two names for it.
    assert (stats.parent / "val2014_512x512_30k_stats.npz").resolve() == stats


def test_gpt3_is_started_with_the_options_of_its_script(node: Node) -> None:
    checkpoint = node.data / "checkpoint/ckpt4000-consumed_samples=0"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata.json").touch()
    row = mlperf.gpu_partition(config("nebius"), "", 2)
    setting = mlperf.gpt3_setting(row, 8, mlperf.Sizes())
    script = gpt3_script(node.wish(8), setting, f"{node.data}/checkpoint").text()
    done = node.run(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("RESULT,gpt3,")
    converted, trained = [words for words, _ in node.calls]
    assert converted[-6:] == [
        "python", "scripts/json_to_torch.py", "-i", "scripts/common_bf16.json", "-o", f"{checkpoint}/common.pt",
    ]  # fmt: skip
    assert trained[0] == "--label"
    given = trained[trained.index(str(node.folder / "env.sh")) + 1 :]
    values = {word: rest for word, rest in zip(given, [*given[1:], ""], strict=True) if word.startswith("--")}
    assert values["--tensor-model-parallel-size"] == values["--pipeline-model-parallel-size"] == "8"
    assert (values["--global-batch-size"], values["--micro-batch-size"]) == ("1536", "1")
    assert values["--eval-interval"] == "16"
    assert (values["--ext-iterations"], values["--ext-lr-steps"]) == ("4000", "6144000")
    assert values["--load"] == str(checkpoint)
    assert values["--exit-duration-in-mins"] == "1185"
    assert "--bf16" in values
    assert "--use-ext-ckpt" in values
    node.run(script)
    assert len(node.calls) == 3


def test_the_checkpoint_may_be_a_link(node: Node) -> None:
    (node.folder / "elsewhere").mkdir()
    (node.folder / "elsewhere/metadata.json").touch()
    (node.data / "checkpoint").symlink_to(node.folder / "elsewhere")
    setting = mlperf.gpt3_setting(node.wish(8).partition, 8, mlperf.Sizes())
    done = node.run(gpt3_script(node.wish(8), setting, f"{node.data}/checkpoint").text())
    assert (done.returncode, done.stderr) == (0, "")


def test_nodes_with_few_cpus_get_one_for_each_task(node: Node) -> None:
    row = replace(node.wish(2).partition, cpus=4, max_time="00:00:30")
    wish = replace(node.wish(2), partition=row)
    options = diffusion_script(wish, mlperf.diffusion_config("", 2)).options
    assert (options["cpus-per-task"], options["time"]) == (1, 1)


def test_gpt3_without_a_checkpoint_says_so(node: Node) -> None:
    (node.data / "checkpoint").mkdir()
    row = mlperf.gpu_partition(config("nebius"), "", 2)
    setting = mlperf.gpt3_setting(row, 8, mlperf.Sizes())
    done = node.run(gpt3_script(node.wish(8), setting, f"{node.data}/checkpoint").text())
    assert done.returncode == 1
    assert done.stderr == f"error: no metadata.json below {node.data}/checkpoint: it is no checkpoint of GPT-3\n"


def test_a_cluster_without_containers_says_so(node: Node) -> None:
    script = diffusion_script(node.wish(2), mlperf.diffusion_config("", 2)).text()
    done = node.run(script, NO_PYXIS="1", SLURMD_NODENAME="worker-0")
    assert done.returncode == 1
    assert done.stderr.startswith("error: srun on worker-0 has no --container-image\n")


def test_a_failed_training_fails_the_job(node: Node) -> None:
    assert node.run(diffusion_script(node.wish(2), mlperf.diffusion_config("", 2)).text(), FAILS="3").returncode == 3
