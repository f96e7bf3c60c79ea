"""The image of machines on Google Cloud: order of the steps, their pins, and inputs of the image's name."""

import dataclasses
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.catalog import IMAGES
from cluster.catalog.recipes import RECIPES, SNAPSHOT, Download
from cluster.findings import ConfigError
from cluster.load import parse
from cluster.platforms.gcp import image
from cluster.platforms.gcp.defaults import BASE_IMAGES
from cluster.platforms.gcp.image import (
    FOLDER,
    LARGEST,
    bake_script,
    content,
    digest,
    parameters,
    recipe,
    steps,
    trial_script,
    versions,
)
from cluster.platforms.local.rehearsal import stood_in
from tests.clouds import A3, EXASCALER, MANAGED, google, unchecked
from tests.cluster.shell import shellcheck
from tests.cluster.stacks import ROOT, STACKS, config, load

GCP = [name for name in STACKS if config(name).platform == "gcp"]
STEPS = sorted(FOLDER.glob("*/[0-9]*.sh"), key=lambda path: path.name)
A3MEGA = {"nodesets": {"a3": A3}, "partitions": {"main": {"nodesets": ["a3"], "default": True}}}


def a3mega(**changes):
    """A cluster of A3 Mega nodes with EXAScaler."""
    return google(**{**A3MEGA, "storage": {"lustre": EXASCALER}, **changes})


def names(cluster):
    """Names of its steps, in order."""
    return [step.name for step in steps(cluster)]


@pytest.mark.parametrize("stack", GCP)
def test_every_stack_has_the_steps_and_pins_that_were_reviewed(stack, golden):
    cluster = config(stack)
    lines = [*(f"{name}={value}" for name, value in parameters(cluster).items()), "", *names(cluster)]
    golden(f"gcp/install-{stack}.txt", "\n".join([recipe(cluster).image, "", *lines]) + "\n")


def test_the_recipes_are_as_reviewed(golden):
    rows = {"/".join(key): dataclasses.asdict(row) for key, row in RECIPES.items()}
    golden("gcp/recipes.json", json.dumps(rows, indent=1, sort_keys=True) + "\n")


class TestOrder:
    def test_own_steps_run_before_gcloud_the_tests_and_the_clean_up_only(self):
        own = {"provision": [{"name": name, "text": "#!/bin/sh\n"} for name in ("b-tools", "a-data")]}
        assert names(a3mega(image=own))[-7:] == [
            "56-hostname", "70.00-b-tools", "70.01-a-data", "80-gcloud", "90-smoke", "92-image", "95-clean-up",
        ]  # fmt: skip

    def test_every_step_is_used_by_some_image(self):
        t4 = {"gpu": {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}}
        noble = {"image": {"base": "ubuntu-2404"}, "nodesets": t4, "partitions": {"main": {"nodesets": ["gpu"]}}}
        jq = {"packages": ["jq"]}
        bucket = {"lustre": MANAGED, "buckets": [{"name": "my-data", "mount": "/gcs"}]}
        ultra = google(nodesets={"a3": {"machine_type": "a3-ultragpu-8g"}}, partitions=A3MEGA["partitions"])
        used = {
            *names(a3mega()),
            *names(ultra),
            *names(a3mega(storage=bucket, image=jq, monitoring={})),
            *names(unchecked(**noble)),
        }
        booting = {"91-boot"}  # on the machine that tries the finished image
        assert used | booting == {path.stem for path in STEPS}
        assert "91-boot" in trial_script(a3mega())

    def test_images_without_gpus_have_no_steps_of_nvidia(self):
        found = names(google())
        assert not {"20-nvidia", "22-containers", "24-dcgm", "26-dmabuf", "28-aperture", "50-localssd"} & set(found)
        assert "30-slurm" in found

    def test_old_gpus_get_the_closed_kernel_modules(self):
        gpu = {"gpu": {"machine_type": "n1-standard-4", "gpus": {"type": "v100", "count": 1}}}
        cluster = google(nodesets=gpu, partitions={"main": {"nodesets": ["gpu"], "default": True}})
        assert "DRIVER_FLAVOUR" not in parameters(cluster)


