"""A real API server, with the stand-in operator behind it."""

import json
import subprocess
import threading
import time
from collections import deque
from contextlib import contextmanager

import pytest

from lab.kubernetes.apiserver import ApiServer
from lab.nebius_rehearsal import STAND_INS as CHARTS
from lab.soperator import CONTROLLERS, Behaviour, Kube, Operator


@pytest.fixture(scope="module")
def server(tmp_path_factory, programs):
    folder = tmp_path_factory.mktemp("api") / "k"
    with ApiServer(folder, programs, controllers=CONTROLLERS, bound=True).running() as access:
        yield access


@pytest.fixture(scope="module")
def kube(server, tmp_path_factory):
    authority = tmp_path_factory.mktemp("ca") / "ca.crt"
    authority.write_text(server.certificate_authority)
    return Kube(server.server, authority, server.token)


@pytest.fixture(scope="module")
def helm(server, programs):
    """Install a chart of ours, or refuse it: returns what Helm prints."""

    def install(release, chart, namespace, values, *, seconds=300):
        done = subprocess.run(
            [
                str(programs.helm), f"--kubeconfig={server.kubeconfig}", "upgrade", "--install", release,
                str(CHARTS / chart), f"--namespace={namespace}", "--create-namespace", "--wait",
                "--wait-for-jobs", f"--timeout={seconds}s", "--values=-",
            ],
            input=json.dumps(values), text=True, capture_output=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return install


@contextmanager
def operating(kube, **options):
    """The operator at work, in a thread; gives its behaviour, and what it reports."""
    ended = threading.Event()
    said = deque()
    operator = Operator(kube, behaviour=Behaviour(), report=said.append, **options)
    thread = threading.Thread(target=operator.run, args=(ended.is_set,))
    thread.start()
    try:
        yield operator.behaviour, said
    finally:
        ended.set()
        thread.join()


def until(look, seconds=120.0):
    """The first answer that is not empty. Fails when the time is up."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"nothing after {seconds:.0f} s"
        time.sleep(0.1)
    return found
