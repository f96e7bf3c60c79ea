"""The trial of the rxdm prolog as on an A3 Mega node with Ubuntu 22.04 finds prologs that do not do their work."""

import os
from pathlib import Path

import pytest
from jobs import rxdm
from jobs.rxdm import DEBIAN, PATCHED, classify, patch_check

from tests import programs
from tests.cluster.stacks import ROOT

pytestmark = pytest.mark.e2e

WORK = """#!/bin/bash
set -e
if ! /usr/bin/curl -s http://metadata.google.internal/computeMetadata/v1/instance/machine-type | grep -q a3-mega; then
    exit 0
fi
[[ $SLURM_JOB_NUM_NODES -eq 1 ]] && exit 0
modprobe import-helper
docker container list --filter "name=receive-datapath-manager-*" --quiet | xargs --no-run-if-empty docker container stop
docker run --rm --volume /var/lib:/var/lib us-docker.pkg.dev/gce-ai-infra/nccl-plugin-gpudirecttcpx-dev:v1 install
if {check}; then
    {body}
fi
docker run --detach --rm --name receive-datapath-manager-$SLURM_JOB_ID us-docker.pkg.dev/x/tcpgpudmarxd-dev:v1
until docker container logs receive-datapath-manager-$SLURM_JOB_ID | grep "Buffer manager initialization complete"; do
    sleep 1
done
"""
BODY = (
    "echo export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices >> /var/lib/tcpxo/lib64/nccl-env-profile.sh"
)


def prolog(check: str = PATCHED, body: str = BODY) -> str:
    return WORK.replace("{check}", check).replace("{body}", body)


def test_a_prolog_that_does_its_work_passes():
    assert rxdm.trial_failure(prolog()) == ""


def test_the_stand_in_of_rehearsals_passes_after_the_patch():
    text = (ROOT / "scripts/local/rxdm.sh").read_text()
    assert "without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY" in rxdm.trial_failure(text)
    assert rxdm.trial_failure(patch_check(text)) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (prolog(DEBIAN), "without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"),
        (prolog(f"! {PATCHED}"), "without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"),
        (prolog(f"! {DEBIAN}", "exit 0"), "without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"),
        (prolog(body="true"), "without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"),
        (prolog(body=BODY.replace("/dev/aperture", "/dev/other")), "without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"),
        (f"#!/bin/bash\ncat >/dev/null <<'EOF'\n{prolog()}EOF\n", "without NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"),
        (prolog().replace("docker run --detach", ": docker"), "starts no receive data path manager"),
        (prolog() + "exit 3\n", "exit code 3"),
        (prolog() + "ls /no/such/file\n", "No such file or directory"),
    ],
    ids=[
        "for Debian only",
        "negated",
        "negated to stop",
        "no body",
        "another folder",
        "in a heredoc",
        "no manager",
        "code",
        "words",
    ],
)
def test_a_prolog_that_does_not_do_its_work_fails(text, why):
    assert why in rxdm.trial_failure(text)


def test_texts_that_fail_the_trial_pass_the_check():
    """Why it is tried at all: the text of each of these is judged right."""
    assert classify(prolog(body="true"))[0] == "ok"
    assert classify(f"#!/bin/bash\ncat >/dev/null <<'EOF'\n{prolog()}EOF\n")[0] == "ok"


def test_a_trial_does_not_change_this_machine(tmp_path):
    mark = tmp_path / "mark"
    tool = Path("/usr/bin/env").resolve()
    text = prolog(body=f"{BODY}; touch {mark} /usr/bin/hpc-mark; rm -f {tool}; kill -9 -1; exit 0")
    rxdm.trial_failure(text)
    assert not mark.exists()
    assert not Path("/usr/bin/hpc-mark").exists()
    assert tool.exists()


def test_a_trial_leaves_no_mounts_files_or_processes(monkeypatch):
    def left() -> tuple[str, list[Path]]:
        mounted = Path("/proc/self/mounts").read_text()
        return ("hpc-trial" in mounted and mounted) or "", [*Path("/tmp").glob("hpc-trial-*")]  # noqa: S108

    assert rxdm.trial_failure(prolog()) == ""
    monkeypatch.setattr(rxdm, "TRIAL_SECONDS", 1)
    assert "did not end within 1 s" in rxdm.trial_failure(prolog(body="exec sleep 4343"))
    assert left() == ("", [])
    ps = programs.run(["ps", "-eo", "args"], check=True, env={**os.environ})
    assert "sleep 4343" not in ps.stdout
