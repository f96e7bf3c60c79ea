"""Pruning makes room, and never takes what a machine stands on."""

import json
from pathlib import Path

import pytest

from components.local.host import images as base_images
from components.local.host.images import recipe
from components.local.host.locks import locked
from components.local.host.paths import HostError

CURRENT = recipe("debian-12").digest


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A current image, an old one, an old one in use by lab/m0, and half a one."""
    folder = tmp_path / "images"
    for made, digest in enumerate(("old", "used", CURRENT)):
        (folder / digest / "root").mkdir(parents=True)
        (folder / digest / "image.json").write_text(json.dumps({"base": "debian-12", "made": made}))
    (folder / ".build-x").mkdir()
    record = tmp_path / "stacks/lab/machines/m0/machine.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"image": "used"}))
    return folder


def test_an_image_with_packages_of_a_stack_is_listed_with_them_and_stays(images: Path) -> None:
    """A stack that asks for the same packages would use it."""
    digest = recipe("debian-13", ["podman"]).digest
    (images / digest / "root").mkdir(parents=True)
    (images / digest / "image.json").write_text(json.dumps({"base": "debian-13", "own": ["podman"], "made": 9}))
    listed = base_images.cached_images(images.parent, images)
    assert {image.digest: image.packages for image in listed} == {
        digest: ("podman",),
        CURRENT: (),
        "used": (),
        "old": (),
    }
    assert [image.digest for image in listed if image.current] == [digest, CURRENT]
    said: list[str] = []
    assert base_images.prune(images.parent, images, said.append) == ["old"]
    assert base_images.prune(images.parent, images, said.append, current=True) == [digest, CURRENT]
    assert f"removing base image {digest} (debian-13 podman)" in said


def test_the_cache_is_listed_newest_first(images: Path) -> None:
    listed = base_images.cached_images(images.parent, images)
    assert [(image.digest, image.current, image.users) for image in listed] == [
        (CURRENT, True, ()),
        ("used", False, ("lab/m0",)),
        ("old", False, ()),
    ]


def test_old_images_and_halves_go(images: Path) -> None:
    said: list[str] = []
    assert base_images.prune(images.parent, images, said.append) == ["old"]
    assert sorted(path.name for path in images.iterdir()) == sorted([".build.lock", CURRENT, "used"])
    assert said == ["removing base image old (debian-12)"]


def test_the_current_one_goes_only_when_asked_for(images: Path) -> None:
    assert set(base_images.prune(images.parent, images, print, current=True)) == {"old", CURRENT}


def test_not_while_one_is_being_made(images: Path) -> None:
    with locked(images / ".build.lock"), pytest.raises(HostError, match="is being built"):
        base_images.prune(images.parent, images, print)


def test_no_cache_is_an_empty_one(tmp_path: Path) -> None:
    assert base_images.prune(tmp_path, tmp_path / "images", print) == []
    assert base_images.cached_images(tmp_path, tmp_path / "images") == []
