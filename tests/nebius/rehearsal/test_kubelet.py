"""The stand-in kubelet behind a real API server: the real kubectl, and a machine that is a PID namespace of its own."""

import json
import os
import shlex
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from components.local.host.process import Process
from lab.kubernetes import apiserver, binaries
from lab.kubernetes.apiserver import ApiServer
from lab.nebius_supervisor import KUBELET
from lab.soperator import CONTROLLERS, Kube, KubeError, nodes, pods
from lab.soperator.operator import ALONE
from tests.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]


def started(kube, name):
    """A pod on the only node."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": nodes.register(kube, [ALONE], kubelet=1)[0]["metadata"]["name"],
            "automountServiceAccountToken": False,
            "containers": [{"name": "slurmd", "image": "stand-in"}],
        },
    }

    made = []

    def create():
        with suppress(KubeError):  # the namespace's service account is to come
            made.append(kube.apply(pod))
        return made

    wait_for(create)
    kube.set_status(made[0], pods.running(made[0]))


@pytest.fixture(scope="module")
def kubectl(programs, tmp_path_factory):
    """The words in front of kubectl's; the pod `there` has a machine, the pod `elsewhere` none."""
    folder = tmp_path_factory.mktemp("kubelet")
    pki, table, record, log = (folder / name for name in ("api/pki", "pods.json", "process.json", "slurmd.log"))
    pki.mkdir(parents=True)
    authority = apiserver.authority(pki)
    own, client = (apiserver.issue(pki, name, ["127.0.0.1"]) for name in ("kubelet", "to-kubelet"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log.write_text("one\ntwo\n")
    row = {"process": str(record), "containers": {"slurmd": {"file": str(log)}}}
    table.write_text(json.dumps({"default/there": row}))
    flags = [
        f"--kubelet-certificate-authority={authority}", f"--kubelet-client-certificate={client[0]}",
        f"--kubelet-client-key={client[1]}", "--kubelet-preferred-address-types=InternalIP",
    ]  # fmt: skip
    kubelet = [
        str(binaries.build("kubelet", KUBELET)), f"-listen=127.0.0.1:{port}", f"-cert={own[0]}", f"-key={own[1]}",
        f"-client-ca={authority}", f"-pods={table}",
    ]  # fmt: skip
    machine = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "sleep", "600"]
    with ExitStack() as stack:
        for command in (kubelet, machine):
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
        made = Process.of(process.pid)
        assert made is not None
        wait_for(made.children)
        record.write_text(json.dumps(asdict(made)))
        server = ApiServer(folder / "api", programs, flags=flags, controllers=CONTROLLERS, bound=True)
        access = stack.enter_context(server.running())
        kube = Kube(access.server, pki / "ca.crt", access.token)
        for name in ("there", "elsewhere"):
            started(kube, name)
        nodes.register(kube, [ALONE], kubelet=port)
        yield [str(programs.kubectl), f"--kubeconfig={access.kubeconfig}"]


def ran(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def running(*arguments):
    """Processes that have these arguments, by their numbers."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if {*arguments} <= {*file.read_text(errors="replace").split("\0")}:
                found.append(int(file.parent.name))
    return found


def test_a_pod_without_a_machine_says_so_in_place_of_its_log(kubectl):
    assert ran(*kubectl, "logs", "there").stdout == "one\ntwo\n"
    lacking = ran(*kubectl, "logs", "elsewhere")
    assert lacking.returncode == 1
    assert 'pod "elsewhere" has no machine here' in lacking.stderr


def test_streams_and_exit_codes_are_the_commands_own(kubectl):
    done = ran(*kubectl, "exec", "there", "--", "sh", "-c", "echo out; printf half >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.stderr == "halfcommand terminated with exit code 3\n"


def test_a_terminal_has_a_name_and_what_runs_there_ends_with_its_client(kubectl):
    inside = [*kubectl, "exec", "--stdin", "--tty", "there", "--"]
    named = ran("script", "-qec", shlex.join([*inside, "sh", "-c", "tty; exit 5"]), "/dev/null")
    assert (named.returncode, "/dev/pts/" in named.stdout) == (5, True), named.stdout
    length = f"{600 + os.getpid() / 1e5}"
    line = f"sleep {length}; echo after"
    command = ["script", "-qec", shlex.join([*inside, "sh", "-c", line]), "/dev/null"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as client:
        wait_for(lambda: running("sleep", length))
        for number in running(kubectl[0], line):
            os.kill(number, signal.SIGKILL)
        client.wait(PATIENCE)
        wait_for(lambda: not running("sleep", length))
