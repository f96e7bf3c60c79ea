"""Partitions, settings and scripts of Slurm that are refused.

Each case: what is replaced in a small cluster, and words of its error, `where | given | allowed | to do`.
"""

from tests.cluster.stacks import PARTITION, Changes, extra, nodeset, partition

PARTITIONS = {
    "a partition naming no nodeset": (partition(nodesets=["gpu"]), "partitions.cpu.nodesets[0] | gpu | cpu | define"),
    "a nodeset nearly named": (partition(nodesets=["cup"]), "partitions.cpu.nodesets[0] | cup | cpu | write cpu"),
    "a partition without nodesets": (partition(nodesets=[]), "partitions.cpu.nodesets | [] | at least 1 | add one"),
    "a nodeset named twice": (partition(nodesets=["cpu", "cpu"]), "partitions.cpu.nodesets | cpu, cpu | once | remove"),
    "two defaults": (
        {"partitions": {"cpu": PARTITION, "gpu": PARTITION}},
        "partitions.gpu.default | as in partition cpu | exactly one | remove `default: true`",
    ),
    "no default": (partition(default=False), "partitions | no partition | exactly one default | default: true"),
    "a partition named as a keyword": (
        {"partitions": {"ALL": PARTITION}},
        "partitions.ALL | ALL | any name but default, all | keyword of slurm.conf",
    ),
    "two names that differ in case only": (
        {"partitions": {"cpu": PARTITION, "CPU": {"nodesets": ["cpu"]}}},
        "partitions.CPU | CPU | differs from cpu in more than capitals | rename one of the two",
    ),
    "a time of more seconds than Slurm counts": (
        partition(max_time="24856-00:00:00"),
        "partitions.cpu.max_time | 24856-00:00:00 | at most 24855 days | 32 bits",
    ),
    "a time of a thousand digits": (
        partition(max_time="9" * 1000),
        "partitions.cpu.max_time | 999... | minutes | quotes",
    ),
    "more memory for a CPU than there can be": (
        partition(def_mem_per_cpu=10**15),
        "partitions.cpu.def_mem_per_cpu | 1000000000000000 | at most 4294967296 | lower it",
    ),
    "a time that Slurm can't read": (
        partition(max_time="1 day"),
        "partitions.cpu.max_time | 1 day | 7-00:00:00 | quotes",
    ),
    "a time without quotes": (partition(max_time=43200), "partitions.cpu.max_time | 43200 | in quotes | quotes"),
    "a default time above the limit": (
        partition(max_time="01:00:00", default_time="61"),
        "partitions.cpu.default_time | 61 | at most max_time, 01:00:00 | raise max_time",
    ),
    "more memory for a CPU than a node has": (
        partition(def_mem_per_cpu=4096),
        "partitions.cpu.def_mem_per_cpu | 4096 | 1 to 2048 MiB | leave it out",
    ),
    "default memory above the most": (
        partition(def_mem_per_cpu=1024, max_mem_per_cpu=512),
        "partitions.cpu.def_mem_per_cpu | 1024 | at most max_mem_per_cpu, 512 | lower",
    ),
    "more nodes than there are": (partition(max_nodes=3), "partitions.cpu.max_nodes | 3 | 2 nodes | raise the count"),
    "fewest above most": (
        partition(min_nodes=2, max_nodes=1),
        "partitions.cpu.min_nodes | 2 | at most max_nodes, 1 | lower min_nodes",
    ),
    "a QOS that does not exist": (partition(qos="urgent"), "partitions.cpu.qos | urgent | normal | accounting.qos"),
}


