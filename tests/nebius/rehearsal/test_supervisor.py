"""How a rehearsal's processes end: those of this folder, and no others; and the machines after the operator's run."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import lab.nebius_supervisor as supervisor
from components.local.host.paths import HostError
from components.nebius.api import client, lifecycle, objects
from lab.kubernetes.apiserver import Daemon
from lab.nebius_supervisor import Place, Supervisor

SLEEPER = "import os, sys, time; os.chroot(sys.argv[1]); print('ready', flush=True); time.sleep(600)"


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
@pytest.mark.parametrize("contained", [True, False])
def test_a_process_without_a_record_is_ended_unless_the_path_is_another_containers(tmp_path, contained):
    mark = f"--folder={tmp_path}"
    command = [sys.executable, "-c", SLEEPER, str(tmp_path) if contained else "/", mark]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            Daemon(tmp_path, "sleeper", mark).stop()
            assert (process.poll() is None) == contained
        finally:
            process.kill()


class TestMachines:
    @pytest.fixture
    def destroy(self, tmp_path, monkeypatch):
        """destroy(ANSWERS): what each run of the command prints on standard error, empty for success; returns how many
        ran."""

        def called(answers):
            left = list(answers)

            def run(*_, **__):
                text = left.pop(0)
                return SimpleNamespace(returncode=bool(text), stdout="", stderr=text)

            monkeypatch.setattr(supervisor.subprocess, "run", run)
            monkeypatch.setattr(supervisor.time, "sleep", lambda _seconds: None)
            one = Supervisor(tmp_path / "r")
            one.machines.mkdir(parents=True)
            (one.machines / "Pulumi.machines.yaml").touch()
            try:
                one._destroy_machines(lambda _text: None)
            finally:
                shown = len(answers) - len(left)
            return shown

        return called

    def test_a_run_of_the_operators_is_waited_for(self, destroy):
        busy = (
            "error: stack machines is in use: root@host (pid 7) holds it since 2026-11-22.\nWait for that run to end."
        )
        assert destroy([busy, busy, ""]) == 3

    def test_other_errors_are_raised_at_once(self, destroy):
        with pytest.raises(HostError, match="the machines can't be removed: error: no room"):
            destroy(["error: no room", ""])


@pytest.mark.slow
def test_a_cluster_that_is_created_again_has_no_objects_of_the_deleted_one(tmp_path, programs):
    one = Supervisor(tmp_path / "r")
    place = Place(tenant="tenant-e00test", project="project-e00test", region="eu-north1")
    access = one.start(place, "test", machines=False)

    def kubectl(*words):
        command = [programs.kubectl, f"--kubeconfig={access.kubeconfig}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).returncode

    try:
        endpoint = one.endpoint()
        spec = {"control_plane": {"subnet_id": objects.first_subnet(place.project, endpoint), "version": "1.35"}}
        props = {
            "kind": "Cluster", "name": "k", "resource_name": "k", "parent_id": place.project, "spec": spec,
            "owner": "0123456789abcdef", "endpoint": endpoint, "pace": 0.1, "timeout_seconds": 300.0,
        }  # fmt: skip
        found = lifecycle.create(props)
        assert kubectl("create", "namespace", "soperator") == 0
        lifecycle.delete(found.id, props)
        assert kubectl("get", "namespaces", "--request-timeout=5s") != 0
        lifecycle.create(props)
        assert kubectl("get", "namespaces") == 0
        assert kubectl("get", "namespace", "soperator") != 0
    finally:
        client.close()
        one.remove()
