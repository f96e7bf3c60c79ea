"""The jobs of MLPerf benchmarks: what is asked for, preparing and training."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from cluster.catalog import mlperf as catalog
from cluster.catalog.mlperf import (
    BUCKET,
    COMMIT,
    DIFFUSION_CONFIGS,
    ENDPOINT,
    GPT3,
    GPT3_SETTINGS,
    IMAGE,
    STABLE_DIFFUSION,
)
from cluster.config import ClusterConfig
from cluster.findings import Level
from cluster.jobs import mlperf
from cluster.jobs.mlperf import (
    Preparation,
    RequestError,
    Training,
    diffusion_script,
    gpt3_script,
    image_file,
    prepare_scripts,
)
from cluster.jobs.script import JobScript, render_environment
from tests import programs
from tests.cluster.stacks import ROOT, config, load, parse
from tests.waiting import wait_for

MIRROR = "mirror:mlperf/dataset_c4_spm.tar"
CHECKPOINT = "s3://bucket/checkpoint_nemo_bf16.tar"
OWN = "registry.example#llm/megatron:1"


def large(stack: str, nodes: int = 8, **partition: object) -> ClusterConfig:
    """A stack with more GPU nodes than its example has."""
    settings = load(stack)
    cluster = settings["hpc:cluster"]
    next(iter(cluster["nodesets"].values()))["count"] = nodes
    next(iter(cluster["partitions"].values())).update(partition)
    return parse(settings)


def preparation(cluster: ClusterConfig, benchmark: str, **more: str) -> tuple[JobScript, ...]:
    wish = {"data": "/data", "image": OWN if benchmark == GPT3 else "", **more}
    return prepare_scripts(Preparation(benchmark=benchmark, partition=mlperf.any_partition(cluster, ""), **wish))


def of_diffusion(cluster: ClusterConfig, nodes: int, name: str = "") -> JobScript:
    row = mlperf.gpu_partition(cluster, "", nodes)
    image = f"/mlperf-sd/images/{image_file(IMAGE)}"
    return diffusion_script(
        Training(data="/mlperf-sd", partition=row, nodes=nodes, image=image), mlperf.diffusion_config(name, nodes)
    )


def of_gpt3(cluster: ClusterConfig, nodes: int, **sizes: int) -> JobScript:
    row = mlperf.gpu_partition(cluster, "", nodes)
    wish = Training(data="/gpt3", partition=row, nodes=nodes, image=f"/gpt3/images/{image_file(OWN)}")
    return gpt3_script(wish, mlperf.gpt3_setting(row, nodes, **sizes), "/gpt3/checkpoint")


def written(stack: str) -> dict[str, str]:
    cluster = config(stack)
    made = [
        of_diffusion(cluster, 2),
        of_gpt3(large(stack), 8),
        *preparation(cluster, STABLE_DIFFUSION),
        *preparation(cluster, GPT3, source=MIRROR, checkpoint=CHECKPOINT),
    ]
    return {script.name: script.text() for script in made}


@pytest.mark.parametrize("stack", ["nebius", "a3mega"])
def test_scripts_equal_the_golden_files(stack, golden_folder):
    golden_folder(f"mlperf/{stack}", written(stack))


class TestPreparation:
    def test_the_published_scripts_need_no_mirror(self):
        made = preparation(config("nebius"), STABLE_DIFFUSION, source="mlcommons")
        assert [script.options["job-name"] for script in made] == [
            "mlperf-sd-code",
            "mlperf-sd-published",
            "mlperf-sd-image",
        ]
        with pytest.raises(RequestError, match="is for Stable Diffusion"):
            preparation(config("nebius"), GPT3, source="mlcommons", checkpoint="/x")

    def test_gpt3_without_a_checkpoint_is_refused(self):
        with pytest.raises(RequestError, match="--checkpoint") as raised:
            preparation(config("nebius"), GPT3)
        assert "checkpoint_nemo_bf16.tar" in str(raised.value)

    def test_an_image_file_is_not_imported(self):
        assert image_file("/data/x.sqsh") == ""
        assert image_file(IMAGE) == "slurm-mlperf-training_sd-3.0-mlcommons_0.1.5.sqsh"

    def test_jobs_use_nodes_without_gpus_if_there_are_any(self):
        assert mlperf.any_partition(config("a3mega"), "").name == "debug"
        assert mlperf.any_partition(config("nebius"), "").name == "main"

    def test_time_limits_are_at_most_the_partitions(self):
        made = preparation(large("nebius", max_time="12:00:00"), STABLE_DIFFUSION)
        assert [script.options["time"] for script in made] == [60, 720, 720, 240]

    @pytest.mark.parametrize(
        "given",
        [
            "",
            "no-colon",
            "-x:y",
            "remote:a\nb",
            "r,secret_access_key=1:b",
            "r,PASSWORD=x:b",
            ":sftp,host=h,pass=x:b",
            ":azureblob,sas_url='https://x?sig=y':b",
            ":b2,account=a,key=b:c",
        ],
    )
    def test_invalid_sources_and_keys_are_refused(self, given: str):
        with pytest.raises(RequestError):
            mlperf.check_source("--source", given)

    def test_paths_with_words_for_keys_are_accepted(self):
        for given in ("remote:keys/data", "s3://bucket/tokens=1/x", BUCKET):
            assert mlperf.check_source("--source", given) == given

    @pytest.mark.parametrize("given", ["https://id:key@host", "host", "https://host?x=y", "https://h/\n", "file:///x"])
    def test_invalid_endpoints_and_keys_are_refused(self, given: str):
        with pytest.raises(RequestError, match="--endpoint") as raised:
            mlperf.check_endpoint(given)
        assert given not in str(raised.value), "it may have a key in it"

    @pytest.mark.parametrize("given", ["", "https://storage.eu-north1.nebius.cloud:443", "http://10.0.0.1/s3"])
    def test_valid_endpoints_are_accepted(self, given: str):
        assert mlperf.check_endpoint(given) == given

    @pytest.mark.parametrize("given", ["data", "/a b", "/a:b", "/a,b", "/a/../b", "/a/", "/$(id)", "/a\n"])
    def test_invalid_data_folders_are_refused(self, given: str):
        with pytest.raises(RequestError, match="--data"):
            mlperf.check_folder(given, GPT3)

    def test_the_default_data_folder_is_the_guides_mount(self):
        assert (mlperf.check_folder("", STABLE_DIFFUSION), mlperf.check_folder("", GPT3)) == ("/mlperf-sd", "/gpt3")

    def test_no_script_of_this_project_has_a_key(self):
        for file in sorted((ROOT / "scripts/jobs/mlperf").iterdir()):
            assert not any(len(word) >= 32 and word.isalnum() for word in file.read_text().split())


class TestDiffusion:
    @pytest.mark.parametrize(
        "setup", [setup for setup in DIFFUSION_CONFIGS if setup.nodes > 2], ids=lambda setup: setup.name
    )
    def test_each_configuration_runs_on_its_nodes(self, setup):
        made = of_diffusion(large("nebius", 32), setup.nodes, setup.name)
        assert f"CONFIG=train_{setup.name}.yaml" in made.body
        assert (made.options["nodes"], made.options["ntasks-per-node"], made.options["gpus-per-node"]) == (32, 8, 8)

    def test_the_number_of_nodes_chooses_the_configuration(self):
        names = {nodes: mlperf.diffusion_config("", nodes).name for nodes in (1, 2, 8, 32)}
        assert names == {1: "01x08x08", 2: "02x08x08", 8: "02x08x08", 32: "32x08x08"}

    def test_more_nodes_than_there_are_and_too_few_gpus_are_refused(self):
        with pytest.raises(RequestError, match="--nodes 3: allowed is at most 2"):
            of_diffusion(config("nebius"), 3)
        with pytest.raises(RequestError, match=r"dev has no nodes with 8 GPUs.* gpu \(2 GPUs a node\)"):
            of_diffusion(config("dev"), 1)

    def test_names_that_are_unknown_are_refused_with_the_nearest(self):
        with pytest.raises(RequestError, match="write main if that was meant"):
            mlperf.gpu_partition(config("nebius"), "mian", 1)
        with pytest.raises(RequestError, match="write 32x08x02 if that was meant"):
            mlperf.diffusion_config("32x08x2", 32)


class TestGpt3:
    @pytest.mark.parametrize("setting", GPT3_SETTINGS, ids=lambda setting: f"{setting.gpu}-{setting.nodes}")
    def test_settings_of_the_catalog_fit(self, setting):
        row = mlperf.gpu_partition(large("nebius", setting.nodes), "", setting.nodes)
        found = mlperf.gpt3_setting(row, setting.nodes)
        assert found.tensor * found.pipeline == 64
        assert setting.batch % (setting.nodes * 8 // 64) == 0
        assert found.batch == {8: 1536, 64: 2048}[setting.nodes]

    def test_other_sizes_can_be_given(self):
        body = of_gpt3(large("nebius", 16), 16, tensor=8, pipeline=16, batch=512, micro=2).body
        assert "TENSOR=8\nPIPELINE=16\nMICRO=2\nBATCH=512\n" in body

    @pytest.mark.parametrize(
        ("nodes", "sizes", "reason"),
        [
            (4, {}, "--nodes 4: allowed is a multiple of 8"),
            (12, {}, "--nodes 12: allowed is a multiple of 8"),
            (8, {"tensor": 5}, "--tensor 5: allowed is a divisor of 96 up to 8"),
            (8, {"tensor": 16}, "--tensor 16: allowed is a divisor"),
            (8, {"pipeline": 7}, "--pipeline 7: allowed is a divisor of 96"),
            (16, {"batch": 1537}, "--batch 1537: allowed is a multiple of 2"),
            (16, {"tensor": 4}, "each GPU would need 98 GB for its parameters, and has 80 GB"),
        ],
    )
    def test_sizes_that_do_not_fit_are_refused(self, nodes: int, sizes: dict[str, int], reason: str):
        with pytest.raises(RequestError) as raised:
            of_gpt3(large("nebius", 64), nodes, **sizes)
        assert reason in str(raised.value)

    def test_time_is_left_for_the_checkpoint(self):
        assert "EXIT_MINUTES=1185\n" in of_gpt3(large("nebius"), 8).body
        with pytest.raises(RequestError, match="more than 15"):
            of_gpt3(large("nebius", max_time="00:10:00"), 8)


class TestDataFolder:
    GOOD = f"folder\nwritable\ndf {3 * 1024**4} /mlperf-sd\n"

    def findings(self, text: str) -> dict[str, Level]:
        folder = mlperf.parse_data_folder(text)
        found = mlperf.data_findings(STABLE_DIFFUSION, "nebius", "alice", "/mlperf-sd", folder)
        return {finding.id: finding.level for finding in found}

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("none\n", {"mlperf-data-missing": Level.ERROR}),
            (GOOD.replace("writable\n", ""), {"mlperf-data-owner": Level.ERROR}),
            (GOOD.replace("/mlperf-sd", "/"), {"mlperf-data-root": Level.WARNING}),
            (f"folder\nwritable\ndf {1024**4} /mlperf-sd\n", {"mlperf-storage-size": Level.WARNING}),
        ],
    )
    def test_findings_about_the_data_folder(self, text: str, expected: dict[str, Level]):
        assert self.findings(text) == expected

    def test_the_command_inspects_a_folder(self, tmp_path: Path):
        data = tmp_path / "a b"
        (data / "x").mkdir(parents=True)
        line = mlperf.inspect_command(str(data), ["x", "y's", "/", "/nowhere"])
        done = programs.run(["bash", "-c", line], check=True)
        seen = mlperf.parse_data_folder(done.stdout)
        assert (seen.folder, seen.writable, seen.missing) == (True, True, ("y's", "/nowhere"))
        assert seen.size > 0
        assert seen.mount.startswith("/")
        gone = programs.run(["bash", "-c", mlperf.inspect_command("/nowhere", [])], check=True)
        assert not mlperf.parse_data_folder(gone.stdout).folder


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


class Folder:
    """A node in a folder: a home, programs, and a data folder."""

    def __init__(self, folder: Path, programs: dict[str, str]) -> None:
        self.data, self.calls, self.folder = folder / "data", folder / "calls", folder
        self.data.mkdir()
        self.calls.touch()
        for name, text in programs.items():
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        programs.write(self.folder / "bin" / name, text)

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        return {"PATH": path, "HOME": str(self.folder), "CALLS": str(self.calls), **more}


class Machine(Folder):
    """A node that prepares, with a repository that git is sent to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PROGRAMS)
        self.repository = folder / "repository"
        sources = {
            "stable_diffusion/configs/train_01x08x08.yaml": "lightning:\n  trainer:\n    num_nodes: 1\n",
            "stable_diffusion/run_and_time.sh": "echo\n",
            "large_language_model/megatron-lm/megatron/optimizer/clip_grads.py": "from torch._six import inf\n",
        }
        for path in ("checkpoints/download_sd", "checkpoints/download_clip", "checkpoints/download_inception",
                    "datasets/coco2014-validation-download-prompts", "datasets/coco2014-validation-download-stats",
                    "datasets/laion400m-filtered-download-moments"):  # fmt: skip
            sources[f"stable_diffusion/scripts/{path}.sh"] = "wget $(basename $0) $*\n"
        for name, text in sources.items():
            file = self.repository / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.git("init", "--quiet", ".")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "x")
        self.commit = self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        done = programs.run(["git", *words], cwd=self.repository, check=True)
        return done.stdout.strip()

    def jobs(self, benchmark: str, **more: str) -> dict[str, str]:
        row = mlperf.any_partition(config("nebius"), "")
        made = prepare_scripts(Preparation(benchmark=benchmark, data=str(self.data), partition=row, **more))
        changes = {COMMIT: self.commit, "https://github.com/mlcommons/training": str(self.repository)}
        found = {}
        for script in made:
            text = script.text()
            for old, new in changes.items():
                text = text.replace(old, new)
            found[str(script.options["job-name"]).removeprefix("mlperf-")] = text
        return found

    def run(self, script: str, **more: str) -> str:
        done = programs.run(["bash", "-c", script], env=self.environment(**more))
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
        folder.name for folder in machine.data.iterdir()
    }
    calls = machine.called()
    assert any(call.startswith(f"rclone copy mirror:{place} {machine.data}/. --links --transfers 64") for call in calls)
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