SETTINGS = {
    "a parameter with a comment": (extra(Licenses="a # b"), "slurm.extra.Licenses | a # b | without # | slurm.conf"),
    "a parameter of slurm.conf that is set elsewhere": (
        extra(slurmdtimeout=3),
        "slurm.extra.slurmdtimeout | 3 | SlurmdTimeout, which is set elsewhere | set `slurm.timers.slurmd`",
    ),
    "a misspelt parameter": (
        extra(MaxArrySize=3),
        "slurm.extra.MaxArrySize | MaxArrySize | 22.05 | write MaxArraySize",
    ),
    "a parameter of a later release": (
        extra(SuspendExcStates="DOWN"),
        "slurm.extra.SuspendExcStates | SuspendExcStates | 23.11, 24.05, 24.11, 25.05 | use an image",
    ),
    "a program of slurmctld in a shared folder": (
        extra(prologslurmctld="/usr/local/sbin/first,/opt//apps/x/../prolog"),
        (
            "slurm.extra.prologslurmctld | /opt//apps/x/../prolog | a path outside of /opt/apps, /home,  | "
            "/usr/local/sbin"
        ),
    ),
    "plugins below home directories": (
        extra(PluginDir="/usr/lib/slurm:/home/admin/plugins"),
        (
            "slurm.extra.PluginDir | /home/admin/plugins | slurmctld's unit executes nothing there | "
            "the controller's own disk"
        ),
    ),
    "a parameter over two lines": (extra(Licenses="a\nb"), "slurm.extra.Licenses | a b | on one line | slurm.conf"),
    "a node parameter that follows from the machine": (
        nodeset(node_conf={"Gres": "gpu:1"}),
        "nodesets.cpu.node_conf.Gres | gpu:1 | set elsewhere | `gpus:`",
    ),
    "a node size that is no number": (
        nodeset(node_conf={"CPUs": "many"}),
        "nodesets.cpu.node_conf | {CPUs: many} | a whole number | correct CPUs",
    ),
    "more memory than a machine can address": (
        nodeset(node_conf={"RealMemory": 10**15}),
        "nodesets.cpu.node_conf | {RealMemory: 1000000000000000} | 1 to 4294967296 | correct RealMemory",
    ),
    "a weight of 33 bits": (
        nodeset(node_conf={"Weight": 2**32}),
        (
            "nodesets.cpu.node_conf.Weight | 4294967296 | for Weight a whole number, 0 to 4294967293 | "
            "slurmctld would not start"
        ),
    ),
    "a number of slurm.conf below zero": (
        extra(MaxJobCount=-1),
        "slurm.extra.MaxJobCount | -1 | 0 to 4294967293, or INFINITE | correct it",
    ),
    "a number of slurm.conf in words": (
        extra(TreeWidth="many"),
        "slurm.extra.TreeWidth | many | for TreeWidth a whole number | correct it",
    ),
    "a truth value for a number of slurm.conf": (
        extra(JobRequeue=True),
        "slurm.extra.JobRequeue | true | for JobRequeue a whole number | correct it",
    ),
    "a huge number where any is taken": (
        extra(SuspendTime=10**30),
        "slurm.extra.SuspendTime | 1000000000000000000000000000000 | 9007199254740991 | correct it",
    ),
    "CPUs that no topology gives": (
        nodeset(node_conf={"CPUs": 3}),
        "nodesets.cpu.node_conf | 3 CPUs on 1 sockets of 2 cores | 2 CPUs | leave CPUs out",
    ),
    "a partition parameter with a key of its own": (
        partition(conf={"maxtime": "1"}),
        "partitions.cpu.conf.maxtime | 1 | MaxTime | set `max_time:`",
    ),
    "a flag of a later release": (
        {"slurm": {"prolog_flags": ["Contain", "RunInJob"]}},
        "slurm.prolog_flags[1] | RunInJob | 24.11, 25.05 | use an image",
    ),
    "flags that rule each other out": (
        {"slurm": {"prolog_flags": ["NoHold", "Contain"]}},
        "slurm.prolog_flags[0] | NoHold and Contain | one of the two | remove NoHold or Contain",
    ),
    "Lua without a function that the plugin asks for": (
        {"slurm": {"job_submit_lua": "function slurm_job_submit() return 0 end"}},
        (
            "slurm.job_submit_lua | slurm_job_submit | defines slurm_job_submit and slurm_job_modify | "
            "add slurm_job_modify"
        ),
    ),
    "Lua with a character that nobody sees": (
        {"slurm": {"job_submit_lua": "-- slurm_job_submit slurm_job_modify\r\n"}},
        "slurm.job_submit_lua | slurm_job_submit | printable | remove '\\r'",
    ),
    "adoption by an image that has no such module": (
        {"slurm": {"pam_slurm_adopt": True}},
        "slurm.pam_slurm_adopt | true | false on debian-12 | debian-13",
    ),
    "adoption into jobs without a container": (
        {"slurm": {"pam_slurm_adopt": True, "prolog_flags": ["Alloc"]}, "image": {"base": "debian-13"}},
        "slurm.pam_slurm_adopt | true | with Contain | add Contain",
    ),
    "REST by an image that has no such daemon": (
        {"slurm": {"slurmrestd": True}},
        "slurm.slurmrestd | true | false on debian-12 | debian-13",
    ),
    "REST whose tokens somebody else sets": (
        {"slurm": {"slurmrestd": True, "extra": {"authalttypes": "auth/jwt"}}, "image": {"base": "debian-13"}},
        "slurm.extra.authalttypes | authalttypes | where slurm.slurmrestd is true | remove it",
    ),
    "PMIx of packages without it": (
        {"slurm": {"version": "26.05"}, "image": {"base": "debian-13"}},
        "slurm.mpi_default | pmix | pmi2 or none | write `mpi_default: pmi2`",
    ),
    "timers that fight": (
        {"slurm": {"timers": {"message": 100}}},
        "slurm.timers.unkillable_step | 240 | at least 5 times timers.message (100), that is 500 | drain nodes",
    ),
    "a release that the image lacks": (
        {"slurm": {"version": "25.05"}},
        "slurm.version | 25.05 | 22.05 | image decides",
    ),
}


