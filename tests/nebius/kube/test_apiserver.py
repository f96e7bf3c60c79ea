"""The API server: started twice it is one, killed it is started again with its data, stopped it leaves nothing."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from components.local.host.paths import HostError
from components.local.host.process import Process
from lab.kubernetes import apiserver, binaries
from lab.kubernetes.apiserver import ApiServer
from tests import programs
from tests.nebius.kube.project import ROOT, Kube
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

DAEMONS = ("etcd", "kube-apiserver", "kube-controller-manager")


ADDRESS = "127.0.0.77"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One that is started by the first test that starts it, and is left as it is."""
    made = ApiServer(tmp_path_factory.mktemp("kubernetes") / "api", binaries.ensure(print), address=ADDRESS, bound=True)
    yield made
    made.remove()


def processes(folder):
    """Processes with the folder in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = file.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/" in text and any(name in text.split("\0")[0] for name in DAEMONS):
            found.append(int(file.parent.name))
    return found


def recorded(server, name):
    process = Process.load(server.folder / f"{name}.json")
    assert process is not None
    return process


def pids(server):
    return [recorded(server, name) for name in DAEMONS]


def test_it_is_started_once_and_killed_it_is_started_again_with_its_data_port_and_token(server):
    access = server.start()
    kube = Kube(server._paths, server, access)
    kube.kubectl("create", "namespace", "kept")
    first = pids(server)
    assert server.start() == access
    assert pids(server) == first
    for name in DAEMONS:
        os.kill(recorded(server, name).pid, signal.SIGKILL)
    wait_for(lambda: not any(recorded(server, name).alive() for name in DAEMONS))
    assert server.start() == access
    assert kube.get("namespace", "kept")
    assert all(process.alive() for process in pids(server))


def test_one_whose_starter_was_killed_before_it_wrote_the_record_is_ended(server):
    server.start()
    before = processes(server.folder)
    for name in DAEMONS:
        (server.folder / f"{name}.json").unlink()
    server.start()
    assert not {*before} & {*processes(server.folder)}
    wait_for(lambda: len(processes(server.folder)) == 3)


def test_bound_it_ends_with_the_process_that_started_it(tmp_path):
    folder = tmp_path / "api"
    program = (
        "import sys, pathlib, time\n"
        "from lab.kubernetes import binaries\n"
        "from lab.kubernetes.apiserver import ApiServer\n"
        f"ApiServer(pathlib.Path({str(folder)!r}), binaries.ensure(), bound=True).start()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        wait_for(lambda: len(processes(folder)) == 3)
        process.kill()
    wait_for(lambda: not processes(folder))


def test_others_can_read_neither_token_nor_keys(server):
    server.start()
    assert server.folder.stat().st_mode & 0o777 == 0o700
    secret = ["kubeconfig", "server.json", "tokens.csv", "pki/ca.key", "pki/server.key", "pki/service-account.key"]
    assert {name: oct((server.folder / name).stat().st_mode & 0o777) for name in secret} == dict.fromkeys(
        secret, "0o600"
    )


def test_a_token_is_needed(server):
    access = server.start()
    context = ssl.create_default_context(cadata=access.certificate_authority)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{access.server}/api/v1/namespaces/default/secrets", context=context)  # noqa: S310


def test_certificates_of_its_authority_are_trusted_for_their_hosts(tmp_path):
    authority = apiserver.authority(tmp_path)
    certificate, key = apiserver.issue(tmp_path, "kubelet", ["10.0.0.7", "worker-0"])
    assert key.stat().st_mode & 0o777 == 0o600
    hosts = ["-verify_ip", "10.0.0.7", "-verify_hostname", "worker-0"]
    command = ["openssl", "verify", "-CAfile", authority, *hosts, certificate]
    shown = programs.run(command)
    assert shown.returncode == 0, shown.stderr


def test_what_does_not_start_is_reported_with_the_end_of_its_log_and_nothing_runs(tmp_path):
    server = ApiServer(tmp_path / "api", binaries.ensure(print), flags=["--no-such-flag"], bound=True)
    with pytest.raises(HostError, match=r"(?s)kube-apiserver ended; its log:.*unknown flag: --no-such-flag"):
        server.start()
    assert processes(server.folder) == []
    server.remove()


def test_an_address_that_is_not_this_machines_is_refused(tmp_path):
    server = ApiServer(tmp_path / "api", binaries.ensure(print), address="192.0.2.1")
    with pytest.raises(HostError, match=r"192\.0\.2\.1: no address of this machine"):
        server.start()


def test_it_listens_on_its_address_only(server):
    access = server.start()
    assert access.server.startswith(f"https://{ADDRESS}:")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(access.server.rpartition(":")[2])))


def test_owned_objects_go_with_their_owner(server):
    access = server.start()
    kube = Kube(server._paths, server, access)
    kube.kubectl("create", "configmap", "owner")
    uid = kube.get("configmap", "owner")["metadata"]["uid"]
    owner = f'{{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid}"}}'
    text = f'{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "owned", "ownerReferences": [{owner}]}}}}'
    kube.kubectl("create", "--filename=-", stdin=text)
    kube.kubectl("delete", "configmap", "owner")
    wait_for(lambda: kube.get("configmap", "owned") is None)
    wait_for(lambda: kube.get("serviceaccount", "default"))


def test_it_leaves_nothing(server):
    access = server.start()
    server.stop()
    assert processes(server.folder) == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((ADDRESS, int(access.server.rpartition(":")[2])))
    server.remove()
    assert list(server.folder.parent.iterdir()) == []
