"""Bad input is refused in words: where it stands, what was given, what is allowed with an example, what to do."""

import pytest

from cluster.config import ConfigError, parse
from tests.cluster.stacks import findings, local

PARTITION = {"nodesets": ["cpu"], "default": True}
ALICE = {"name": "alice", "uid": 2001}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNpTp8sZTrWHTKHIEY6xkYfOHfY5ufmf6QfgC/8UbOW alice@laptop"


def nodeset(**keys):
    return {"nodesets": {"cpu": keys}}


def partition(**keys):
    return {"partitions": {"cpu": PARTITION | keys}}


def user(**keys):
    return {"users": [ALICE | keys]}


def users(*others):
    return {"users": [ALICE, *others]}


def accounting(**keys):
    return {"accounting": keys}


def extra(**keys):
    return {"slurm": {"extra": keys}}


# What is replaced, then where it is told, and words of: given, allowed, to do.
BAD = {
    "a misspelt key": ({"partition": {}}, "partition", "partition", "partitions", "write `partitions:`"),
    "a misspelt key further down": (nodeset(cuont=2), "nodesets.cpu.cuont", "cuont: 2", "count", "write `count:`"),
    "a key that is like no other": (nodeset(zzz=2), "nodesets.cpu.zzz", "zzz", "machine_type", "remove it"),
    "a partition naming no nodeset": (
        partition(nodesets=["gpu"]),
        "partitions.cpu.nodesets[0]",
        "gpu",
        "cpu",
        "define",
    ),
    "a nodeset nearly named": (partition(nodesets=["cup"]), "partitions.cpu.nodesets[0]", "cup", "cpu", "write cpu"),
    "a partition without nodesets": (partition(nodesets=[]), "partitions.cpu.nodesets", "[]", "at least 1", "add one"),
    "a nodeset named twice": (
        partition(nodesets=["cpu", "cpu"]),
        "partitions.cpu.nodesets",
        "cpu, cpu",
        "once",
        "remove",
    ),
    "two defaults": (
        {"partitions": {"cpu": PARTITION, "gpu": PARTITION}},
        "partitions.gpu.default",
        "as in partition cpu",
        "exactly one",
        "remove `default: true`",
    ),
    "no default": (partition(default=False), "partitions", "no partition", "exactly one default", "default: true"),
    "a uid twice": (
        users({"name": "bob", "uid": 2001}),
        "users[1].uid",
        "2001",
        "2001 is alice's",
        "choose another number, e.g. 2002",
    ),
    "a name twice": (users({"name": "alice", "uid": 2002}), "users[1].name", "alice", "no other user", "rename"),
    "a system uid": (user(uid=999), "users[0].uid", "999", "1000 to 60000", "outside the operating system's"),
    "the uid of nobody": (user(uid=65534), "users[0].uid", "65534", "65536 to 524287", "outside"),
    "a system user": (user(name="slurm"), "users[0].name", "slurm", "no system user", "choose another name"),
    "a name that useradd refuses": (user(name="Al Ice"), "users[0].name", "Al Ice", "e.g. alice", "useradd"),
    "a user's uid as a group's gid": ({**user(), "groups": {"ml": 2001}}, "users[0].uid", "2001", "ml", "`gid: 2001`"),
    "a gid twice": ({"groups": {"ml": 3001, "bio": 3001}}, "groups.bio", "3001", "ml's", "e.g. 3002"),
    "a gid of another user": (
        users({"name": "bob", "uid": 2002, "gid": 2001}),
        "users[1].gid",
        "2001",
        "alice's",
        "define a group",
    ),
    "a group with a user's name": (
        {**user(), "groups": {"alice": 3001}},
        "groups.alice",
        "alice",
        "same name",
        "rename",
    ),
    "a group that is not defined": (
        user(groups=["ml"]),
        "users[0].groups[0]",
        "ml",
        "none",
        "define ml under `groups`",
    ),
    "a node count of 0": (nodeset(count=0), "nodesets.cpu.count", "0", "at least 1", "raise it"),
    "a node count of -1": (nodeset(count=-1), "nodesets.cpu.count", "-1", "at least 1", "remove the nodeset"),
    "a node count of 5000": (
        nodeset(count=5000),
        "nodesets.cpu.count",
        "5000",
        "1 to 510, as the nodeset's addresses are 10.77.2.0/23",
        "widen the network: `network: {cidr: 10.77.0.0/16}`",
    ),
    "a count in quotes": (
        nodeset(count="2"),
        "nodesets.cpu.count",
        "2",
        "a whole number without quotes",
        "Nodes, numbered",
    ),
    "a count that is true": (nodeset(count=True), "nodesets.cpu.count", "true", "a whole number", "write it so"),
    "more login machines than addresses": (
        {"login": {"count": 600}},
        "login.count",
        "600",
        "0 to 508",
        "widen network.cidr",
    ),
    "a machine type that does not exist": (
        nodeset(machine_type="local-2c-2gpuu"),
        "nodesets.cpu.machine_type",
        "local-2c-2gpuu",
        "a3-megagpu-8g",
        "write local-2c-2gpu",
    ),
    "GPUs that the machine can't take": (
        nodeset(machine_type="n1-standard-1", gpus={"type": "h100", "count": 1}),
        "nodesets.cpu.gpus.type",
        "h100",
        "t4",
        "another GPU type",
    ),
    "GPUs on a machine that has its own": (
        nodeset(machine_type="a3-megagpu-8g", gpus={"type": "t4", "count": 1}),
        "nodesets.cpu.gpus",
        "1 x t4",
        "comes with 8 x h100",
        "remove `gpus`",
    ),
    "a key that is no key": (user(keys=["hello"]), "users[0].keys[0]", "hello", "ssh-ed25519", "ssh-keygen"),
    "a key cut short": (user(keys=[KEY[:50]]), "users[0].keys[0]", "ssh-ed25519 AAAA", "ssh-ed25519", "id_ed25519.pub"),
    "a key of another type": (
        user(keys=["ssh-rsa " + KEY.split()[1]]),
        "users[0].keys[0]",
        "ssh-rsa",
        "a whole ssh-rsa key",
        "another type",
    ),
    "a private key": (
        user(keys=["-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz"]),
        "users[0].keys[0]",
        "a private key (not shown)",
        "a public key",
        "others may have read this one",
    ),
    "a secret": ({"password": {"secure": "v1:abc"}}, "password", "password", "users", "remove it"),
    "a network that is none": ({"network": {"cidr": "10.77"}}, "network.cidr", "10.77", "10.77.0.0/20", "four numbers"),
    "a network with host bits": (
        {"network": {"cidr": "10.77.0.5/20"}},
        "network.cidr",
        "10.77.0.5/20",
        "private IPv4",
        "first address: 10.77.0.0/20",
    ),
    "a public network": (
        {"network": {"cidr": "8.8.0.0/20"}},
        "network.cidr",
        "8.8.0.0/20",
        "10.0.0.0/8",
        "private range",
    ),
    "a tiny network": ({"network": {"cidr": "10.7.0.0/27"}}, "network.cidr", "10.7.0.0/27", "/8 to /26", "larger"),
    "addresses outside the network": (
        nodeset(addresses="10.99.0.0/24"),
        "nodesets.cpu.addresses",
        "10.99.0.0/24",
        "inside network.cidr 10.77.0.0/20",
        "widen",
    ),
    "addresses of the controller": (
        nodeset(addresses="10.77.0.0/24"),
        "nodesets.cpu.addresses",
        "10.77.0.0/24",
        "10.77.0.0/23 is for the gateway",
        "choose a free block",
    ),
    "addresses of another nodeset": (
        {"nodesets": {"cpu": {}, "gpu": {"addresses": "10.77.2.0/24"}}},
        "nodesets.gpu.addresses",
        "10.77.2.0/24",
        "10.77.2.0/23 is nodeset cpu's",
        "choose a free block inside 10.77.0.0/20",
    ),
    "an eighth nodeset": (
        {"nodesets": {name: {} for name in ("cpu", *"abcdefg")}},
        "nodesets.g",
        "nodeset number 8",
        "7 nodesets",
        "give `addresses:` to g",
    ),
    "a cluster name in capitals": ({"name": "Dev"}, "name", "Dev", "a letter first", "host name"),
    "a cluster name with an underscore": ({"name": "my_dev"}, "name", "my_dev", "a-z, 0-9 and -", "host name"),
    "a name that ends a line": ({"name": "dev\n"}, "name", "dev", "a letter first", "host name"),
    "a parameter with a comment": (extra(Licenses="a # b"), "slurm.extra.Licenses", "a # b", "without #", "slurm.conf"),
    "a nodeset named as a role": (
        {"nodesets": {"cpu": {}, "login": {}}},
        "nodesets.login",
        "login",
        "any name but controller, login",
        "rename the nodeset",
    ),
    "a nodeset named as a node": (
        {"nodesets": {"cpu": {}, "dev-cpu-0": {}}},
        "nodesets.dev-cpu-0",
        "dev-cpu-0",
        "no machine has",
        "rename",
    ),
    "host names that are too long": (
        {"name": "a" * 20, "nodesets": {"cpu": {}, "b" * 40: {"count": 11}}},
        f"nodesets.{'b' * 40}",
        "of 64 characters",
        "at most 63 characters",
        "shorten",
    ),
    "a limit on GPUs that no node has": (
        accounting(qos=[{"name": "q", "max_tres_per_user": {"gres/gpu": 1}}]),
        "accounting.qos[0].max_tres_per_user.gres/gpu",
        "gres/gpu",
        "cpu, mem, node",
        "remove the limit",
    ),
    "a partition named as a keyword": (
        {"partitions": {"ALL": PARTITION}},
        "partitions.ALL",
        "ALL",
        "any name but default, all",
        "keyword of slurm.conf",
    ),
    "a time that Slurm can't read": (
        partition(max_time="1 day"),
        "partitions.cpu.max_time",
        "1 day",
        "7-00:00:00",
        "quotes",
    ),
    "a time without quotes": (partition(max_time=43200), "partitions.cpu.max_time", "43200", "in quotes", "quotes"),
    "a default time above the limit": (
        partition(max_time="01:00:00", default_time="61"),
        "partitions.cpu.default_time",
        "61",
        "at most max_time, 01:00:00",
        "raise max_time",
    ),
    "more memory for a CPU than a node has": (
        partition(def_mem_per_cpu=4096),
        "partitions.cpu.def_mem_per_cpu",
        "4096",
        "1 to 2048 MiB",
        "leave it out",
    ),
    "no memory for a CPU": (
        partition(def_mem_per_cpu=0),
        "partitions.cpu.def_mem_per_cpu",
        "0",
        "at least 1",
        "raise it",
    ),
    "default memory above the most": (
        partition(def_mem_per_cpu=1024, max_mem_per_cpu=512),
        "partitions.cpu.def_mem_per_cpu",
        "1024",
        "at most max_mem_per_cpu, 512",
        "lower",
    ),
    "more nodes than there are": (
        partition(max_nodes=3),
        "partitions.cpu.max_nodes",
        "3",
        "2 nodes",
        "raise the count",
    ),
    "fewest above most": (
        partition(min_nodes=2, max_nodes=1),
        "partitions.cpu.min_nodes",
        "2",
        "at most max_nodes, 1",
        "lower min_nodes",
    ),
    "a QOS that does not exist": (partition(qos="urgent"), "partitions.cpu.qos", "urgent", "normal", "accounting.qos"),
    "a user's QOS that does not exist": (user(qos=["hihg"]), "users[0].qos[0]", "hihg", "normal", "define hihg"),
    "an account that does not exist": (
        {**user(account="reserch"), **accounting(accounts=[{"name": "research"}, {"name": "b"}])},
        "users[0].account",
        "reserch",
        "research",
        "write research",
    ),
    "no account where there are several": (
        {**user(), **accounting(accounts=[{"name": "a"}, {"name": "b"}])},
        "users[0].account",
        "nothing",
        "a, b",
        "charged to",
    ),
    "an account below none": (
        accounting(accounts=[{"name": "a", "parent": "b"}]),
        "accounting.accounts[0].parent",
        "b",
        "root",
        "leave `parent` out",
    ),
    "accounts in a circle": (
        accounting(accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]),
        "accounting.accounts[0].parent",
        "b",
        "lead up to root",
        "a -> b -> a",
    ),
    "an account twice": (
        accounting(accounts=[{"name": "a"}, {"name": "a"}]),
        "accounting.accounts[1].name",
        "a",
        "once",
        "rename",
    ),
    "an account called root": (
        accounting(accounts=[{"name": "root"}]),
        "accounting.accounts[0].name",
        "root",
        "root",
        "top",
    ),
    "an account in capitals": (
        accounting(accounts=[{"name": "Lab"}]),
        "accounting.accounts[0].name",
        "Lab",
        "a letter",
        "lower",
    ),
    "a limit on no resource": (
        accounting(qos=[{"name": "q", "grp_tres": {"gpus": 1}}]),
        "accounting.qos[0].grp_tres.gpus",
        "gpus",
        "gres/gpu",
        "sacctmgr",
    ),
    "enforcing nothing known": (
        accounting(enforce=["limit"]),
        "accounting.enforce[0]",
        "limit",
        "associations",
        "write limits",
    ),
    "a parameter of slurm.conf that is set elsewhere": (
        extra(slurmdtimeout=3),
        "slurm.extra.slurmdtimeout",
        "3",
        "SlurmdTimeout, which is set elsewhere",
        "set `slurm.timers.slurmd`",
    ),
    "a misspelt parameter": (
        extra(MaxArrySize=3),
        "slurm.extra.MaxArrySize",
        "MaxArrySize",
        "22.05",
        "write MaxArraySize",
    ),
    "a parameter of a later release": (
        extra(SuspendExcStates="DOWN"),
        "slurm.extra.SuspendExcStates",
        "SuspendExcStates",
        "23.11, 24.11, 25.05",
        "use an image",
    ),
    "a parameter over two lines": (extra(Licenses="a\nb"), "slurm.extra.Licenses", "a b", "on one line", "slurm.conf"),
    "a node parameter that follows from the machine": (
        nodeset(node_conf={"Gres": "gpu:1"}),
        "nodesets.cpu.node_conf.Gres",
        "gpu:1",
        "set elsewhere",
        "`gpus:`",
    ),
    "a node size that is no number": (
        nodeset(node_conf={"CPUs": "many"}),
        "nodesets.cpu.node_conf",
        "{CPUs: many}",
        "a whole number",
        "correct CPUs",
    ),
    "CPUs that no topology gives": (
        nodeset(node_conf={"CPUs": 3}),
        "nodesets.cpu.node_conf",
        "3 CPUs on 1 sockets of 2 cores",
        "2 CPUs",
        "leave CPUs out",
    ),
    "a partition parameter with a key of its own": (
        partition(conf={"maxtime": "1"}),
        "partitions.cpu.conf.maxtime",
        "1",
        "MaxTime",
        "set `max_time:`",
    ),
    "timers that fight": (
        {"slurm": {"timers": {"message": 100}}},
        "slurm.timers.unkillable_step",
        "240",
        "at least 5 times timers.message (100), that is 500",
        "drain nodes",
    ),
    "a release that the image lacks": (
        {"slurm": {"version": "25.05"}},
        "slurm.version",
        "25.05",
        "22.05",
        "image decides",
    ),
    "an image of another platform": (
        {"image": {"base": "ubuntu-2404"}},
        "image.base",
        "ubuntu-2404",
        "debian-12",
        "write one",
    ),
    "an image that does not exist": (
        {"image": {"base": "debian12"}},
        "image.base",
        "debian12",
        "debian-12",
        "write debian-12",
    ),
    "a shared system directory": (
        {"storage": {"shared": ["/usr"]}},
        "storage.shared[0]",
        "/usr",
        "/opt/apps",
        "hidden",
    ),
    "a mount point that is no path": (
        {"storage": {"shared": ["home"]}},
        "storage.shared[0]",
        "home",
        "/opt/apps",
        "root",
    ),
    "machines of a role on the controller": (
        {"login": {"on": "controller", "count": 2}},
        "login",
        "{on: controller, count: 2}",
        "`on: controller` without",
        "remove count",
    ),
    "a role on something else": (
        {"login": {"on": "login"}},
        "login.on",
        "login",
        "only controller",
        "write controller",
    ),
    "two nodesets on the controller": (
        {"nodesets": {"cpu": {"on": "controller"}, "b": {"on": "controller"}}},
        "nodesets.b.on",
        "controller",
        "one nodeset on the controller",
        "let partitions name cpu",
    ),
    "a list for a mapping": ({"nodesets": ["cpu"]}, "nodesets", "[cpu]", "a mapping", "Compute nodes"),
    "a mapping for a list": ({"users": {"alice": 2001}}, "users", "{alice: 2001}", "a list", "People"),
    "a platform that is to come": (
        {"platform": "gcp"},
        "platform",
        "gcp",
        "local (platform 'gcp' is not built",
        "local",
    ),
    "a platform that is none": ({"platform": "lokal"}, "platform", "lokal", "local", "write local"),
    "a user without uid": ({"users": [{"name": "bob"}]}, "users[0].uid", "nothing", "User number", "add `uid:`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words(case):
    changes, where, given, allowed, todo = BAD[case]
    found = findings(**changes)
    assert where in found, f"told only of {sorted(found)}"
    finding = found[where]
    assert given in finding.given
    assert allowed in finding.allowed
    assert todo in finding.todo


@pytest.mark.parametrize("case", BAD)
def test_one_mistake_is_told_once(case):
    """A second finding would send its reader to look for a second mistake."""
    assert len(findings(**BAD[case][0])) == (2 if case == "accounts in a circle" else 1)


@pytest.mark.parametrize(
    "stack",
    [{}, {"hpc:cluster": None}, {"hpc:cluster": "dev"}, {"hpc:cluster": "{"}, {"hpc:cluster": ["dev"]}],
)
def test_a_stack_without_a_cluster_is_told_where_to_describe_it(stack):
    with pytest.raises(ConfigError, match=r"Pulumi\.dev\.yaml is an example"):
        parse(stack)


def test_a_setting_of_ours_that_is_never_read_is_refused_and_those_of_providers_are_not():
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:clutser": local(), "gcp:project": "p"})
    assert [one.where for one in caught.value.findings] == ["hpc:clutser", "hpc:cluster"]
    assert caught.value.findings[0].todo == "write hpc:cluster"
    assert parse({"hpc:cluster": local(), "gcp:project": "p"}).name == "dev"


def test_the_text_has_every_finding_in_four_lines():
    with pytest.raises(ConfigError) as caught:
        parse({"hpc:cluster": local(nodesets={"cpu": {"count": 0}}, name="Dev")})
    assert str(caught.value) == (
        "2 errors in the stack configuration:\n"
        "\n"
        "hpc:cluster.name\n"
        "  given:   Dev\n"
        "  allowed: 1 to 20 of a-z, 0-9 and -, a letter first and no - last, e.g. dev\n"
        "  to do:   choose a name that can stand in a host name\n"
        "\n"
        "hpc:cluster.nodesets.cpu.count\n"
        "  given:   0\n"
        "  allowed: a whole number of at least 1, e.g. 2\n"
        "  to do:   raise it, or remove the nodeset and what names it"
    )
