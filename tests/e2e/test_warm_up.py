"""The warm-up on real nodes: one downloads an image, and Slurm sends it to the others. enroot is a stand-in."""

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

ENROOT = """#!/bin/sh
echo "$(hostname) $4" >>/opt/apps/imports
head -c 5000000 /dev/urandom >"$3"
"""
IMAGE = "/var/lib/hpc/images/alpine+3.sqsh"
NODES = ("warm-cpu-0", "warm-cpu-1", "warm-cpu-2")


@pytest.fixture(scope="module")
def warm(clusters: Callable[..., Cluster]) -> Iterator[Cluster]:
    """Three nodes with a stand-in for enroot."""
    cluster = clusters(
        "warm",
        nodesets={"cpu": {"count": 3}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True}},
        users=[{"name": "alice", "uid": 2001}],
    )
    cluster.hpc("up")
    for node in NODES:
        cluster.ssh(node, f"cat >/usr/local/bin/enroot <<'END'\n{ENROOT}END\nchmod 755 /usr/local/bin/enroot")
    yield cluster
    cluster.hpc("destroy", check=False)


def images(cluster: Cluster) -> list[str]:
    """Checksum, mode and owner of the image on each node; nothing else may be left in the folder."""
    line = f"sha256sum {IMAGE}; stat -c %a:%U {IMAGE}; ls -A -I .lock {IMAGE.rpartition('/')[0]}"
    return [cluster.ssh(node, line) for node in NODES]


def test_up_writes_the_environment_of_jobs(warm: Cluster):
    printed = warm.run("stat", "-c", "%U:%a", "/opt/apps/hpc/env.sh", user="alice")
    assert printed == "root:755"
    job = "#!/bin/bash\n. /opt/apps/hpc/env.sh || exit\necho $SLURM_DISTRIBUTION >out\n"
    text = f"cat >job.sh <<'END'\n{job}END\nsbatch --wait job.sh; cat out"
    assert warm.run("sh", "-c", text, user="alice").splitlines()[-1] == "block:block"


def test_an_image_is_downloaded_once_and_sent_to_the_other_nodes(warm: Cluster):
    done = warm.call("warm-up", "warm", "--image", "alpine:3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to 2 nodes\n" in done.stdout
    assert "warm-up: 3 of 3 nodes are warm\n" in done.stdout
    assert warm.ssh(NODES[0], "wc -l </opt/apps/imports") == "1"
    assert len(set(images(warm))) == 1
    assert "644:root" in images(warm)[0]
    assert images(warm)[0].splitlines()[2:] == ["alpine+3.sqsh"]


def test_a_node_that_lost_it_gets_it_from_another(warm: Cluster):
    before = images(warm)[0].splitlines()[0]
    warm.ssh(NODES[0], f"rm {IMAGE}")
    done = warm.call("warm-up", "warm", "--image", "alpine:3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sending images from warm-cpu-1 to 1 nodes\n" in done.stdout
    assert images(warm)[0].splitlines()[0] == before
    assert warm.ssh(NODES[0], "wc -l </opt/apps/imports") == "1"
