"""MLPerf's preparation as jobs of a user, and the report of a log that is on the cluster."""

from collections.abc import Iterator

import pytest

from tests.cluster.report.mlperf_logs import GUIDE, reference, text
from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

DATA = "/home/bob/sd"
STAND_INS = """
mkdir -p ~/sd/logs ~/bin ~/mirror/checkpoints/sd && echo weights >~/mirror/checkpoints/sd/512-base-ema.ckpt
grep -qs HOME/bin ~/.profile || echo 'PATH=$HOME/bin:$PATH' >>~/.profile
cat >~/bin/git <<'END'
#!/bin/bash
case "$*" in
init*) mkdir -p "${@: -1}/.git" ;;
*checkout*) mkdir -p "$2/stable_diffusion/configs"
    printf '    num_nodes: 1\\n' >"$2/stable_diffusion/configs/train_01x08x08.yaml" ;;
esac
END
cat >~/bin/rclone <<'END'
#!/bin/bash
cp -rn "${2#mirror:}/." "$3"
END
cat >~/bin/enroot <<'END'
#!/bin/bash
[[ $1 == import ]] && echo image >"$3"
END
chmod +x ~/bin/*
"""


@pytest.fixture(scope="module")
def bob(lab: Cluster) -> Iterator[Cluster]:
    """The cluster, where bob has programs that stand for those that reach the internet; other tests find none of it."""
    lab.run("bash", "-c", STAND_INS, user="bob")
    yield lab
    lab.run("sh", "-c", "sed -i '/HOME.bin/d' ~/.profile && rm -rf ~/bin ~/mirror ~/sd", user="bob")


def prepare(bob: Cluster, *more: str) -> tuple[int, str]:
    words = ["prepare", bob.name, "stable-diffusion", "--as", "bob", "--data", DATA]
    done = bob.call("mlperf", *words, "--source", "mirror:/home/bob/mirror", *more)
    return done.returncode, done.stderr


def test_the_data_is_prepared_by_jobs_and_once(bob: Cluster):
    code, told = prepare(bob)
    assert code == 0, told
    assert told.endswith(f"Next: ./hpc mlperf run {bob.name} stable-diffusion --data {DATA} --nodes N\n")
    checkpoint = f"{DATA}/checkpoints/sd/512-base-ema.ckpt"
    config = f"{DATA}/training/stable_diffusion/configs/train_02x08x08.yaml"
    first = bob.run("bash", "-c", f"cat {config} && stat -c %y:%U {checkpoint} {DATA}/images/*.sqsh", user="bob")
    assert first.startswith("num_nodes: 2\n")
    assert first.count(":bob") == 2
    code, told = prepare(bob)
    assert code == 0, told
    again = bob.run("bash", "-c", f"cat {config} && stat -c %y:%U {checkpoint}", user="bob")
    assert again in first


def test_a_run_needs_eight_gpus_a_node(bob: Cluster):
    done = bob.call("mlperf", "run", bob.name, "stable-diffusion", "--nodes", "1", "--as", "bob", "--data", DATA)
    assert done.returncode == 1
    assert "lab has no nodes with 8 GPUs, which the benchmark needs. There: cpu (0 GPUs a node)" in done.stderr


def test_the_log_of_a_job_is_reported(bob: Cluster):
    bob.run(
        "bash", "-c", f"cat >{DATA}/logs/77_train_02x08x08.out <<'END'\n{text(reference()).decode()}END", user="bob"
    )
    done = bob.call("mlperf", "report", "77", "--stack", bob.name, "--as", "bob", "--data", DATA)
    assert done.stdout == GUIDE
    assert done.returncode == 0
