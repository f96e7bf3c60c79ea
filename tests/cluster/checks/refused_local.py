"""Stacks on this machine that are refused.

Each case: what is replaced in a small cluster. tests/golden/refused has the errors.
"""

from tests.cluster.stacks import KEY, PARTITION, Changes, accounting, extra, nodeset, partition, user, users

SHAPES = {
    "a misspelt key": {"partition": {}},
    "a misspelt key further down": nodeset(cuont=2),
    "a key that is like no other": nodeset(zzz=2),
    "a count in quotes": nodeset(count="2"),
    "a count that is true": nodeset(count=True),
    "a secret": {"password": {"secure": "v1:abc"}},
    "a name that ends a line": {"name": "dev\n"},
    "a list for a mapping": {"nodesets": ["cpu"]},
    "a mapping for a list": {"users": {"alice": 2001}},
    "a platform that is none": {"platform": "lokal"},
    "a user without uid": {"users": [{"name": "bob"}]},
}


MACHINES = {
    "a node count of 0": nodeset(count=0),
    "more nodes than Slurm can have": nodeset(count=10**12),
    "a machine type that does not exist": nodeset(machine_type="local-2c-2gpuu"),
    "GPUs that the machine can't take": nodeset(machine_type="n1-standard-1", gpus={"type": "h100", "count": 1}),
    "GPUs on a machine that has its own": nodeset(machine_type="a3-megagpu-8g", gpus={"type": "t4", "count": 1}),
    "a min above max": nodeset(count={"min": 3, "max": 2}),
    "no elastic node": nodeset(count={"min": 2, "max": 2}),
    "a max of 0": nodeset(count={"min": 0, "max": 0}),
    "a misspelt key of a count": nodeset(count={"min": 2, "max": 4, "maxx": 4}),
    "idle of nodes that stay": nodeset(idle="10m"),
    "capacity of local nodes that stay": nodeset(capacity="spot"),
    "a time without its unit": nodeset(idle=10),
    "a cluster name in capitals": {"name": "Dev"},
    "a nodeset named as a role": {"nodesets": {"cpu": {}, "login": {}}},
    "a nodeset named as a node": {"nodesets": {"cpu": {}, "dev-cpu-0": {}}},
    "host names that are too long": {"name": "a" * 20, "nodesets": {"cpu": {}, "b" * 40: {"count": 11}}},
    "an image of another platform": {"image": {"base": "ubuntu-2404"}},
    "an image that does not exist": {"image": {"base": "debian12"}},
    "machines of a role on the controller": {"login": {"on": "controller", "count": 2}},
    "a role on something else": {"login": {"on": "login"}},
    "two nodesets on the controller": {"nodesets": {"cpu": {"on": "controller"}, "b": {"on": "controller"}}},
}


PLACES = {
    "a node count of 900": nodeset(count=900),
    "more machines than a bridge takes": {**nodeset(count=1022), "network": {"cidr": "10.0.0.0/8"}},
    "many more, in several nodesets": {
        "nodesets": {"cpu": {"count": 65536}, "gpu": {"count": 60000}},
        "network": {"cidr": "10.0.0.0/8"},
    },
    "more login machines than addresses": {"login": {"count": 600}},
    "a network that is none": {"network": {"cidr": "10.77"}},
    "a network with host bits": {"network": {"cidr": "10.77.0.5/20"}},
    "a public network": {"network": {"cidr": "8.8.0.0/20"}},
    "a tiny network": {"network": {"cidr": "10.7.0.0/27"}},
    "addresses outside the network": nodeset(addresses="10.99.0.0/24"),
    "addresses of the controller": nodeset(addresses="10.77.0.0/24"),
    "addresses of another nodeset": {
        "nodesets": {"cpu": {"addresses": "10.77.2.0/23"}, "gpu": {"addresses": "10.77.2.0/24"}}
    },
    "an eighth nodeset": {"nodesets": {name: {} for name in ("cpu", *"abcdefg")}},
    "a shared system directory": {"storage": {"shared": ["/usr"]}},
    "a shared directory below a system directory": {"storage": {"shared": ["/etc/ssh"]}},
    "a shared directory over the state disk": {"storage": {"shared": ["/srv/state"]}},
    "home folders that nobody can write": {"storage": {"read_only": ["/home"]}},
    "a cluster state that nobody can write": {"storage": {"read_only": ["/opt/apps"]}},
    "a read-only directory that is not shared": {"storage": {"read_only": ["/opt/app"]}},
    "a mount point that is no path": {"storage": {"shared": ["home"]}},
}


