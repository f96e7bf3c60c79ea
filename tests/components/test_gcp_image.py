"""Images: baked, existing and public ones, and the inputs of a bake."""

from typing import Any

import pulumi
import pytest

from cluster.config import ClusterConfig
from components.gcp.baked_image import BakeProvider
from components.gcp.deploy import MachineImage
from components.gcp.network import GoogleNetwork
from tests.clouds import A3, EXASCALER, google
from tests.gcp.baking import LONG_LIMITS
from tests.harness import Recording, deploy
from tests.lab.google.compute import FakeCompute

BAKED = "pulumi-python:dynamic/gcp:BakedImage"
EMAIL = "cloud-bake@my-project.iam.gserviceaccount.com"
JAMMY = {"base": "ubuntu-2204"}


def made(config: ClusterConfig, **options: Any) -> Recording:
    def program() -> None:
        network = GoogleNetwork("cloud-network", config)
        image = MachineImage("cloud-image", config, network, EMAIL, [network.ready])
        pulumi.export("image", image.self_link)
        pulumi.export("baked", image.baked)

    return deploy(program, **options)


def bake_of(**changes: Any) -> dict[str, Any]:
    (one,) = made(google(**{"image": JAMMY, **changes})).all(BAKED)
    return one.inputs


class TestThreeWays:
    def test_a_baked_image(self):
        recording = made(google(image=JAMMY))
        (one,) = recording.all(BAKED)
        assert recording.outputs["image"] == f"projects/my-project/global/images/{one.inputs['image']}"
        assert recording.outputs["baked"] is True

    @pytest.mark.parametrize("named", ["ours-0123456789ab", "projects/shared/global/images/ours-0123456789ab"])
    def test_an_existing_image(self, named: str):
        recording = made(google(image={**JAMMY, "name": named}))
        project = "shared" if "/" in named else "my-project"
        assert recording.outputs["image"] == f"projects/{project}/global/images/ours-0123456789ab"
        assert recording.outputs["baked"] is False
        assert recording.all(BAKED) == []

    def test_the_public_one_where_machines_install_at_their_first_boot(self):
        recording = made(google(image={**JAMMY, "bake": False}))
        assert recording.outputs["image"].startswith("projects/ubuntu-os-cloud/global/images/ubuntu-2204-jammy-v")
        assert recording.all(BAKED) == []


class TestBake:
    def test_the_bake_starts_from_the_recipes_image(self):
        inputs = bake_of()
        assert inputs["source_image"].startswith("projects/ubuntu-os-cloud/global/images/ubuntu-2204-jammy-v")
        assert inputs["script"].startswith("#!/bin/bash\n")
        assert (inputs["project"], inputs["zone"], inputs["storage_location"]) == (
            "my-project",
            "us-central1-a",
            "us-central1",
        )
        assert inputs["service_account"] == EMAIL
        assert inputs["tag"] == "cloud"

    def test_the_image_is_labelled_with_its_versions(self):
        labels = bake_of(nodesets={"gpu": A3}, storage={"lustre": EXASCALER})["labels"]
        assert {"kernel", "driver", "cuda", "slurm", "lustre", "hpc-cluster"} <= set(labels)
        assert [value for value in labels.values() if not value or not set(value) <= set(LABEL)] == []

    def test_names_are_short_enough_for_the_longest_cluster(self):
        inputs = bake_of(name="a" * 20)
        assert inputs["image"] == f"{'a' * 20}-{inputs['digest']}"
        assert len(f"{inputs['image']}-builder") <= 63

    def test_the_builder_waits_for_cloud_nat(self):
        recording = made(google(image=JAMMY))
        (one,) = recording.all(BAKED)
        (nat,) = recording.all("gcp:compute/routerNat:RouterNat")
        assert recording.waits_for(one, nat)

    def test_leftovers_are_deleted_after_the_bake_and_before_the_network(self):
        recording = made(google(image=JAMMY))
        (bake,), (leftovers,) = recording.all(BAKED), recording.all("pulumi-python:dynamic/gcp:BakeLeftovers")
        (subnetwork,) = recording.all("gcp:compute/subnetwork:Subnetwork")
        assert recording.waits_for(bake, leftovers)
        assert recording.waits_for(leftovers, subnetwork)

    def test_an_image_is_not_protected(self):
        (one,) = made(google(image=JAMMY, deletion_protection=True)).all(BAKED)
        assert not one.request.protect
        # Nodes are made from it until the next one is there.
        assert not one.request.deleteBeforeReplace

    def test_the_provider_bakes_the_components_inputs(self):
        with FakeCompute() as fake:
            inputs: dict[str, Any] = {**bake_of(nodesets={"gpu": A3}), "endpoint": fake.endpoint, "pace": LONG_LIMITS}
            made = BakeProvider().create(inputs)
            (image,) = fake.world.images.values()
            builder, _trial = [c.body for c in fake.calls if c.method == "POST" and c.path.endswith("/instances")]
        assert made.id == f"projects/my-project/global/images/{image['name']}"
        assert image["labels"]["kernel"] == inputs["labels"]["kernel"]
        disk = builder["disks"][0]["initializeParams"]
        assert (disk["sourceImage"], disk["diskSizeGb"]) == (inputs["source_image"], "200")
        assert {"key": "startup-script", "value": inputs["script"]} in builder["metadata"]["items"]

    def test_a_custom_endpoint_is_used_by_the_bake(self):
        config = google(image=JAMMY)

        def program() -> None:
            pulumi.runtime.set_all_config({"gcp:computeCustomEndpoint": "https://compute.example.com/compute/v1/"})
            network = GoogleNetwork("cloud-network", config)
            MachineImage("cloud-image", config, network, EMAIL)

        (one,) = deploy(program).all(BAKED)
        assert one.inputs["endpoint"] == "https://compute.example.com/compute/v1/"


LABEL = "abcdefghijklmnopqrstuvwxyz0123456789_-"