def test_a_killed_copy_is_resumed(machine: Machine) -> None:
    place = mirror(machine)
    copy = machine.jobs(STABLE_DIFFUSION, source=f"mirror:{place}")["sd-data"]
    (machine.data / "a").write_text("text of a\n")
    process = subprocess.Popen(["bash", "-c", copy], env=machine.environment(SLOW="1"), start_new_session=True)
    slow = Path(f"{machine.calls}.slow")
    wait_for(slow.exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (machine.data / ".hpc/copy-sd-data").exists()
    machine.called()
    machine.run(copy)
    assert [line for line in machine.called() if line.startswith("copied")] == ["copied ./b/c", "copied ./d"]
    assert "already there" in machine.run(copy)


def test_a_killed_clone_is_completed(machine: Machine) -> None:
    code = machine.jobs(STABLE_DIFFUSION)["sd-code"]
    tree_ = machine.data / "training"
    subprocess.run(["git", "init", "--quiet", str(tree_)], check=True)
    (tree_ / ".git/index.lock").touch()
    (tree_ / "stable_diffusion").mkdir()
    (tree_ / "stable_diffusion/run_and_time.sh").write_text("half of it")
    machine.run(code)
    assert (tree_ / "stable_diffusion/run_and_time.sh").read_text() == "echo\n"
    head = programs.run(["git", "rev-parse", "HEAD"], cwd=tree_, check=True)
    assert head.stdout.strip() == machine.commit


def test_gpt3_has_its_layout(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.folder)
    sha256 = hashlib.sha256(b"text\n").hexdigest()
    monkeypatch.setattr(catalog, "VOCABULARY_SHA256", dict.fromkeys(catalog.VOCABULARY_SHA256, sha256))
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
    urls = [call.split()[-1] for call in calls if call.startswith("curl")]
    assert urls == [f"{catalog.VOCABULARY}/{file}" for file in ("vocab.json", "merges.txt")]
    for script in jobs.values():
        machine.run(script)
    assert machine.called() == []


def test_another_vocabulary_is_refused(machine: Machine) -> None:
    """The stand-in of curl writes a text."""
    script = machine.jobs(GPT3, source=f"mirror:{mirror(machine)}", checkpoint="mirror:ckpt.tar")["gpt3-code"]
    done = programs.run(["bash", "-c", script], env=machine.environment())
    assert done.returncode
    got, expected = hashlib.sha256(b"text\n").hexdigest(), catalog.VOCABULARY_SHA256["vocab.json"]
    assert f"error: {catalog.VOCABULARY}/vocab.json has SHA-256 {got}, expected {expected}\nto do: " in done.stderr
    assert not (machine.data / "dataset/bpe/vocab.json").exists()


def test_the_published_scripts_are_run_from_the_clone(machine: Machine) -> None:
    jobs = machine.jobs(STABLE_DIFFUSION, source="mlcommons")
    machine.run(jobs["sd-code"])
    machine.run(jobs["sd-published"])
    assert machine.called()[0] == f"wget download_sd.sh --output-dir {machine.data}/checkpoints/sd"
    assert "already there" in machine.run(jobs["sd-published"])


@pytest.mark.parametrize(
    ("job", "missing"), [("sd-data", "rclone"), ("sd-code", "git"), ("sd-image", "enroot"), ("sd-published", "wget")]
)
def test_a_missing_program_is_an_error(machine: Machine, job: str, missing: str) -> None:
    source = "mlcommons" if job == "sd-published" else f"mirror:{mirror(machine)}"
    script = machine.jobs(STABLE_DIFFUSION, source=source)[job]
    tools = machine.folder / "few"
    tools.mkdir()
    for name in ("bash", "date", "mkdir", "mv", "rm", "sed", "grep", "tar"):
        (tools / name).symlink_to(shutil.which(name) or name)
    environment = machine.environment(PATH=str(tools), SLURMD_NODENAME="worker-0")
    done = programs.run(["bash", "-c", script], env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {missing} is not on worker-0\nto do: ")


def test_a_failed_copy_is_not_marked_as_done(machine: Machine) -> None:
    machine.program("rclone", "exit 7")
    script = machine.jobs(STABLE_DIFFUSION, source="mirror:/x")["sd-data"]
    done = subprocess.run(["bash", "-c", script], env=machine.environment(), capture_output=True, check=False)
    assert done.returncode == 7
    assert not (machine.data / ".hpc/copy-sd-data").exists()


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


class Node(Folder):
    """A node that trains."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"srun": SRUN, "scontrol": "echo worker-0", "ip": "true"})
        (folder / "env.sh").write_text(render_environment(config("nebius")).replace("/sys/class/net", f"{folder}/net"))

    def training(self, nodes: int) -> Training:
        row = mlperf.gpu_partition(config("nebius"), "", 2)
        return Training(data=str(self.data), partition=row, nodes=nodes, image="/images/x.sqsh")

    def run(self, script: str, **more: str) -> "subprocess.CompletedProcess[str]":
        slurm = "JOB_ID=12 JOB_PARTITION=main JOB_NUM_NODES=2 NNODES=2 JOB_NODELIST=worker-[0-1] CPUS_PER_TASK=8"
        job = {f"SLURM_{name}": value for name, value in (word.split("=") for word in slurm.split())}
        variables = self.environment(USER="alice", **job, **more)
        text = script.replace("/opt/apps/hpc/env.sh", str(self.folder / "env.sh"))
        return programs.run(["bash", "-c", text], env=variables)

    def called(self) -> list[tuple[list[str], dict[str, str]]]:
        return [tuple(json.loads(line)) for line in self.calls.read_text().splitlines()]


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
    script = diffusion_script(node.training(2), mlperf.diffusion_config("", 2)).text()
    for _ in range(2):
        done = node.run(script)
        assert (done.returncode, done.stderr) == (0, "")
    words, variables = node.called()[0]
    assert words[words.index("./run_and_time.sh") :] == [
        "./run_and_time.sh", "--num-nodes", "2", "--gpus-per-node", "8",
        "--checkpoint", "/checkpoints/sd/512-base-ema.ckpt", "--results-dir", "/results",
        "--config", "configs/train_02x08x08.yaml",
    ]  # fmt: skip
    assert option(words, "container-image") == "/images/x.sqsh"
    assert option(words, "container-workdir") == "/workdir"
    mounts = dict(mount.split(":")[:2] for mount in option(words, "container-mounts").split(","))
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
    setting = mlperf.gpt3_setting(row, 8)
    script = gpt3_script(node.training(8), setting, f"{node.data}/checkpoint").text()
    done = node.run(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("RESULT,gpt3,")
    converted, trained = [words for words, _ in node.called()]
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
    assert len(node.called()) == 3


def test_gpt3_without_a_checkpoint_is_an_error(node: Node) -> None:
    (node.data / "checkpoint").mkdir()
    row = mlperf.gpu_partition(config("nebius"), "", 2)
    setting = mlperf.gpt3_setting(row, 8)
    done = node.run(gpt3_script(node.training(8), setting, f"{node.data}/checkpoint").text())
    assert done.returncode == 1
    assert done.stderr == f"error: no metadata.json below {node.data}/checkpoint: it is no checkpoint of GPT-3\n"


def test_a_cluster_without_containers_is_an_error(node: Node) -> None:
    script = diffusion_script(node.training(2), mlperf.diffusion_config("", 2)).text()
    done = node.run(script, NO_PYXIS="1", SLURMD_NODENAME="worker-0")
    assert done.returncode == 1
    assert done.stderr.startswith("error: srun on worker-0 has no --container-image\n")


def test_a_failed_training_fails_the_job(node: Node) -> None:
    assert (
        node.run(diffusion_script(node.training(2), mlperf.diffusion_config("", 2)).text(), FAILS="3").returncode == 3
    )