PARTITIONS = {
    "a partition naming no nodeset": partition(nodesets=["gpu"]),
    "a nodeset nearly named": partition(nodesets=["cup"]),
    "a partition without nodesets": partition(nodesets=[]),
    "a nodeset named twice": partition(nodesets=["cpu", "cpu"]),
    "two defaults": {"partitions": {"cpu": PARTITION, "gpu": PARTITION}},
    "no default": partition(default=False),
    "a partition named as a keyword": {"partitions": {"ALL": PARTITION}},
    "two names that differ in case only": {"partitions": {"cpu": PARTITION, "CPU": {"nodesets": ["cpu"]}}},
    "a time of more seconds than Slurm counts": partition(max_time="24856-00:00:00"),
    "a time of a thousand digits": partition(max_time="9" * 1000),
    "more memory for a CPU than there can be": partition(def_mem_per_cpu=10**15),
    "a time that Slurm can't read": partition(max_time="1 day"),
    "a time without quotes": partition(max_time=43200),
    "a default time above the limit": partition(max_time="01:00:00", default_time="61"),
    "more memory for a CPU than a node has": partition(def_mem_per_cpu=4096),
    "default memory above the most": partition(def_mem_per_cpu=1024, max_mem_per_cpu=512),
    "more nodes than there are": partition(max_nodes=3),
    "fewest above most": partition(min_nodes=2, max_nodes=1),
    "a QOS that does not exist": partition(qos="urgent"),
}


