"""Scripts of prologs and epilogs.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.change import PARTITION, Changes, partition

SHA = "0" * 64
WITHOUT_EXPORTS = "5c8e9bed78ba5e3b3ba3c832f02860e7fb4b40cc65b1ca6a3305590477ad5fd3"
TEXT = "#!/bin/sh\ntrue\n"


def script(**keys: object) -> Changes:
    return {"slurm": {"scripts": [{"name": "check", **keys}]}}


def rxdm(**keys: object) -> Changes:
    return {"slurm": {"rxdm": {"partitions": ["cpu"], **keys}}}


def warm_up(**keys: object) -> Changes:
    return {"slurm": {"warm_up": keys}}


CASES = {
    "a warm-up of an unknown partition": (
        warm_up(partitions=["gpu"]),
        "slurm.warm_up.partitions[0]",
        "gpu",
        "a partition that exists",
        "define gpu",
    ),
    "a warm-up of a partition twice": (
        warm_up(partitions=["cpu", "cpu"]),
        "slurm.warm_up.partitions",
        "cpu, cpu",
        "each partition once",
        "remove the second cpu",
    ),
    "an image twice": (
        warm_up(containers=["alpine", "alpine"]),
        "slurm.warm_up.containers",
        "alpine, alpine",
        "each image once",
        "remove the second alpine",
    ),
    "an image with its protocol": (
        warm_up(containers=["docker://alpine"]),
        "slurm.warm_up.containers[0]",
        "docker://alpine",
        "an image as registries name it",
        "without docker://",
    ),
    "a warm-up of no time": (
        warm_up(containers=["alpine"], seconds=5),
        "slurm.warm_up.seconds",
        "5",
        "60",
        "",
    ),
    "a script without a source": (script(), "slurm.scripts[0]", "{name: check}", "exactly one of", "say what is in it"),
    "a script with two sources": (
        script(file="a.sh", text=TEXT),
        "slurm.scripts[0]",
        "name: check",
        "exactly one of file, url and text",
        "keep one of file and text",
    ),
    "an address without a hash": (
        script(url="https://example.org/check.sh"),
        "slurm.scripts[0]",
        "https://example.org/check.sh",
        "sha256 beside url",
        "sha256sum",
    ),
    "a hash without an address": (
        script(text=TEXT, sha256=SHA),
        "slurm.scripts[0]",
        "name: check",
        "sha256 beside url only",
        "remove sha256",
    ),
    "a hash that is none": (
        script(url="https://example.org/check.sh", sha256="abc"),
        "slurm.scripts[0].sha256",
        "abc",
        "64 of 0-9 and a-f",
        "sha256sum",
    ),
    "an address that others can change on the way": (
        script(url="http://example.org/check.sh", sha256=SHA),
        "slurm.scripts[0].url",
        "http://example.org/check.sh",
        "https://",
        "write an https address",
    ),
    "an address with a password": (
        script(url="https://me:secret@example.org/check.sh", sha256=SHA),
        "slurm.scripts[0].url",
        "example.org",
        "without user and password",
        "https",
    ),
    "an address that is none": (
        script(url="https://example.org:port/check.sh", sha256=SHA),
        "slurm.scripts[0].url",
        "https://example.org:port/check.sh",
        "https://HOST/PATH",
        "as a browser shows it",
    ),
    "a script's name with a path": (
        {"slurm": {"scripts": [{"name": "../check", "text": TEXT}]}},
        "slurm.scripts[0].name",
        "../check",
        "e.g. 10-gpu-check",
        "without path",
    ),
    "a script with the name of ours": (
        {"slurm": {"scripts": [{"name": "rxdm", "text": TEXT}]}},
        "slurm.scripts[0].name",
        "rxdm",
        "any name but rxdm",
        "`slurm.rxdm`",
    ),
    "a script without an interpreter": (
        script(text="true\n"),
        "slurm.scripts[0].text",
        "true",
        "first line names its interpreter",
        "#!/bin/bash",
    ),
    "a script for a program that no machine has": (
        script(text="#!/usr/bin/pyhton3\n"),
        "slurm.scripts[0].text",
        "a script for '/usr/bin/pyhton3'",
        "by /usr/bin/env: sh, bash",
        "write it for one of these",
    ),
    "a script for a program that env does not find": (
        script(text="#!/usr/bin/env -S node --x\n"),
        "slurm.scripts[0].text",
        "a script for 'node'",
        "python3",
        "write it for one of these",
    ),
    "a script with line ends of Windows": (
        script(text="#!/bin/bash\r\ntrue\r\n"),
        "slurm.scripts[0].text",
        "a script for '/bin/bash\\r'",
        "bash",
        "line feed alone",
    ),
    "a script's file outside": (script(file="../a.sh"), "slurm.scripts[0].file", "../a.sh", "scripts/check.sh", ".."),
    "a script that runs at another time": (
        script(text=TEXT, on=["task_prolog"]),
        "slurm.scripts[0].on[0]",
        "task_prolog",
        "prolog, epilog",
        "write prolog",
    ),
    "a script that never runs": (
        script(text=TEXT, on=[]),
        "slurm.scripts[0]",
        "on: []",
        "prolog, epilog or both",
        "remove `on`",
    ),
    "a script that runs twice": (
        script(text=TEXT, on=["prolog", "prolog"]),
        "slurm.scripts[0]",
        "name: check",
        "once each",
        "remove the second",
    ),
    "a script twice in a list": (
        {"slurm": {"scripts": [{"name": "check", "text": TEXT}, {"name": "check", "text": TEXT}]}},
        "slurm.scripts[1].name",
        "check",
        "each name once",
        "remove the second one",
    ),
    "one name for two scripts": (
        {
            **script(text=TEXT),
            "partitions": {"cpu": {**PARTITION, "scripts": [{"name": "check", "text": "#!/bin/sh\nfalse\n"}]}},
        },
        "partitions.cpu.scripts[0].name",
        "check",
        "the same script wherever the name stands",
        "rename one",
    ),
    "a prolog beside our own": (
        {"slurm": {"scripts": [{"name": "check", "text": TEXT}], "extra": {"prolog": "/usr/local/prolog"}}},
        "slurm.extra.prolog",
        "/usr/local/prolog",
        "only in a stack without scripts",
        "`slurm.scripts`",
    ),
    "a script at a place that has none": (
        partition(script=[{"name": "check", "text": TEXT}]),
        "partitions.cpu.script",
        "script",
        "scripts",
        "write `scripts:`",
    ),
    "rxdm in no partition": (
        {"slurm": {"rxdm": {}}},
        "slurm.rxdm.partitions",
        "nothing",
        "e.g. [a3mega]",
        "add `partitions:`",
    ),
    "rxdm in a partition that is not there": (
        {"slurm": {"rxdm": {"partitions": ["gpu"]}}},
        "slurm.rxdm.partitions[0]",
        "gpu",
        "a partition that exists: cpu",
        "write cpu",
    ),
    "rxdm twice in a partition": (
        {"slurm": {"rxdm": {"partitions": ["cpu", "cpu"]}}},
        "slurm.rxdm.partitions",
        "cpu, cpu",
        "each partition once",
        "remove the second cpu",
    ),
    "rxdm from two places": (
        rxdm(url="https://example.org/rxdm", sha256=SHA, file="rxdm"),
        "slurm.rxdm",
        "partitions: [cpu]",
        "file or url",
        "remove one",
    ),
    "rxdm from an unpinned place": (
        rxdm(url="https://example.org/rxdm"),
        "slurm.rxdm",
        "partitions: [cpu]",
        "sha256 beside url",
        "sha256sum",
    ),
    "a version of rxdm that is of no use": (
        rxdm(url="https://example.org/rxdm", sha256=WITHOUT_EXPORTS),
        "slurm.rxdm.sha256",
        "the version of 2024-05-31",
        "writes the exports",
        "for the one that goes with the image's driver",
    ),
    "a package with its version": (
        {"image": {"packages": ["podman", "podman=5.4.2"]}},
        "image.packages[1]",
        "podman=5.4.2",
        "2 to 100 of a-z, 0-9",
        "without version",
    ),
    "a package that apt-get would remove": (
        {"image": {"packages": ["podman-"]}},
        "image.packages[0]",
        "podman-",
        "no - last",
        "apt-cache search",
    ),
    "two packages in one": (
        {"image": {"packages": ["podman,skopeo"]}},
        "image.packages[0]",
        "podman,skopeo",
        "2 to 100 of a-z, 0-9",
        "one package in each place",
    ),
    "a system that nothing is known of": (
        {"image": {"presents_as": "ubuntu-2604"}},
        "image.presents_as",
        "ubuntu-2604",
        "ubuntu-2204",
        "write ubuntu-2",
    ),
}
