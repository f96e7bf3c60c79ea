"""What is on a cluster before a benchmark's job is submitted: its data folder, storage and files."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cluster.catalog.mlperf import GPT3, STABLE_DIFFUSION, STORAGE
from cluster.findings import Finding, Level

_GIB = 1024**3
_ROOM = 0.9
"""A file system of 2048 GiB has less than that for files."""
FILES = {
    STABLE_DIFFUSION: (
        "training/stable_diffusion/run_and_time.sh",
        "training/stable_diffusion/configs/train_02x08x08.yaml",
        "checkpoints/sd/512-base-ema.ckpt",
        "checkpoints/clip/open_clip_pytorch_model.bin",
        "checkpoints/inception/pt_inception-2015-12-05-6726825d.pth",
        "datasets/laion-400m/webdataset-moments-filtered/00000.tar",
        "datasets/laion-400m/webdataset-moments-filtered/00831.tar",
        "datasets/coco2014/val2014_30k.tsv",
        "datasets/coco2014/val2014_30k_stats.npz",
    ),
    GPT3: (
        "training/large_language_model/megatron-lm/pretrain_gpt.py",
        "dataset/bpe/vocab.json",
        "dataset/bpe/merges.txt",
        *(
            f"dataset/preprocessed_c4_spm/c4_en_{part}_c4_spm_text_document.{ending}"
            for part in ("6", "7", "validation_subset")
            for ending in ("bin", "idx")
        ),
    ),
}
"""What a run needs below the data folder (sources: the configurations of Stable Diffusion, run_gpt3.sh and
gpt3_blend.sh of GPT-3 in github.com/mlcommons/training)."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What was found."""

    folder: bool
    writable: bool
    mount: str
    """Where the file system is mounted that the folder is on."""
    size: int
    """Of that file system, in bytes."""
    missing: tuple[str, ...]
    """Of the files that were asked for."""


def line(data: str, files: Iterable[str]) -> str:
    """A line for the user's shell that looks. Paths in `files` are below `data`, or absolute."""
    paths = " ".join(shlex.quote(one) for one in files)
    return (
        f'd={shlex.quote(data)}; [ -d "$d" ] || {{ echo none; exit 0; }}; echo folder; [ ! -w "$d" ] || echo writable; '
        'df -B1 --output=size,target -- "$d" | tail -n 1 | sed "s/^/df /"; '
        f'for f in {paths}; do case $f in /*) p=$f ;; *) p=$d/$f ;; esac; [ -e "$p" ] || echo "missing $f"; done'
    )


def parse(text: str) -> Sight:
    """What `line` printed."""
    folder = writable = False
    mount, size, missing = "", 0, []
    for row in text.splitlines():
        word, _, rest = row.partition(" ")
        folder, writable = folder or row == "folder", writable or row == "writable"
        if word == "df":
            number, _, mount = rest.strip().partition(" ")
            size = int(number) if number.isdigit() else 0
        elif word == "missing":
            missing.append(rest)
    return Sight(folder=folder, writable=writable, mount=mount.strip(), size=size, missing=tuple(missing))


def findings(benchmark: str, stack: str, user: str, data: str, seen: Sight) -> Iterator[Finding]:
    """What is wrong with the data folder."""
    at, storage = f"--data {data}", STORAGE[benchmark]
    if not seen.folder:
        yield Finding(
            id="mlperf-data-missing", at=at, given="no such folder on the cluster",
            allowed=f"a folder on shared storage of {storage.size_gib} GiB; the guide mounts it at {storage.path}",
            todo=f"create it: ./hpc run {stack} --as root -- install -d -o {user} {data}",
        )  # fmt: skip
        return
    if not seen.writable:
        yield Finding(
            id="mlperf-data-owner", at=at, given=f"a folder that {user} can't write to",
            allowed="one that the user of the jobs can write to",
            todo=f"give it to them: ./hpc run {stack} --as root -- chown {user} {data}",
        )  # fmt: skip
    if seen.mount == "/":
        yield Finding(
            id="mlperf-data-root", level=Level.WARNING, at=at,
            what="the folder is on the file system of /, and not on one that was mounted for it",
            todo=f"mount storage of {storage.size_gib} GiB there, or name a folder on it with --data",
        )  # fmt: skip
    if seen.size < _ROOM * storage.size_gib * _GIB:
        yield Finding(
            id="mlperf-storage-size", level=Level.WARNING, at=at,
            what=f"its file system has {seen.size / _GIB:.0f} GiB, and the guide plans {storage.size_gib} GiB",
            todo="choose a larger one, if the data does not fit",
        )  # fmt: skip


def not_prepared(stack: str, name: str, data: str, missing: Sequence[str]) -> Finding:
    """The finding of files that a run needs and that are not there. `name`: the benchmark, as commands have it."""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return Finding(
        id="mlperf-not-prepared", at=f"--data {data}", given=f"without {missing[0]}{more}",
        allowed="a folder with code, data, checkpoint and image",
        todo=f"prepare it: ./hpc mlperf prepare {stack} {name} --data {data}",
    )  # fmt: skip