class TestPins:
    @pytest.mark.parametrize("row", RECIPES.values(), ids=lambda row: f"{row.version}-{row.base}-{row.lustre}")
    def test_a_row_pins_commits_hashes_one_image_and_a_kernel_of_its_client(self, row):
        assert row.base in BASE_IMAGES
        assert not row.slurm or set(row.slurm) == set(IMAGES[row.base].slurm_versions)
        sources = (row.gve, row.client, row.enroot, row.pyxis, row.apptainer, *row.slurm.values())
        for source in (source for source in sources if source):
            assert source.url.startswith("https://")
            if isinstance(source, Download):
                assert re.fullmatch(r"[0-9a-f]{64}", source.sha256)
                assert source.version in source.url.replace("-", ".")
            else:
                assert re.fullmatch(r"[0-9a-f]{40}", source.commit)
        assert re.fullmatch(r"projects/[a-z-]+/global/images/[a-z0-9-]+-v\d{8}[a-z]?", row.image)  # no family
        if row.lustre == "exascaler":
            assert (5, 15) <= tuple(map(int, row.kernel.split(".")[:2])) <= (6, 2)
        assert row.kernel or row.lustre == "none"

    def test_steps_download_only_pinned_files(self):
        # A URL stands only where a key's fingerprint is compared, or in a parameter that has a hash beside it.
        allowed = re.compile(r"(repository\b|_KEY=|insteadOf|\"deb \[|'deb \[|signed-by|METADATA=)")
        for path in [*STEPS, FOLDER / "library.sh", FOLDER / "runner.sh"]:
            for line in path.read_text().splitlines():
                if re.search(r"\b(https?|git|ftp)://", line):
                    assert allowed.search(line) or "fingerprint" in line.lower(), f"{path.name}: {line}"

    @pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
    def test_pinned_packages_are_held_and_only_named_keys_are_trusted(self, path):
        text = path.read_text()
        assert "trusted=yes" not in text
        assert "--allow-unauthenticated" not in text
        for word in ("linux-image-", "nvidia-dkms-", "lustre-client-modules-", "slurmd", "datacenter-gpu-manager"):
            if re.search(rf"^\s*(packages|names=\(|of\+=\(|name=).*{word}", text, re.MULTILINE):
                assert re.search(r"^hold ", text, re.MULTILINE), f"{path.name} installs {word}... and does not hold it"


class TestName:
    @pytest.mark.parametrize(
        "changes",
        [
            {"slurm": {"version": "25.11"}},
            {"storage": {"lustre": MANAGED}},
            {"storage": {"lustre": EXASCALER, "buckets": [{"name": "my-data", "mount": "/gcs"}]}},
            {"image": {"builder": {"size_gb": 150}}},
            {"image": {"provision": [{"name": "ours", "text": "#!/bin/sh\n"}]}},
            {"image": {"snapshot": "20261115T000000Z"}},
            {"nodesets": {"a3": {"machine_type": "n2-standard-2"}}},
        ],
    )
    def test_contents_change_the_name(self, changes):
        assert digest(a3mega(**changes)) != digest(a3mega())
        assert content(a3mega(**changes)) != content(a3mega())

    @pytest.mark.parametrize(
        "changes",
        [
            {"nodesets": {"a3": {**A3, "count": 9}}},
            {"login": {"count": 3}},
            {"partitions": {"other": {"nodesets": ["a3"], "default": True}}},
            {"users": [{"name": "alice", "uid": 2001}]},
            {"image": {"builder": {"machine_type": "e2-standard-8", "minutes": 200}}},
            {"image": {"snapshot": SNAPSHOT}},
        ],
    )
    def test_other_settings_do_not_change_the_name(self, changes):
        assert re.fullmatch(r"[0-9a-f]{12}", digest(a3mega()))
        assert digest(a3mega(**changes)) == digest(a3mega())
        assert content(a3mega(**changes)) == content(a3mega())

    def test_the_text_of_a_step_in_a_file_changes_the_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(image, "PROJECT", tmp_path)
        cluster = a3mega(image={"provision": [{"name": "ours", "file": "ours.sh"}]})
        found = []
        for text in ("#!/bin/sh\necho 1\n", "#!/bin/sh\necho 2\n"):
            (tmp_path / "ours.sh").write_text(text)
            found.append(digest(cluster))
        assert len(set(found)) == 2

    def test_labels_are_the_versions_of_the_contents(self):
        assert versions(a3mega()) == {
            "recipe": "2026-11", "snapshot": "20261121t000000z", "kernel": "5-15-0-1122-gcp", "driver": "580-95-05",
            "cuda": "12-8-0", "slurm": "26-05-5", "lustre": "2-15-8",
        }  # fmt: skip
        for stack in GCP:
            assert all(re.fullmatch(r"[a-z0-9_-]{1,63}", value) for value in versions(config(stack)).values())


