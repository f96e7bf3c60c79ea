"""The preparation of MLPerf in a real bash, with stand-ins for git, rclone, aws, wget, curl and enroot.

Each stand-in writes its call to a file, and does what the real program does to files: a copy leaves out what is there.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cluster.catalog.mlperf import COMMIT, ENDPOINT, GPT3, STABLE_DIFFUSION
from cluster.jobs import mlperf
from cluster.jobs.mlperf import Preparation, prepare_scripts
from tests.cluster.stacks import config

COPY = """
from=$1 to=$2; mkdir -p "$to"
[[ -d $from ]] || { cp "$from" "$to/"; exit; }
for file in $(cd "$from" && find . -type f | sort); do
    [[ -e $to/$file ]] && continue
    [[ -z ${SLOW:-} ]] || { echo "$$" >"$CALLS.slow"; sleep 30; }
    mkdir -p "$to/$(dirname "$file")"; echo "copied $file" >>"$CALLS"; cp "$from/$file" "$to/$file"
done
"""
PROGRAMS = {
    "rclone": f'set -e; echo "rclone $*" >>"$CALLS"; shift; set -- "${{1#mirror:}}" "$2"; {COPY}',
    "aws": f'set -e; echo "aws $*" >>"$CALLS"; set -- "${{@: -2}}"; set -- "${{1#s3:/}}" "$2"; {COPY}',
    "curl": 'echo "curl $*" >>"$CALLS"; while [[ $1 != --output ]]; do shift; done; echo text >"$2"',
    "enroot": 'echo "enroot $*" >>"$CALLS"; while [[ $1 != --output ]]; do shift; done; echo image >"$2"',
    "wget": 'echo "wget $*" >>"$CALLS"',
}


class Machine:
    """A node in a folder: a home, programs, a data folder, and a repository that git is sent to."""

    def __init__(self, folder: Path) -> None:
        self.data, self.calls, self.folder = folder / "data", folder / "calls", folder
        self.data.mkdir()
        self.calls.touch()
        for name, text in PROGRAMS.items():
            self.program(name, text)
        self.repository = folder / "repository"
        sources = {
            "stable_diffusion/configs/train_01x08x08.yaml": "lightning:\n  trainer:\n    num_nodes: 1\n",
            "stable_diffusion/run_and_time.sh": "echo\n",
            "large_language_model/megatron-lm/megatron/optimizer/clip_grads.py": "from torch._six import inf\n",
        }
        for one in ("checkpoints/download_sd", "checkpoints/download_clip", "checkpoints/download_inception",
                    "datasets/coco2014-validation-download-prompts", "datasets/coco2014-validation-download-stats",
                    "datasets/laion400m-filtered-download-moments"):  # fmt: skip
            sources[f"stable_diffusion/scripts/{one}.sh"] = "wget $(basename $0) $*\n"
        for name, text in sources.items():
            file = self.repository / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.git("init", "--quiet", ".")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "x")
        self.commit = self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.repository, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def program(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)

    def jobs(self, benchmark: str, **more: str) -> dict[str, str]:
        row = mlperf.any_partition(config("nebius"), "")
        made = prepare_scripts(Preparation(benchmark=benchmark, data=str(self.data), partition=row, **more))
        changes = {COMMIT: self.commit, "https://github.com/mlcommons/training": str(self.repository)}
        found = {}
        for one in made:
            text = one.text()
            for old, new in changes.items():
                text = text.replace(old, new)
            found[str(one.options["job-name"]).removeprefix("mlperf-")] = text
        return found

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        return {"PATH": path, "HOME": str(self.folder), "CALLS": str(self.calls), **more}

    def run(self, script: str, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-c", script], env=self.environment(**more), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def called(self) -> list[str]:
        found = self.calls.read_text().splitlines()
        self.calls.write_text("")
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def tree(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and ".git" not in file.parts and ".hpc" not in file.parts
    }


def mirror(machine: Machine, names: tuple[str, ...] = ("a", "b/c", "d")) -> Path:
    place = machine.folder / "mirror"
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"text of {name}\n")
    return place


def test_stable_diffusion_has_its_layout_and_a_second_run_does_nothing(machine: Machine) -> None:
    place = mirror(machine, ("datasets/laion-400m/0.tar", "checkpoints/sd/512-base-ema.ckpt"))
    jobs = machine.jobs(STABLE_DIFFUSION, source=f"mirror:{place}")
    for script in jobs.values():
        machine.run(script)
    first = tree(machine.data)
    assert first["training/stable_diffusion/configs/train_02x08x08.yaml"].endswith("    num_nodes: 2\n")
    assert first["training/stable_diffusion/configs/train_01x08x08.yaml"].endswith("    num_nodes: 1\n")
    assert first["checkpoints/sd/512-base-ema.ckpt"] == "text of checkpoints/sd/512-base-ema.ckpt\n"
    assert first["images/slurm-mlperf-training_sd-3.0-mlcommons_0.1.5.sqsh"] == "image\n"
    assert {"datasets", "checkpoints", "hf_home", "results", "logs", "images", "training"} <= {
        one.name for one in machine.data.iterdir()
    }
    calls = machine.called()
    assert any(one.startswith(f"rclone copy mirror:{place} {machine.data}/. --links --transfers 64") for one in calls)
    for script in jobs.values():
        assert "already there" in machine.run(script)
    assert machine.called() == []
    assert tree(machine.data) == first


def test_the_recipes_bucket_is_a_remote_by_variables(machine: Machine) -> None:
    """rclone 1.53, of Ubuntu 22.04, refuses a connection string."""
    machine.program("rclone", 'echo "$1 $2" >>"$CALLS"; env | grep ^RCLONE_ | sort >>"$CALLS"')
    machine.run(machine.jobs(STABLE_DIFFUSION)["sd-dataset"])
    assert machine.called() == [
        "copy recipe:slurm-mlperf-training/sd-dataset-3.0",
        f"RCLONE_CONFIG_RECIPE_ENDPOINT={ENDPOINT}",
        "RCLONE_CONFIG_RECIPE_PROVIDER=Other",
        "RCLONE_CONFIG_RECIPE_TYPE=s3",
    ]


def test_a_remote_of_ones_own_is_left_as_it_is(machine: Machine) -> None:
    machine.program("rclone", 'echo "$1 $2" >>"$CALLS"; env | grep ^RCLONE_ >>"$CALLS" || true')
    machine.run(machine.jobs(STABLE_DIFFUSION, source="recipe:mine")["sd-data"])
    assert machine.called() == ["copy recipe:mine"]


def test_another_source_is_copied_again(machine: Machine) -> None:
    place = mirror(machine)
    copy = machine.jobs(STABLE_DIFFUSION, source=f"mirror:{place}")["sd-data"]
    machine.run(copy)
    machine.called()
    other = machine.jobs(STABLE_DIFFUSION, source=f"s3:/{place}")["sd-data"].replace("s3:/", "s3://", 1)
    machine.run(other)
    assert machine.called()[0].startswith("aws s3 sync --no-progress --no-sign-request s3://")


def test_a_copy_that_was_killed_goes_on_where_it_was(machine: Machine) -> None:
    place = mirror(machine)
    copy = machine.jobs(STABLE_DIFFUSION, source=f"mirror:{place}")["sd-data"]
    (machine.data / "a").write_text("text of a\n")
    process = subprocess.Popen(["bash", "-c", copy], env=machine.environment(SLOW="1"), start_new_session=True)
    slow = Path(f"{machine.calls}.slow")
    deadline = time.monotonic() + 120
    while not slow.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (machine.data / ".hpc/copy-sd-data").exists()
    machine.called()
    machine.run(copy)
    assert [one for one in machine.called() if one.startswith("copied")] == ["copied ./b/c", "copied ./d"]
    assert "already there" in machine.run(copy)


def test_a_clone_that_was_killed_is_completed(machine: Machine) -> None:
    code = machine.jobs(STABLE_DIFFUSION)["sd-code"]
    tree_ = machine.data / "training"
    subprocess.run(["git", "init", "--quiet", str(tree_)], check=True)
    (tree_ / ".git/index.lock").touch()
    (tree_ / "stable_diffusion").mkdir()
    (tree_ / "stable_diffusion/run_and_time.sh").write_text("half of it")
    machine.run(code)
    assert (tree_ / "stable_diffusion/run_and_time.sh").read_text() == "echo\n"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree_, capture_output=True, text=True, check=True)
    assert head.stdout.strip() == machine.commit


def test_another_commit_replaces_the_code(machine: Machine) -> None:
    machine.run(machine.jobs(STABLE_DIFFUSION)["sd-code"])
    (machine.repository / "stable_diffusion/run_and_time.sh").write_text("echo new\n")
    machine.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-a", "-m", "y")
    machine.commit = machine.git("rev-parse", "HEAD")
    machine.run(machine.jobs(STABLE_DIFFUSION)["sd-code"])
    assert (machine.data / "training/stable_diffusion/run_and_time.sh").read_text() == "echo new\n"


def test_gpt3_has_its_layout(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.folder)
    dataset, checkpoint = machine.folder / "dataset_c4_spm.tar", machine.folder / "ckpt.tar"
    for name, archive, file in (
        ("c4", dataset, "preprocessed_c4_spm/x.bin"),
        ("ck", checkpoint, "ckpt4000/metadata.json"),
    ):
        place = machine.folder / name / file
        place.parent.mkdir(parents=True)
        place.write_text(name)
        subprocess.run(["tar", "-cf", archive, "-C", machine.folder / name, "."], check=True)
    jobs = machine.jobs(GPT3, source=f"mirror:{dataset}", checkpoint="mirror:ckpt.tar", image="registry.example#a/b:1")
    for script in jobs.values():
        machine.run(script)
    found = tree(machine.data)
    assert found["dataset/preprocessed_c4_spm/x.bin"] == "c4"
    assert found["checkpoint/ckpt4000/metadata.json"] == "ck"
    assert found["images/a_b_1.sqsh"] == "image\n"
    assert (
        found["training/large_language_model/megatron-lm/megatron/optimizer/clip_grads.py"] == "from torch import inf\n"
    )
    assert not [name for name in found if name.endswith(".tar")]
    calls = machine.called()
    urls = [one.split()[-1] for one in calls if one.startswith("curl")]
    assert urls == [f"https://huggingface.co/gpt2/resolve/main/{file}" for file in ("vocab.json", "merges.txt")]
    for script in jobs.values():
        machine.run(script)
    assert machine.called() == []


def test_the_published_scripts_are_run_from_the_clone(machine: Machine) -> None:
    jobs = machine.jobs(STABLE_DIFFUSION, source="mlcommons")
    machine.run(jobs["sd-code"])
    machine.run(jobs["sd-published"])
    assert machine.called()[0] == f"wget download_sd.sh --output-dir {machine.data}/checkpoints/sd"
    assert "already there" in machine.run(jobs["sd-published"])


@pytest.mark.parametrize(
    ("job", "missing"), [("sd-data", "rclone"), ("sd-code", "git"), ("sd-image", "enroot"), ("sd-published", "wget")]
)
def test_a_program_that_is_missing_is_named(machine: Machine, job: str, missing: str) -> None:
    source = "mlcommons" if job == "sd-published" else f"mirror:{mirror(machine)}"
    script = machine.jobs(STABLE_DIFFUSION, source=source)[job]
    tools = machine.folder / "few"
    tools.mkdir()
    for name in ("bash", "date", "mkdir", "mv", "rm", "sed", "grep", "tar"):
        (tools / name).symlink_to(shutil.which(name) or name)
    environment = machine.environment(PATH=str(tools), SLURMD_NODENAME="worker-0")
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {missing} is not on worker-0\nto do: ")


def test_a_failed_copy_is_no_finished_one(machine: Machine) -> None:
    machine.program("rclone", "exit 7")
    script = machine.jobs(STABLE_DIFFUSION, source="mirror:/x")["sd-data"]
    done = subprocess.run(["bash", "-c", script], env=machine.environment(), capture_output=True, check=False)
    assert done.returncode == 7
    assert not (machine.data / ".hpc/copy-sd-data").exists()
