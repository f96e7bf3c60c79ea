"""Pruning makes room, and never takes what a machine stands on."""

import json
import os
from pathlib import Path

import pytest

from components.local.host import images as base_images
from components.local.host.images import KEPT_SECONDS, note_root, prune, recipe

CURRENT = recipe("debian-12").digest


def image(images: Path, digest: str, *, idle: float = KEPT_SECONDS + 60, **meta: object) -> None:
    """Put an image into the cache, last used `idle` seconds ago."""
    (images / digest / "root").mkdir(parents=True)
    file = images / digest / "image.json"
    file.write_text(json.dumps({"base": "debian-12", "made": 1, **meta}))
    then = file.stat().st_mtime - idle
    os.utime(file, (then, then))


def machine(root: Path, text: str) -> Path:
    """A machine that does not run, by its record."""
    record = root / "stacks/lab/machines/m0/machine.json"
    record.parent.mkdir(parents=True)
    record.write_text(text)
    return record


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an old image."""
    monkeypatch.setenv("HPC_LOCAL_ROOT", str(tmp_path / "root"))
    image(tmp_path / "images", "old")
    return tmp_path / "images"


def test_an_image_that_no_machine_uses_is_removed(images: Path) -> None:
    said: list[str] = []
    assert prune(images, said.append) == ["old"]
    assert said == ["removing base image old (debian-12), which no machine uses"]
    assert list(images.iterdir()) == []


def test_images_that_a_new_stack_would_use_stay(images: Path) -> None:
    image(images, CURRENT)
    podman = recipe("debian-13", ["podman"]).digest
    image(images, podman, base="debian-13", own=["podman"])
    assert prune(images, print) == ["old"]


def test_an_image_that_was_used_within_a_day_stays(images: Path) -> None:
    """Another version of this program may be about to create machines of it."""
    image(images, "recent", idle=60)
    assert prune(images, print) == ["old"]


@pytest.mark.parametrize("place", ["images/..", "root", "elsewhere"])
def test_the_image_of_a_stopped_machine_stays_whatever_root_it_is_under(images: Path, place: str) -> None:
    root = (images.parent / place).resolve()
    machine(root, json.dumps({"image": "old"}))
    note_root(images, root)
    assert prune(images, print) == []


def test_nothing_is_removed_where_a_machines_record_cannot_be_read(images: Path) -> None:
    machine(images.parent / "root", "{")
    with pytest.raises(ValueError, match="Expecting"):
        prune(images, print)
    assert (images / "old").exists()


def test_a_root_that_is_gone_uses_nothing(images: Path) -> None:
    note_root(images, images.parent / "gone")
    assert prune(images, print) == ["old"]
    assert list((images / ".roots").iterdir()) == []


def test_building_an_image_prunes_the_others(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(_wanted: object, command: list[str], *_: object) -> None:
        (Path(command[0]) / "root").mkdir()

    monkeypatch.setattr(base_images, "DISK_NEEDED", 0)
    monkeypatch.setattr(base_images, "_command", lambda _wanted, work, **_more: [str(work)])
    monkeypatch.setattr(base_images, "_run", built)
    base_images.ensure_image("debian-12", images, print)
    assert {path.name for path in images.iterdir() if not path.name.startswith(".")} == {CURRENT}
