"""What users of a cluster do to it, and to who runs it, stays their own."""

import stat
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

CLUSTER_KEY = "/root/.ssh/hpc_cluster"


@pytest.fixture
def keys(many: Cluster) -> Iterator[str]:
    """Alice's ~/.ssh, which is put back."""
    many.run("cp", "-a", ".ssh", ".kept")
    yield "/home/alice/.ssh"
    many.run("sh", "-c", "chmod 700 .; rm -rf .ssh; mv .kept .ssh")
    many.call("drift", "many", "--mend")
    assert many.call("drift", "many").returncode == 0


@pytest.mark.parametrize(
    ("trick", "told"),
    [
        (f"ln -sf {CLUSTER_KEY} .ssh/authorized_keys", "authorized_keys is a symbolic link"),
        ("rm -r .ssh; ln -s /etc/munge .ssh", ".ssh is a symbolic link"),
        ("rm .ssh/authorized_keys; mkfifo .ssh/authorized_keys", "authorized_keys is a pipe"),
    ],
)
def test_roots_files_are_not_given_away(many: Cluster, keys: str, trick: str, told: str):
    look = f"stat -c '%n %U %a' {CLUSTER_KEY} /etc/munge /etc/munge/munge.key"
    before = many.ssh("controller", look)
    many.run("sh", "-c", trick)
    drift = many.call("drift", "many", "--mend")
    assert told in drift.stdout
    assert "left alone" in drift.stdout + drift.stderr
    assert many.ssh("controller", look) == before
    assert many.ssh("controller", f"find {keys} -type f -user alice -exec cat {{}} + | grep -c PRIVATE; true") == "0"


def test_this_hosts_users_do_not_reach_what_the_clusters_users_put_into_a_shared_folder(many: Cluster):
    """A setuid program there would run as root for them. A stack that is up from before is closed by its next `up`."""
    folder = many.root / "stacks" / "many"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    boots = many.boots()
    assert "many-network" in many.up()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert many.boots() == boots
    assert many.run("cat", "/etc/hostname") == "many-login-0"
