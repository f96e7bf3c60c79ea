"""Job scripts of MLPerf: their text is on disk for a review; what does not fit is refused with what does."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    Sizes,
    Training,
    diffusion_script,
    gpt3_script,
    image_file,
    prepare_scripts,
)
from cluster.jobs.script import JobScript
from tests.cluster.stacks import ROOT, config, load, parse

GOLDEN = ROOT / "tests" / "golden" / "mlperf"
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
    return gpt3_script(wish, mlperf.gpt3_setting(row, nodes, Sizes(**sizes)), "/gpt3/checkpoint")


def written(stack: str) -> dict[str, str]:
    cluster = config(stack)
    made = [
        of_diffusion(cluster, 2),
        of_gpt3(large(stack), 8),
        *preparation(cluster, STABLE_DIFFUSION),
        *preparation(cluster, GPT3, source=MIRROR, checkpoint=CHECKPOINT),
    ]
    return {one.name: one.text() for one in made}


@pytest.mark.parametrize("stack", ["nebius", "a3mega"])
def test_every_script_is_what_was_reviewed(stack: str, update_golden: bool) -> None:
    folder, files = GOLDEN / stack, written(stack)
    if update_golden:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    assert files == {path.name: path.read_text() for path in folder.iterdir()}


def test_scripts_are_bash_and_clean_for_shellcheck() -> None:
    files = sorted(map(str, GOLDEN.rglob("*.sh")))
    checker = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"
    for command in (["bash", "-n"], [checker, "-e", "SC1091"]):
        for file in files:
            done = subprocess.run([*command, file], capture_output=True, text=True, check=False)
            assert done.stdout + done.stderr == ""
    assert len(files) > 10


class TestPreparation:
    def test_stable_diffusion_is_code_data_checkpoints_and_image(self):
        made = preparation(config("nebius"), STABLE_DIFFUSION)
        assert [one.options["job-name"] for one in made] == [
            "mlperf-sd-code", "mlperf-sd-dataset", "mlperf-sd-checkpoint", "mlperf-sd-image",
        ]  # fmt: skip
        assert f"COMMIT={COMMIT}" in made[0].body
        assert f"ENDPOINT={ENDPOINT}\n" in made[1].body
        assert "sd-dataset-3.0" in made[1].body

    def test_the_published_scripts_need_no_mirror(self):
        made = preparation(config("nebius"), STABLE_DIFFUSION, source="mlcommons")
        assert [one.options["job-name"] for one in made] == ["mlperf-sd-code", "mlperf-sd-published", "mlperf-sd-image"]
        with pytest.raises(RequestError, match="is for Stable Diffusion"):
            preparation(config("nebius"), GPT3, source="mlcommons", checkpoint="/x")

    def test_the_checkpoint_of_gpt3_is_asked_for(self):
        with pytest.raises(RequestError, match="--checkpoint") as raised:
            preparation(config("nebius"), GPT3)
        assert "checkpoint_nemo_bf16.tar" in str(raised.value)

    def test_a_checkpoint_that_is_there_is_not_copied(self):
        made = preparation(config("nebius"), GPT3, checkpoint="/models/gpt3")
        assert [one.options["job-name"] for one in made] == [
            "mlperf-gpt3-code",
            "mlperf-gpt3-dataset",
            "mlperf-gpt3-image",
        ]

    def test_an_image_file_is_not_imported(self):
        assert image_file("/data/x.sqsh") == ""
        assert image_file(IMAGE) == "slurm-mlperf-training_sd-3.0-mlcommons_0.1.5.sqsh"

    def test_it_runs_on_nodes_without_gpus_where_there_are_any(self):
        assert mlperf.any_partition(config("a3mega"), "").name == "debug"
        assert mlperf.any_partition(config("nebius"), "").name == "main"

    def test_it_asks_for_no_more_time_than_the_partition_gives(self):
        made = preparation(large("nebius", max_time="12:00:00"), STABLE_DIFFUSION)
        assert [one.options["time"] for one in made] == [60, 720, 720, 240]

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
    def test_sources_are_places_without_keys(self, given: str):
        with pytest.raises(RequestError):
            mlperf.check_source("--source", given)

    def test_sources_may_have_words_that_look_like_keys(self):
        for given in ("remote:keys/data", "s3://bucket/tokens=1/x", BUCKET):
            assert mlperf.check_source("--source", given) == given

    @pytest.mark.parametrize("given", ["https://id:key@host", "host", "https://host?x=y", "https://h/\n", "file:///x"])
    def test_endpoints_are_urls_without_keys(self, given: str):
        with pytest.raises(RequestError, match="--endpoint") as raised:
            mlperf.check_endpoint(given)
        assert given not in str(raised.value), "it may have a key in it"

    @pytest.mark.parametrize("given", ["", "https://storage.eu-north1.nebius.cloud:443", "http://10.0.0.1/s3"])
    def test_endpoints_of_any_storage(self, given: str):
        assert mlperf.check_endpoint(given) == given

    @pytest.mark.parametrize("given", ["data", "/a b", "/a:b", "/a,b", "/a/../b", "/a/", "/$(id)", "/a\n"])
    def test_data_folders_are_paths_that_containers_can_mount(self, given: str):
        with pytest.raises(RequestError, match="--data"):
            mlperf.check_folder(given, GPT3)

    def test_without_a_folder_it_is_where_the_guide_mounts_it(self):
        assert (mlperf.check_folder("", STABLE_DIFFUSION), mlperf.check_folder("", GPT3)) == ("/mlperf-sd", "/gpt3")

    def test_no_script_of_this_project_has_a_key(self):
        for file in sorted((ROOT / "scripts/jobs/mlperf").iterdir()):
            assert not any(len(word) >= 32 and word.isalnum() for word in file.read_text().split())


class TestDiffusion:
    @pytest.mark.parametrize("one", [one for one in DIFFUSION_CONFIGS if one.nodes > 2], ids=lambda one: one.name)
    def test_each_configuration_runs_on_its_nodes(self, one):
        made = of_diffusion(large("nebius", 32), one.nodes, one.name)
        assert f"CONFIG=train_{one.name}.yaml" in made.body
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

    def test_recipe_options(self):
        options = of_diffusion(config("nebius"), 2).options
        assert (options["time"], options["cpus-per-task"], options["mem-per-cpu"]) == (240, 8, "4096M")


class TestGpt3:
    @pytest.mark.parametrize("one", GPT3_SETTINGS, ids=lambda one: f"{one.gpu}-{one.nodes}")
    def test_settings_of_the_catalog_fit(self, one):
        row = mlperf.gpu_partition(large("nebius", one.nodes), "", one.nodes)
        found = mlperf.gpt3_setting(row, one.nodes, Sizes())
        assert found.tensor * found.pipeline == 64
        assert one.batch % (one.nodes * 8 // 64) == 0
        assert found.batch == {8: 1536, 64: 2048}[one.nodes]

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


class TestLook:
    GOOD = f"folder\nwritable\ndf {3 * 1024**4} /mlperf-sd\n"

    def findings(self, text: str) -> dict[str, Level]:
        seen = mlperf.parse_data_folder(text)
        return {
            one.id: one.level for one in mlperf.data_findings(STABLE_DIFFUSION, "nebius", "alice", "/mlperf-sd", seen)
        }

    def test_a_good_folder_has_no_findings(self):
        assert self.findings(self.GOOD) == {}

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("none\n", {"mlperf-data-missing": Level.ERROR}),
            (GOOD.replace("writable\n", ""), {"mlperf-data-owner": Level.ERROR}),
            (GOOD.replace("/mlperf-sd", "/"), {"mlperf-data-root": Level.WARNING}),
            (f"folder\nwritable\ndf {1024**4} /mlperf-sd\n", {"mlperf-storage-size": Level.WARNING}),
        ],
    )
    def test_what_is_wrong_is_found(self, text: str, expected: dict[str, Level]):
        assert self.findings(text) == expected

    def test_the_line_finds_what_is_there(self, tmp_path: Path):
        data = tmp_path / "a b"
        (data / "x").mkdir(parents=True)
        line = mlperf.inspect_command(str(data), ["x", "y's", "/", "/nowhere"])
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        seen = mlperf.parse_data_folder(done.stdout)
        assert (seen.folder, seen.writable, seen.missing) == (True, True, ("y's", "/nowhere"))
        assert seen.size > 0
        assert seen.mount.startswith("/")
        gone = subprocess.run(
            ["bash", "-c", mlperf.inspect_command("/nowhere", [])], capture_output=True, text=True, check=True
        )
        assert not mlperf.parse_data_folder(gone.stdout).folder