SETTINGS = {
    "a parameter with a comment": extra(Licenses="a # b"),
    "a parameter of slurm.conf that is set elsewhere": extra(slurmdtimeout=3),
    "a misspelt parameter": extra(MaxArrySize=3),
    "a parameter of a later release": extra(SuspendExcStates="DOWN"),
    "a program of slurmctld in a shared folder": extra(prologslurmctld="/usr/local/sbin/first,/opt//apps/x/../prolog"),
    "plugins below home directories": extra(PluginDir="/usr/lib/slurm:/home/admin/plugins"),
    "a parameter over two lines": extra(Licenses="a\nb"),
    "a node parameter that follows from the machine": nodeset(node_conf={"Gres": "gpu:1"}),
    "a node size that is no number": nodeset(node_conf={"CPUs": "many"}),
    "more memory than a machine can address": nodeset(node_conf={"RealMemory": 10**15}),
    "a weight of 33 bits": nodeset(node_conf={"Weight": 2**32}),
    "a number of slurm.conf below zero": extra(MaxJobCount=-1),
    "a number of slurm.conf in words": extra(TreeWidth="many"),
    "a truth value for a number of slurm.conf": extra(JobRequeue=True),
    "a huge number where any is taken": extra(SuspendTime=10**30),
    "CPUs that no topology gives": nodeset(node_conf={"CPUs": 3}),
    "a partition parameter with a key of its own": partition(conf={"maxtime": "1"}),
    "a flag of a later release": {"slurm": {"prolog_flags": ["Contain", "RunInJob"]}},
    "flags that rule each other out": {"slurm": {"prolog_flags": ["NoHold", "Contain"]}},
    "Lua without a function that the plugin asks for": {
        "slurm": {"job_submit_lua": "function slurm_job_submit() return 0 end"}
    },
    "Lua with a character that nobody sees": {"slurm": {"job_submit_lua": "-- slurm_job_submit slurm_job_modify\r\n"}},
    "adoption by an image that has no such module": {"slurm": {"pam_slurm_adopt": True}},
    "adoption into jobs without a container": {
        "slurm": {"pam_slurm_adopt": True, "prolog_flags": ["Alloc"]},
        "image": {"base": "debian-13"},
    },
    "REST by an image that has no such daemon": {"slurm": {"slurmrestd": True}},
    "REST whose tokens somebody else sets": {
        "slurm": {"slurmrestd": True, "extra": {"authalttypes": "auth/jwt"}},
        "image": {"base": "debian-13"},
    },
    "PMIx of packages without it": {"slurm": {"version": "26.05"}, "image": {"base": "debian-13"}},
    "private data that hides sleeping nodes": {
        **nodeset(count={"min": 0, "max": 2}),
        **extra(privatedata="jobs,usage"),
        "image": {"base": "debian-12"},
    },
    "timers that fight": {"slurm": {"timers": {"message": 100}}},
    "a release that the image lacks": {"slurm": {"version": "25.05"}},
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
    "a warm-up of an unknown partition": warm_up(partitions=["gpu"]),
    "a warm-up of a partition twice": warm_up(partitions=["cpu", "cpu"]),
    "an image twice": warm_up(containers=["alpine", "alpine"]),
    "an image with its protocol": warm_up(containers=["docker://alpine"]),
    "a script without a source": script(),
    "a script with two sources": script(file="a.sh", text=TEXT),
    "an address without a hash": script(url="https://example.org/check.sh"),
    "a hash without an address": script(text=TEXT, sha256=SHA),
    "a hash that is none": script(url="https://example.org/check.sh", sha256="abc"),
    "an address that others can change on the way": script(url="http://example.org/check.sh", sha256=SHA),
    "an address with a password": script(url="https://me:secret@example.org/check.sh", sha256=SHA),
    "an address that is none": script(url="https://example.org:port/check.sh", sha256=SHA),
    "a script's name with a path": {"slurm": {"scripts": [{"name": "../check", "text": TEXT}]}},
    "a script with the name of ours": {"slurm": {"scripts": [{"name": "rxdm", "text": TEXT}]}},
    "a script without an interpreter": script(text="true\n"),
    "a script for a program that no machine has": script(text="#!/usr/bin/pyhton3\n"),
    "a script for a program that env does not find": script(text="#!/usr/bin/env -S node --x\n"),
    "a script with line ends of Windows": script(text="#!/bin/bash\r\ntrue\r\n"),
    "a script's file outside": script(file="../a.sh"),
    "a script that runs at another time": script(text=TEXT, on=["task_prolog"]),
    "a script that never runs": script(text=TEXT, on=[]),
    "a script that runs twice": script(text=TEXT, on=["prolog", "prolog"]),
    "a script twice in a list": {
        "slurm": {"scripts": [{"name": "check", "text": TEXT}, {"name": "check", "text": TEXT}]}
    },
    "one name for two scripts": {
        **script(text=TEXT),
        "partitions": {"cpu": {**PARTITION, "scripts": [{"name": "check", "text": "#!/bin/sh\nfalse\n"}]}},
    },
    "a prolog beside our own": {
        "slurm": {"scripts": [{"name": "check", "text": TEXT}], "extra": {"prolog": "/usr/local/prolog"}}
    },
    "a script at a place that has none": partition(script=[{"name": "check", "text": TEXT}]),
    "rxdm in a partition that is not there": {"slurm": {"rxdm": {"partitions": ["gpu"]}}},
    "rxdm twice in a partition": {"slurm": {"rxdm": {"partitions": ["cpu", "cpu"]}}},
    "rxdm from two places": rxdm(url="https://example.org/rxdm", sha256=SHA, file="rxdm"),
    "rxdm from an unpinned place": rxdm(url="https://example.org/rxdm"),
    "a version of rxdm that is of no use": rxdm(url="https://example.org/rxdm", sha256=WITHOUT_EXPORTS),
    "a package with its version": {"image": {"packages": ["podman", "podman=5.4.2"]}},
    "a package that apt-get would remove": {"image": {"packages": ["podman-"]}},
    "two packages in one": {"image": {"packages": ["podman,skopeo"]}},
    "a system that nothing is known of": {"image": {"presents_as": "ubuntu-2604"}},
}


