"""`image.packages`: part of the image of machines on Google Cloud, and of no image that does without."""

import re

import pytest

from cluster.findings import ConfigError
from cluster.load.parse import parse
from cluster.platforms.gcp.image import bake_script, content, digest, parameters, steps
from cluster.platforms.gcp.install_program import FOLDER
from cluster.platforms.local.rehearsal import stood_in
from tests.clouds import A3, EXASCALER, google
from tests.cluster import stacks


def a3mega(**changes):
    """A cluster of A3 Mega nodes with EXAScaler."""
    partitions = {"main": {"nodesets": ["a3"], "default": True}}
    return google(nodesets={"a3": A3}, partitions=partitions, storage={"lustre": EXASCALER}, **changes)


def test_their_order_is_no_other_image():
    one, other = (a3mega(image={"packages": names}) for names in (["podman", "crun"], ["crun", "podman", "crun"]))
    assert digest(one) == digest(other) != digest(a3mega())
    assert content(one) == {**content(a3mega()), "packages": "crun podman"}


@pytest.mark.parametrize("bake", [True, False])
def test_a_step_installs_them_before_the_stacks_own(bake: bool):
    own = [{"name": "ours", "text": "#!/bin/sh\n"}]
    found = a3mega(image={"bake": bake, "packages": ["podman", "crun"], "provision": own})
    names = [step.name for step in steps(found)]
    assert names.index("60-packages") == names.index("70.00-ours") - 1
    assert parameters(found)["IMAGE_PACKAGES"] == "crun podman"
    assert "export IMAGE_PACKAGES='crun podman'" in bake_script(found)


def test_without_them_no_step_knows_of_them():
    assert "60-packages" not in {step.name for step in steps(a3mega())}
    assert "IMAGE_PACKAGES" not in bake_script(a3mega())
    using = [path.stem for path in FOLDER.rglob("*.sh") if re.search("IMAGE_PACKAGES", path.read_text())]
    assert using == ["60-packages"]


def test_a_rehearsal_says_that_it_has_none_of_them():
    assert any("packages podman: not installed" in line for line in stood_in(a3mega(image={"packages": ["podman"]})))
    assert not any("packages" in line for line in stood_in(a3mega()))


def test_nebius_refuses_them():
    settings = stacks.load("nebius")
    settings["hpc:cluster"]["image"] = {"packages": ["podman"]}
    with pytest.raises(ConfigError) as caught:
        parse(settings)
    assert "packages is for local machines and Google Cloud" in str(caught.value)