def changed_step(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Our own steps, as a newer program would have them."""
    read = image._read
    monkeypatch.setattr(image, "_read", lambda name: change(read(name)) if name == "slurm/30-slurm.sh" else read(name))


class TestWhatANewerProgramChanges:
    def test_a_changed_comment_does_not_change_the_name(self, monkeypatch: pytest.MonkeyPatch):
        before = digest(a3mega())
        changed_step(monkeypatch, lambda text: text.replace("\n# ", "\n\n    # Said better: ", 1))
        assert digest(a3mega()) == before

    def test_a_changed_command_changes_the_name_and_not_the_content(self, monkeypatch: pytest.MonkeyPatch):
        before = digest(a3mega()), content(a3mega())
        changed_step(monkeypatch, lambda text: text + "true\n")
        assert digest(a3mega()) != before[0]
        assert content(a3mega()) == before[1]

    @pytest.mark.parametrize("path", [*STEPS, FOLDER / "library.sh"], ids=lambda path: path.stem)
    def test_only_comments_and_blank_lines_are_left_out_of_the_hash(self, path: Path, tmp_path: Path):
        text = path.read_text()
        kept = image.without_comments(text)
        assert kept.startswith("#!") or path.stem == "library"
        assert [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")] == [
            line for line in kept.splitlines() if not line.strip().startswith("#!")
        ]
        (tmp_path / "step.sh").write_text(kept)
        assert subprocess.run(["bash", "-n", tmp_path / "step.sh"], check=False).returncode == 0

    def test_every_character_of_an_own_step_is_hashed(self):
        texts = ["#!/bin/sh\n# one\n", "#!/bin/sh\n# two\n"]
        clusters = [a3mega(image={"provision": [{"name": "ours", "text": text}]}) for text in texts]
        assert content(clusters[0]) != content(clusters[1])


class TestProgram:
    @pytest.mark.parametrize("stack", GCP)
    def test_the_program_passes_shellcheck_and_fits_into_metadata(self, stack, tmp_path: Path):
        text = bake_script(config(stack))
        assert len(text.encode()) < LARGEST / 2
        (tmp_path / "install.sh").write_text(text)
        assert shellcheck(tmp_path / "install.sh") == ""

    def test_parameters_and_own_steps_reach_bash_as_they_are(self):
        text = "#!/bin/bash\ncat <<'EOF'\n$HOME `x` \\\nEOF\n"
        program = bake_script(a3mega(image={"provision": [{"name": "odd", "text": text}]}))
        assert text in program

    def test_a_step_by_url_is_fetched_with_its_hash(self):
        own = {"name": "ours", "url": "https://example.org/a.sh?b='c'", "sha256": "a" * 64}
        program = bake_script(a3mega(image={"provision": [own]}))
        assert f"""fetch 'https://example.org/a.sh?b='"'"'c'"'"'' {"a" * 64} """ in program

    def test_a_missing_file_is_an_error_with_its_place(self):
        cluster = a3mega(image={"provision": [{"name": "ours", "file": "gone.sh"}]})
        with pytest.raises(ConfigError, match=r"hpc:cluster.image.provision\[0\].file") as error:
            bake_script(cluster)
        assert "No such file" in str(error.value)

    def test_a_program_too_large_for_metadata_is_refused(self):
        text = "#!/bin/sh\n# " + "x" * LARGEST
        with pytest.raises(ConfigError, match="at most 256 KiB in all"):
            bake_script(a3mega(image={"provision": [{"name": "large", "text": text}]}))

    def test_a_lustre_without_a_client_for_the_system_is_refused(self):
        with pytest.raises(ConfigError, match="write `base: ubuntu-2204`"):
            bake_script(unchecked(image={"base": "ubuntu-2404"}, storage={"lustre": MANAGED}))


class TestPackages:
    """`image.packages`: part of the image, and of no image that does without."""

    def test_the_order_of_packages_does_not_change_the_image(self):
        one, other = (a3mega(image={"packages": names}) for names in (["podman", "crun"], ["crun", "podman", "crun"]))
        assert digest(one) == digest(other) != digest(a3mega())
        assert content(one) == {**content(a3mega()), "packages": "crun podman"}

    @pytest.mark.parametrize("bake", [True, False])
    def test_a_step_installs_them_before_the_stacks_own(self, bake: bool):
        own = [{"name": "ours", "text": "#!/bin/sh\n"}]
        found = a3mega(image={"bake": bake, "packages": ["podman", "crun"], "provision": own})
        names = [step.name for step in steps(found)]
        assert names.index("60-packages") == names.index("70.00-ours") - 1
        assert parameters(found)["IMAGE_PACKAGES"] == "crun podman"
        assert "export IMAGE_PACKAGES='crun podman'" in bake_script(found)

    def test_without_packages_no_step_uses_the_parameter(self):
        assert "60-packages" not in {step.name for step in steps(a3mega())}
        assert "IMAGE_PACKAGES" not in bake_script(a3mega())
        using = [path.stem for path in FOLDER.rglob("*.sh") if re.search("IMAGE_PACKAGES", path.read_text())]
        assert using == ["60-packages"]

    def test_a_rehearsal_reports_that_packages_are_not_installed(self):
        assert any(
            "packages podman: not installed" in line for line in stood_in(a3mega(image={"packages": ["podman"]}))
        )
        assert not any("packages" in line for line in stood_in(a3mega()))

    def test_nebius_refuses_packages(self):
        settings = load("nebius")
        settings["hpc:cluster"]["image"] = {"packages": ["podman"]}
        with pytest.raises(ConfigError) as caught:
            parse(settings)
        assert "packages is for local machines and Google Cloud" in str(caught.value)


def test_the_documentation_has_the_versions():
    text = (
        (ROOT / "docs/reference/google-cloud-image.md")
        .read_text()
        .partition("## What is in it")[2]
        .partition("\n## ")[0]
    )
    for row in RECIPES.values():
        sources = [row.gve, row.client, row.enroot, row.pyxis, row.apptainer, *row.slurm.values()]
        drivers = [driver.version for driver in (row.driver, row.rxdm_driver) if driver]
        said = [row.kernel, *drivers, row.dcgm, row.container_toolkit, row.gcsfuse, row.cuda.split("-")[0]]
        said += [source.version for source in sources if source]
        assert [version for version in said if version not in text and version != "distribution"] == []