HEALTH = {
    **{
        f"a measurement ({kind}) of a user who is not there": {"slurm": {"health": {kind: {"user": "nobody-here"}}}}
        for kind in ("nccl", "fabric")
    },
    **{
        f"a check that is a measurement ({kind})": {"slurm": {"health": {"skip": [kind]}}}
        for kind in ("network", "nccl")
    },
    "a script with the name of the health checks'": {
        "slurm": {"health": {}, "scripts": [{"name": "00-hpc-health", "text": TEXT}]}
    },
    **{
        f"{name} beside health checks": {"slurm": {"health": {}, "extra": {name: "1"}}}
        for name in ("HealthCheckProgram", "healthcheckinterval", "Prolog")
    },
}


CAROL = {"name": "carol", "uid": 2003}
USERS = {
    "the uid of a former user": {"users": [{"name": "dave", "uid": 2003}], "former_users": [CAROL]},
    "a former user with another uid": {"users": [{"name": "carol", "uid": 2009}], "former_users": [CAROL]},
    "a uid twice": users({"name": "bob", "uid": 2001}),
    "a name twice": users({"name": "alice", "uid": 2002}),
    "a system uid": user(uid=999),
    "the uid of nobody": user(uid=65534),
    "a user with a name of systemd's": user(name="systemd-x"),
    "a group whose members become root": {"groups": {"wheel": 3001}},
    "a user whose own group has rights": user(name="admin"),
    "a shell that no machine has": user(shell="/usr/bin/zsh"),  # noqa: S604 - a key of the user
    "a key whose comment ends a line": user(keys=[f"{KEY}\u2028ssh-rsa x"]),
    "a name that useradd refuses": user(name="Al Ice"),
    "a user's uid as a group's gid": {**user(), "groups": {"ml": 2001}},
    "a gid twice": {"groups": {"ml": 3001, "bio": 3001}},
    "a gid of another user": users({"name": "bob", "uid": 2002, "gid": 2001}),
    "a group with a user's name": {**user(), "groups": {"alice": 3001}},
    "a group that is not defined": user(groups=["ml"]),
    "a key cut short": user(keys=[KEY[:50]]),
    "a key of another type": user(keys=["ssh-rsa " + KEY.split()[1]]),
    "a private key": user(keys=["-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz"]),
    "a user's QOS that does not exist": user(qos=["hihg"]),
    "an account that does not exist": {
        **user(account="reserch"),
        **accounting(accounts=[{"name": "research"}, {"name": "b"}]),
    },
    "no account where there are several": {**user(), **accounting(accounts=[{"name": "a"}, {"name": "b"}])},
}


ACCOUNTING = {
    "a limit on GPUs that no node has": accounting(qos=[{"name": "q", "max_tres_per_user": {"gres/gpu": 1}}]),
    "a limit beyond what JSON keeps": accounting(qos=[{"name": "q", "grp_tres": {"cpu": 2**70}}]),
    "a description over two lines": accounting(accounts=[{"name": "a", "description": "one\ntwo"}]),
    "a description of a page": accounting(accounts=[{"name": "a", "description": "x" * 256}]),
    "an account below none": accounting(accounts=[{"name": "a", "parent": "b"}]),
    "accounts in a circle": accounting(accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]),
    "a QOS that preempts itself": accounting(qos=[{"name": "q", "preempt": ["q"]}]),
    "QOS that preempt each other": accounting(
        qos=[{"name": "p", "preempt": ["normal", "q"]}, {"name": "q", "preempt": ["p"]}]
    ),
    "preemption by QOS that is switched off again": extra(PreemptMode="OFF")
    | accounting(qos=[{"name": "q", "preempt": ["normal"]}]),
    "an account twice": accounting(accounts=[{"name": "a"}, {"name": "a"}]),
    "an account called root": accounting(accounts=[{"name": "root"}]),
    "an account in capitals": accounting(accounts=[{"name": "Lab"}]),
    "a limit on no resource": accounting(qos=[{"name": "q", "grp_tres": {"gpus": 1}}]),
    "enforcing nothing known": accounting(enforce=["limit"]),
}


CASES = SHAPES | MACHINES | PLACES | PARTITIONS | SETTINGS | SCRIPTS | HEALTH | USERS | ACCOUNTING