SHA = "0" * 64
WITHOUT_EXPORTS = "5c8e9bed78ba5e3b3ba3c832f02860e7fb4b40cc65b1ca6a3305590477ad5fd3"
TEXT = "#!/bin/sh\ntrue\n"


def script(**keys: object) -> Changes:
    return {"slurm": {"scripts": [{"name": "check", **keys}]}}


def rxdm(**keys: object) -> Changes:
    return {"slurm": {"rxdm": {"partitions": ["cpu"], **keys}}}


def warm_up(**keys: object) -> Changes:
    return {"slurm": {"warm_up": keys}}


SCRIPTS = {
    "a warm-up of an unknown partition": (
        warm_up(partitions=["gpu"]),
        "slurm.warm_up.partitions[0] | gpu | a partition that exists | define gpu",
    ),
    "a warm-up of a partition twice": (
        warm_up(partitions=["cpu", "cpu"]),
        "slurm.warm_up.partitions | cpu, cpu | each partition once | remove the second cpu",
    ),
    "an image twice": (
        warm_up(containers=["alpine", "alpine"]),
        "slurm.warm_up.containers | alpine, alpine | each image once | remove the second alpine",
    ),
    "an image with its protocol": (
        warm_up(containers=["docker://alpine"]),
        "slurm.warm_up.containers[0] | docker://alpine | an image as registries name it | without docker://",
    ),
    "a script without a source": (script(), "slurm.scripts[0] | {name: check} | exactly one of | say what is in it"),
    "a script with two sources": (
        script(file="a.sh", text=TEXT),
        "slurm.scripts[0] | name: check | exactly one of file, url and text | keep one of file and text",
    ),
    "an address without a hash": (
        script(url="https://example.org/check.sh"),
        "slurm.scripts[0] | https://example.org/check.sh | sha256 beside url | sha256sum",
    ),
    "a hash without an address": (
        script(text=TEXT, sha256=SHA),
        "slurm.scripts[0] | name: check | sha256 beside url only | remove sha256",
    ),
    "a hash that is none": (
        script(url="https://example.org/check.sh", sha256="abc"),
        "slurm.scripts[0].sha256 | abc | 64 of 0-9 and a-f | sha256sum",
    ),
    "an address that others can change on the way": (
        script(url="http://example.org/check.sh", sha256=SHA),
        "slurm.scripts[0].url | http://example.org/check.sh | https:// | write an https address",
    ),
    "an address with a password": (
        script(url="https://me:secret@example.org/check.sh", sha256=SHA),
        "slurm.scripts[0].url | example.org | without user and password | https",
    ),
    "an address that is none": (
        script(url="https://example.org:port/check.sh", sha256=SHA),
        "slurm.scripts[0].url | https://example.org:port/check.sh | https://HOST/PATH | as a browser shows it",
    ),
    "a script's name with a path": (
        {"slurm": {"scripts": [{"name": "../check", "text": TEXT}]}},
        "slurm.scripts[0].name | ../check | e.g. 10-gpu-check | without path",
    ),
    "a script with the name of ours": (
        {"slurm": {"scripts": [{"name": "rxdm", "text": TEXT}]}},
        "slurm.scripts[0].name | rxdm | any name but rxdm | `slurm.rxdm`",
    ),
    "a script without an interpreter": (
        script(text="true\n"),
        "slurm.scripts[0].text | true | first line names its interpreter | #!/bin/bash",
    ),
    "a script for a program that no machine has": (
        script(text="#!/usr/bin/pyhton3\n"),
        (
            "slurm.scripts[0].text | a script for '/usr/bin/pyhton3' | by /usr/bin/env: sh, bash | "
            "write it for one of these"
        ),
    ),
    "a script for a program that env does not find": (
        script(text="#!/usr/bin/env -S node --x\n"),
        "slurm.scripts[0].text | a script for 'node' | python3 | write it for one of these",
    ),
    "a script with line ends of Windows": (
        script(text="#!/bin/bash\r\ntrue\r\n"),
        "slurm.scripts[0].text | a script for '/bin/bash\\r' | bash | line feed alone",
    ),
    "a script's file outside": (script(file="../a.sh"), "slurm.scripts[0].file | ../a.sh | scripts/check.sh | .."),
    "a script that runs at another time": (
        script(text=TEXT, on=["task_prolog"]),
        "slurm.scripts[0].on[0] | task_prolog | prolog, epilog | write prolog",
    ),
    "a script that never runs": (
        script(text=TEXT, on=[]),
        "slurm.scripts[0] | on: [] | prolog, epilog or both | remove `on`",
    ),
    "a script that runs twice": (
        script(text=TEXT, on=["prolog", "prolog"]),
        "slurm.scripts[0] | name: check | once each | remove the second",
    ),
    "a script twice in a list": (
        {"slurm": {"scripts": [{"name": "check", "text": TEXT}, {"name": "check", "text": TEXT}]}},
        "slurm.scripts[1].name | check | each name once | remove the second one",
    ),
    "one name for two scripts": (
        {
            **script(text=TEXT),
            "partitions": {"cpu": {**PARTITION, "scripts": [{"name": "check", "text": "#!/bin/sh\nfalse\n"}]}},
        },
        "partitions.cpu.scripts[0].name | check | the same script wherever the name stands | rename one",
    ),
    "a prolog beside our own": (
        {"slurm": {"scripts": [{"name": "check", "text": TEXT}], "extra": {"prolog": "/usr/local/prolog"}}},
        "slurm.extra.prolog | /usr/local/prolog | only in a stack without scripts | `slurm.scripts`",
    ),
    "a script at a place that has none": (
        partition(script=[{"name": "check", "text": TEXT}]),
        "partitions.cpu.script | script | scripts | write `scripts:`",
    ),
    "rxdm in a partition that is not there": (
        {"slurm": {"rxdm": {"partitions": ["gpu"]}}},
        "slurm.rxdm.partitions[0] | gpu | a partition that exists: cpu | write cpu",
    ),
    "rxdm twice in a partition": (
        {"slurm": {"rxdm": {"partitions": ["cpu", "cpu"]}}},
        "slurm.rxdm.partitions | cpu, cpu | each partition once | remove the second cpu",
    ),
    "rxdm from two places": (
        rxdm(url="https://example.org/rxdm", sha256=SHA, file="rxdm"),
        "slurm.rxdm | partitions: [cpu] | file or url | remove one",
    ),
    "rxdm from an unpinned place": (
        rxdm(url="https://example.org/rxdm"),
        "slurm.rxdm | partitions: [cpu] | sha256 beside url | sha256sum",
    ),
    "a version of rxdm that is of no use": (
        rxdm(url="https://example.org/rxdm", sha256=WITHOUT_EXPORTS),
        (
            "slurm.rxdm.sha256 | the version of 2024-05-31 | writes the exports | "
            "for the one that goes with the image's driver"
        ),
    ),
    "a package with its version": (
        {"image": {"packages": ["podman", "podman=5.4.2"]}},
        "image.packages[1] | podman=5.4.2 | 2 to 100 of a-z, 0-9 | without version",
    ),
    "a package that apt-get would remove": (
        {"image": {"packages": ["podman-"]}},
        "image.packages[0] | podman- | no - last | apt-cache search",
    ),
    "two packages in one": (
        {"image": {"packages": ["podman,skopeo"]}},
        "image.packages[0] | podman,skopeo | 2 to 100 of a-z, 0-9 | one package in each place",
    ),
    "a system that nothing is known of": (
        {"image": {"presents_as": "ubuntu-2604"}},
        "image.presents_as | ubuntu-2604 | ubuntu-2204 | write ubuntu-2",
    ),
}


CASES = PARTITIONS | SETTINGS | SCRIPTS
